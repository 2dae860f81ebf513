"""A queue that another process deleted and made anew, while this one has the earlier one open."""

import asyncio
from types import SimpleNamespace

import cassq
from cassq import aio
from cassq.errors import InvalidOptionError
from cassq.gate.addresses import Proxies
from cassq.http import leasing
from cassq.http.service import Service


def test_a_lease_of_the_present_queue_is_committed_where_the_earlier_one_is_open(tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"

    async def run(other):
        async with aio.connect(url) as store:
            service = Service(store, SimpleNamespace(age_s=0.0), Proxies.of(()))

            def call(*leases):
                return SimpleNamespace(
                    service=service, name=lambda _: "orders", body=SimpleNamespace(leases=leases)
                )

            def lease():
                other.queue("orders").push(b"1")
                with other.queue("orders").lessor() as lessor:
                    return lessor.lease(1, 30)[0].lease.to_text()

            early = await asyncio.to_thread(lease)
            assert (await leasing.commit(call(early))).status_code == 200
            await asyncio.to_thread(other.delete_queue, "orders")
            late = await asyncio.to_thread(lease)
            assert (await leasing.commit(call(late))).status_code == 200
            try:
                await leasing.commit(call(early))
            except InvalidOptionError as error:
                told = str(error)
            service.close()
            return told

    with cassq.connect(url) as other:
        assert "an earlier one of this name" in asyncio.run(run(other))
