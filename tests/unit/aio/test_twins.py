"""The asyncio classes have what the synchronous ones have, and take the same arguments."""

import asyncio
import inspect
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import cassq
import cassq.aio
from cassq.aio.twins import Opening, call_in_thread

#: What is not awaited: futures for those who have no event loop, connectors' business, and the inside.
WITHOUT_TWIN = {
    cassq.Store: {"coordinator", "storage", "telemetry", "is_closed", "left_behind"},
    cassq.Queue: {
        *(
            "push_soon",
            "run_reader",
            "staging",
            "is_closed",
            "has_closed",
            "left_behind",
            "record",
        )
    },
    cassq.Popper: {"pop_in_hand", "pop_soon", "next_in_hand", "next_soon", "is_closed", "has_closed"},
    cassq.Delivery: {
        *(
            "begin_work",
            "ending",
            "commit_soon",
            "check_unfinished",
            "finish",
            "handout",
            "has_ended",
            "run",
            "seq",
        ),
        "unfinish",
    },
    cassq.DeadLetters: set(),
    cassq.Schedules: set(),
    cassq.Topic: {"publish_soon", "is_closed"},
    cassq.TopicReader: set(),
    cassq.Consumer: {"make_held", "leave", "hear_of_share"},
    cassq.GroupMessage: {"held", "is_done", "is_dropped"},
    cassq.Lessor: {"lease_soon", "lend"},
    cassq.Leases: {"commit_soon", "note", "close"},
    cassq.GroupLessor: {"lease_soon"},
}
#: Properties may stand for attributes.
ATTRIBUTES = {
    cassq.Store: {"url"},
    cassq.Queue: {"name", "dead", "schedules"},
    cassq.Popper: {"name", "queue"},
    cassq.Delivery: {"body"},
    cassq.Topic: {"name"},
    cassq.Lessor: {"queue"},
    cassq.GroupLessor: {"group"},
}
SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}


def public(kind):
    names = {name for name in dir(kind) if not name.startswith("_") and name not in WITHOUT_TWIN[kind]}
    return names | {name for name in SPECIAL if hasattr(kind, name)}


def twin_of(kind):
    return getattr(cassq.aio, kind.__name__)


METHODS = [(kind, name) for kind in WITHOUT_TWIN for name in sorted(public(kind))]


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_each_public_name_has_a_twin_with_the_same_arguments(kind, name):
    if name in ATTRIBUTES.get(kind, ()):
        return
    twin = inspect.getattr_static(twin_of(kind), SPECIAL.get(name, name), None)
    assert twin is not None, f"cassq.aio.{kind.__name__} has no {name}"
    here = inspect.getattr_static(kind, name)
    assert isinstance(twin, property) == isinstance(here, property)
    if name not in SPECIAL and callable(here):
        assert arguments(twin) == arguments(here)


def arguments(method):
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("kind", WITHOUT_TWIN)
def test_nothing_that_is_left_out_is_forgotten(kind):
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        queue.push(b"x")
        with queue.popper() as popper:
            delivery = popper.pop(10)
            topic = store.topic("t")
            topic.publish(b"x")
            reader, consumer = topic.reader(), topic.consumer("g")
            (message,) = consumer.poll(1, 10)
            parts = (
                store,
                queue,
                popper,
                delivery,
                queue.dead,
                queue.schedules,
                topic,
                reader,
                consumer,
                message,
                queue.lessor(),
                queue.leases,
                topic.lessor("g"),
            )
            made = {type(each): each for each in parts}[kind]
            wrapped = {
                cassq.Delivery: lambda: cassq.aio.Delivery(delivery),
            }.get(kind, lambda: twin_of(kind)(made))()
            left = {name for name in vars_of(made) if not name.startswith("_")} - WITHOUT_TWIN[kind]
            assert {name for name in left if not hasattr(wrapped, name)} == set()
            assert wrapped.sync is made
            assert repr(made) in repr(wrapped)
            for name in ATTRIBUTES.get(kind, set()):
                assert hasattr(made, name)


def vars_of(made):
    return getattr(made, "__dict__", None) or made.__slots__


class Made:
    """What is slow to open."""

    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


class Wrapped:
    def __init__(self, made):
        self.made = made

    async def close(self):
        self.made.close()


def test_what_is_opened_is_closed_with_its_block():
    made = Made()

    async def main():
        async with Opening(lambda: made, Wrapped) as opened:
            assert opened.made is made
            assert not made.closed.is_set()

    asyncio.run(main())
    assert made.closed.is_set()


@pytest.mark.parametrize("is_loop_over", [False, True])
def test_what_is_opened_for_somebody_who_has_been_cancelled_is_closed(is_loop_over):
    made, began, may_open = Made(), threading.Event(), threading.Event()

    def make():
        began.set()
        assert may_open.wait(60)
        return made

    async def main():
        opening = asyncio.ensure_future(Opening(make, Wrapped)._open())
        await asyncio.to_thread(began.wait, 60)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not made.closed.is_set()
        if not is_loop_over:
            may_open.set()
            assert await asyncio.to_thread(made.closed.wait, 60)

    asyncio.run(main())
    may_open.set()
    assert made.closed.wait(60)


def test_what_cannot_be_opened_is_told_and_nothing_is_closed():
    def make():
        raise cassq.StorageUnavailableError("away")

    async def main():
        async with Opening(make, Wrapped):
            pytest.fail("nothing was opened")

    with pytest.raises(cassq.StorageUnavailableError, match="away"):
        asyncio.run(main())


def test_what_is_opened_in_the_tick_of_the_cancellation_is_closed_elsewhere():
    made = Made()
    closer = []
    made.close = lambda: (closer.append(threading.current_thread()), made.closed.set())

    async def main():
        opening = asyncio.ensure_future(Opening(lambda: made, Wrapped)._open())
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 - it is open by now, and the loop has not heard of it
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await asyncio.to_thread(made.closed.wait, 60)

    asyncio.run(main())
    assert closer[0] is not threading.main_thread()


def test_a_call_goes_on_though_it_was_cancelled_before_a_thread_was_free():
    free, done = threading.Event(), []

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        hogging = asyncio.ensure_future(asyncio.to_thread(free.wait, 60))
        await asyncio.sleep(0)
        calling = asyncio.ensure_future(call_in_thread(done.append, 1))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        free.set()
        await hogging

    asyncio.run(main())
    assert done == [1]


class Full:
    """A queue that has no room twice."""

    name, dead, schedules = "q", None, None
    settings = cassq.QueueSettings()

    def __init__(self, refusals):
        self.refusals, self.timeouts = refusals, []

    def push_soon(self, body, headers, *, timeout, is_patient, **options):
        assert not is_patient
        assert not options
        self.timeouts.append(timeout)
        if self.refusals:
            self.refusals -= 1
            raise cassq.OverloadedError("full")
        future = Future()
        future.set_result("an id")
        return future


def test_a_push_waits_for_room_without_a_thread():
    full = Full(2)
    assert asyncio.run(cassq.aio.Queue(full).push(b"x", timeout=60)) == "an id"
    assert len(full.timeouts) == 3
    assert full.timeouts == sorted(full.timeouts, reverse=True)


def test_a_push_that_finds_no_room_in_time_says_so():
    with pytest.raises(cassq.OverloadedError):
        asyncio.run(cassq.aio.Queue(Full(1000)).push(b"x", timeout=0.05))
