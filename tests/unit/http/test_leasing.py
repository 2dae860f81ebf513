"""Leases of a process: who waits, who leaves, what the port sees of tokens, and when the lessor is closed."""

import asyncio
import threading

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from support.patience import until

import cassq
from cassq.errors import AccessDeniedError, DeliveryExpiredError, InvalidOptionError, OutcomeUnknownError
from cassq.http.app import Opening, make_app
from cassq.http.leasing import check_any
from cassq.http.lending import LendingQueue, Waiting, Waits
from cassq.http.problems import PartlyDoneError, to_problem
from cassq.model.ids import new_pipe_id, new_token

WAIT_S = 60.0


class Scene:
    """A queue in memory, and clients that wait for its messages."""

    def __init__(self, store):
        self.queue = LendingQueue(store.queue("orders"))
        self.waits = Waits()
        self.left = asyncio.Event()

    async def _receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _let_in(self, _):
        return None

    def waiting(self, seconds=WAIT_S, check=None, count=1):
        request = Request({"type": "http"}, self._receive)
        return Waiting(request, count, seconds, self.waits, check or self._let_in)

    async def lease(self, *values, **options):
        async with self.queue.lending() as lessor:
            return await self.waiting(*values, **options).lease(lessor.lease_soon)

    async def is_hungry(self):
        """Wait until somebody stands in line."""
        coordinator = self.queue.sync._context.coordinator
        await asyncio.to_thread(until, lambda: coordinator.hungry("orders"))

    async def bodies_of_next(self):
        """Return what a client gets that stays, and which attempt that is."""
        self.left = asyncio.Event()
        return [(each.body, each.attempt) for leased in await self.lease() for each in leased.messages]


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


def run(store, scenario):
    async def play():
        scene = Scene(store)
        return await asyncio.wait_for(scenario(scene), 2 * WAIT_S)

    return asyncio.run(play())


class TestAClientThatWaits:
    def test_gets_what_comes(self, store):
        async def scenario(scene):
            task = asyncio.create_task(scene.bodies_of_next())
            await scene.is_hungry()
            scene.queue.sync.push(b"one")
            return await task

        assert run(store, scenario) == [(b"one", 1)]

    def test_for_no_time_has_one_look_made(self, store):
        store.queue("orders").push(b"one")
        found = run(store, lambda scene: scene.lease(0))
        assert [each.body for leased in found for each in leased.messages] == [b"one"]
        assert run(store, lambda scene: scene.lease(0)) == []

    def test_for_a_moment_is_told_that_nothing_came(self, store):
        assert run(store, lambda scene: scene.lease(0.05)) == []

    def test_and_leaves_gets_nothing(self, store):
        async def scenario(scene):
            task = asyncio.create_task(scene.lease())
            await scene.is_hungry()
            scene.left.set()
            with pytest.raises(ClientDisconnect):
                await task
            scene.queue.sync.push(b"one")
            return await scene.bodies_of_next()

        assert run(store, scenario) == [(b"one", 1)]

    def test_and_leaves_as_its_message_comes_has_it_given_to_the_next_one_uncounted(self, store):
        async def scenario(scene):
            async def leave(_):
                scene.left.set()
                for _ in range(5):
                    await asyncio.sleep(0)

            scene.queue.sync.push(b"one")
            with pytest.raises(ClientDisconnect):
                await scene.lease(check=leave)
            return await scene.bodies_of_next()

        assert run(store, scenario) == [(b"one", 1)]

    def test_and_whose_key_is_revoked_meanwhile_gets_nothing(self, store):
        async def refuse(_):
            raise AccessDeniedError("revoked")

        async def scenario(scene):
            task = asyncio.create_task(scene.lease(check=refuse))
            await scene.is_hungry()
            scene.queue.sync.push(b"one")
            with pytest.raises(AccessDeniedError):
                await task
            return await scene.bodies_of_next()

        assert run(store, scenario) == [(b"one", 1)]

    def test_whose_task_is_cancelled_gets_nothing(self, store):
        async def scenario(scene):
            task = asyncio.create_task(scene.lease())
            await scene.is_hungry()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            scene.queue.sync.push(b"one")
            return await scene.bodies_of_next()

        assert run(store, scenario) == [(b"one", 1)]

    def test_is_told_nothing_once_the_process_is_about_to_end(self, store):
        async def scenario(scene):
            tasks = [asyncio.create_task(scene.lease()) for _ in range(20)]
            await scene.is_hungry()
            scene.waits.end_all()
            return await asyncio.gather(*tasks)

        assert run(store, scenario) == [[]] * 20


class TestTheLessor:
    def test_is_one_for_all_who_wait_and_is_closed_when_nobody_did_lately(self, store):
        async def scenario(scene):
            async with scene.queue.lending() as first, scene.queue.lending() as second:
                assert first is second
                await scene.queue.close_idle(0)
                assert not first.is_closed
            await scene.queue.close_idle(1000)
            assert not first.is_closed
            await scene.queue.close_idle(0)
            assert first.is_closed
            async with scene.queue.lending() as third:
                assert not third.is_closed

        run(store, scenario)

    def test_that_is_closed_leaves_what_is_leased(self, store):
        store.queue("orders").push(b"one")

        async def scenario(scene):
            (leased,) = await scene.lease()
            await scene.queue.close_idle(0)
            return scene.queue.sync.leases.commit([leased.lease])

        assert run(store, scenario) == [cassq.Settled.COMMITTED]


class TestTheWorstThatLeasesComeTo:
    @pytest.mark.parametrize("outcomes", [["committed", "expired"], ["ended"], ["extended", "unknown"]])
    def test_is_told_of_each_where_one_was_settled(self, outcomes):
        check_any(outcomes)

    @pytest.mark.parametrize(
        ("outcomes", "kind"),
        [(["expired"], DeliveryExpiredError), (["expired", "unknown"], OutcomeUnknownError)],
    )
    def test_is_an_error_where_none_was(self, outcomes, kind):
        with pytest.raises(PartlyDoneError) as caught:
            check_any(outcomes)
        told = to_problem(caught.value)
        assert (told.code, told.status, told.outcomes) == (kind.code, kind.http_status, outcomes)


def test_no_error_has_more_of_a_token_than_its_beginning(store):
    for number in range(50):
        queue = store.queue(f"q{number}")
        lease = cassq.Lease(queue.leases.incarnation, new_pipe_id(), 1, 1, new_token(), 1)
        told = to_problem(InvalidOptionError(f"{lease.to_text()!r} is none, nor is {lease.to_text()[:50]}"))
        beginning = lease.to_text()[:12]
        assert told.detail == f"'{beginning}…' is none, nor is {beginning}…"


@pytest.mark.parametrize("call", ["commit", "extend", "settle"])
def test_a_token_of_another_queue_touches_no_row(call):
    async def play():
        app = make_app(Opening("memory:", is_open=True))
        async with app.lifespan_context(app) as state:

            async def with_state(scope, receive, send):
                await app({**scope, "state": dict(state)}, receive, send)

            transport = httpx.ASGITransport(with_state)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                for name in ("here", "there"):
                    (await client.put(f"/v1/queues/{name}")).raise_for_status()
                await client.post("/v1/queues/here/messages", content=b"x")
                leased = (await client.post("/v1/queues/here/lease", json={"wait_s": 60})).json()
                token = leased["leases"][0]["lease"]
                body = {"lease": token} if call == "settle" else {"leases": [token]}
                touched = []
                for name in ("here", "there"):
                    watch(state["service"].store.sync.find_queue(name), touched)
                answer = await client.post(f"/v1/queues/there/{call}", json=body)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid-option")
                assert touched == []
                answer = await client.post(f"/v1/queues/here/{call}", json=body)
                assert answer.status_code == 200
                assert touched  # it is watched where rows are touched

    asyncio.run(play())


def watch(queue, touched):
    """List the calls of requests, and not of housekeeping, that read or change rows of a pipe."""
    storage = queue._context.storage
    for name in ("read_stretch", "load_pipe", "mark", "transact"):
        setattr(storage, name, watched(getattr(storage, name), name, touched))


def watched(method, name, touched):
    def call(*values, **named):
        if threading.current_thread().name.startswith(("cassq-http", "cassq-commit")):
            touched.append(name)
        return method(*values, **named)

    return call
