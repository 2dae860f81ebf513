"""Who has no key reads public queues, and only so many at once."""

import asyncio
from dataclasses import replace

import pytest
from starlette.requests import Request

from cassq import aio
from cassq.errors import AccessDeniedError
from cassq.gate.addresses import Proxies
from cassq.http.queuey_access import readable
from cassq.http.queuey_attributes import PUBLIC, forget, keep, may_be_public
from cassq.http.routes import NOBODY, Call
from cassq.http.sending import Sending
from cassq.http.service import KEYLESS_MAX, Service


class NoGate:
    """Would be asked only where somebody has a key."""

    age_s = 0.0

    def admit(self, *_, **__):
        raise AssertionError("nobody has a key")


def call_of(service, name):
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/queuey/v1/shop/{name}",
        "path_params": {"application": "shop", "queue": name},
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
    }
    return Call(Request(scope), service, None, NOBODY, {}, Sending(service.answers))


@pytest.fixture
def run(tmp_path):
    """Call with a service whose store has a public queue and another one."""

    async def start(work):
        async with aio.connect(f"sqlite:///{tmp_path}/store.db") as store:
            service = Service(store, NoGate(), Proxies())
            topic = await store.topic("shop.open")
            await store.topic("shop.own")
            await keep(service, "shop.open", topic, lambda kept: replace(kept, type=PUBLIC))
            try:
                return await work(service)
            finally:
                service.close()

    return lambda work: asyncio.run(start(work))


def test_without_a_key_only_so_many_read_at_once(run):
    now, most = 0, 0
    full = asyncio.Barrier(KEYLESS_MAX)

    async def read(service):
        nonlocal now, most
        async with readable(call_of(service, "open")):
            now += 1
            most = max(most, now)
            await full.wait()  # until as many are here as may be
            now -= 1

    async def work(service):
        await asyncio.gather(*(read(service) for _ in range(5 * KEYLESS_MAX)))

    run(work)
    assert (now, most) == (0, KEYLESS_MAX)


@pytest.mark.parametrize("name", ["own", "never-made"])
def test_what_is_not_public_is_not_even_opened(run, name):
    async def work(service):
        with pytest.raises(AccessDeniedError, match="public queues alone"):
            async with readable(call_of(service, name)):
                pass
        return service.topics.opened

    assert run(work) == []


def test_what_is_kept_of_a_deleted_queue_goes_and_that_of_a_later_one_stays(run):
    async def work(service):
        store, name = service.store, "shop.open"
        first = str((await store.find_topic(name)).incarnation)
        await store.delete_topic(name)
        later = await store.topic(name)
        await keep(service, name, later, lambda kept: replace(kept, type=PUBLIC))

        await forget(service, name, first)
        assert await may_be_public(service, name)
        await forget(service, name, str(later.incarnation))
        assert not await may_be_public(service, name)

    run(work)


def test_a_queue_that_is_public_no_more_is_not_read_from_then_on(run):
    async def work(service):
        topic = await service.store.find_topic("shop.open")
        await keep(service, "shop.open", topic, lambda kept: replace(kept, type="user"))
        with pytest.raises(AccessDeniedError):
            async with readable(call_of(service, "open")):
                pass

    run(work)
