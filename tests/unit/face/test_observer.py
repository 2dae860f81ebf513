"""What an observer is told: each call once, with what it came to."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta

import pytest

import cassq
import cassq.aio
from cassq.errors import StorageUnavailableError
from cassq.popping import commits
from cassq.runtime.clock import SystemClock
from cassq.runtime.event_buffer import EventBuffer
from cassq.runtime.outage_log import OutageLog
from cassq.storage.metered import Telemetry, measured

NOW = timedelta(0)


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.events = []

    def note(self, event):
        self.events.append(event)

    def of(self, kind):
        return [each for each in self.events if isinstance(each, kind)]


@pytest.fixture
def notes():
    return Notes()


def store(notes):
    return cassq.connect("memory:", observer=notes)


def test_each_push_is_told_once_with_what_it_stored(notes):
    with store(notes) as opened:
        queue = opened.queue("q")
        queue.push(b"1234", {"a": "b"})
        queue.push_soon(b"12").result()
        queue.push_many([b"1", (b"23", {"c": "d"})])
        queue.push_many([])
    pushed = notes.of(cassq.Pushed)
    assert [(each.queue, each.count, each.size, each.error) for each in pushed] == [
        ("q", 1, 6, None),
        ("q", 1, 2, None),
        ("q", 2, 5, None),
        ("q", 0, 0, None),
    ]
    assert all(0 < each.seconds < 60 for each in pushed)


def test_a_push_that_fails_is_told_with_its_code_and_what_was_stored_before(notes):
    def bodies():
        yield from [b"x"] * 1001
        yield "no bytes"

    with store(notes) as opened:
        queue = opened.queue("q")
        with pytest.raises(cassq.InvalidOptionError):
            queue.push("no bytes")
        with pytest.raises(cassq.InvalidOptionError):
            queue.push_soon("no bytes")
        with pytest.raises(cassq.InvalidOptionError):
            queue.push_many(bodies())
    told = [(each.count, each.size, each.error) for each in notes.of(cassq.Pushed)]
    assert told == [(0, 0, "invalid-option"), (0, 0, "invalid-option"), (1000, 1000, "invalid-option")]


def test_each_pop_that_finds_something_is_told_once_with_the_oldest_age(notes):
    with store(notes) as opened:
        queue = opened.queue("q")
        queue.push(b"old")
        queue.push_many([b"new"] * 3)
        with queue.popper() as popper:
            first = popper.pop(timeout=60)
            left = 3
            while left:
                left -= len(popper.pop_many(left, timeout=60))
            assert popper.pop(timeout=0) is None
            first.rollback(NOW)
            assert popper.pop_soon().result()[0].body == b"old"
            waiting = popper.pop_soon()
            assert waiting.cancel()
    popped = notes.of(cassq.Popped)
    assert sum(each.count for each in popped) == 5
    assert all(each.queue == "q" and each.error is None and 0 <= each.age_s < 60 for each in popped)
    assert popped[-1].age_s >= popped[0].age_s


def test_an_iteration_tells_each_message_and_not_its_end(notes):
    with store(notes) as opened:
        queue = opened.queue("q")
        queue.push_many([b"x"] * 5)
        popper = queue.popper(commit="grouped")
        for number, delivery in enumerate(popper):
            with delivery:
                pass
            if number == 4:
                popper.close()
    assert [(each.count, each.error) for each in notes.of(cassq.Popped)] == [(1, None)] * 5
    assert [(each.count, each.error) for each in notes.of(cassq.Committed)] == [(1, None)] * 5
    assert notes.of(cassq.CommitsFailed) == []


def test_each_end_of_a_message_is_told_as_what_it_is(notes):
    with store(notes) as opened:
        queue = opened.queue("q", lease=timedelta(minutes=1))
        queue.push_many([b"x"] * 7)
        with queue.popper() as popper:
            one, *more = popper.pop_many(7, timeout=60)
            one.commit()
            popper.commit_many(more[:2])
            more[2].commit_soon().result()
            more[3].extend()
            more[3].rollback(NOW)
            more[4].reject("no customer")
            more[5].give_back()
            with pytest.raises(cassq.ClosedError):
                one.commit()
    assert [each.count for each in notes.of(cassq.Committed)] == [1, 2, 1]
    returned = [(each.count, each.is_counted, each.is_written) for each in notes.of(cassq.RolledBack)]
    assert returned == [(1, True, True), (1, False, True)]
    assert [(each.count, each.is_written) for each in notes.of(cassq.Rejected)] == [(1, True)]
    assert [each.error for each in notes.of(cassq.Extended)] == [None]


def test_grouped_commits_that_fail_later_are_told(notes, monkeypatch):
    def fail(_commit):
        raise cassq.DeliveryExpiredError("too late")

    with store(notes) as opened:
        queue = opened.queue("q")
        queue.push_many([b"x"] * 2)
        with queue.popper(commit="grouped") as popper:
            deliveries = popper.pop_many(2, timeout=60)
            monkeypatch.setattr(commits.Commit, "try_once", fail)
            popper.commit_many(deliveries)
    assert [(each.queue, each.count, each.error) for each in notes.of(cassq.CommitsFailed)] == [
        ("q", 2, "delivery-expired")
    ]


def test_calls_to_the_database_are_told_as_often_as_they_are_counted(notes):
    with store(notes) as opened:
        opened.queue("q").push(b"x")
    counts = opened.telemetry.snapshot()
    told = Counter(each.method for each in notes.of(cassq.StorageCalled))
    assert told == {method: each.calls for method, each in counts.items()}
    assert told["append"] == 1
    assert {each.error for each in notes.of(cassq.StorageCalled)} == {None}


def test_a_call_to_the_database_that_fails_is_told_with_its_code(notes):
    class Away:
        def read_queues(self, name=None):
            raise StorageUnavailableError("away")

    clock = SystemClock()
    buffer = EventBuffer(notes.note, clock, None)
    storage = measured(Away(), Telemetry(), OutageLog("a store", clock), buffer)
    with pytest.raises(StorageUnavailableError):
        storage.read_queues("q")
    buffer.close()
    assert [(each.method, each.error) for each in notes.events] == [("read_queues", "storage-unavailable")]


def test_a_pass_of_the_reaper_is_told(notes):
    with store(notes) as opened:
        opened.queue("q").push(b"x")
        report = opened.reap()
    (reaped,) = notes.of(cassq.Reaped)
    assert (reaped.queue, reaped.examined, reaped.failed) == ("q", report.examined, 0)


def test_an_observer_may_call_the_store_that_it_observes():
    class Auditing:
        def note(self, event):
            if isinstance(event, cassq.Committed):
                audit.push(b"%d" % event.count)

    with cassq.connect("memory:", observer=Auditing()) as opened:
        audit, queue = opened.queue("audit"), opened.queue("q")
        queue.push(b"x")
        with queue.popper() as popper, audit.popper() as reading:
            popper.pop(timeout=60).commit()
            assert reading.pop(timeout=60).body == b"1"


def test_an_observer_may_close_the_store_that_it_observes():
    heard = []

    class Closing:
        def note(self, event):
            if isinstance(event, cassq.Pushed):
                opened.close()
                heard.append(event)

    opened = cassq.connect("memory:", observer=Closing())
    opened.queue("q").push(b"x")
    opened.close()  # or waits until that is through
    assert opened.is_closed
    assert len(heard) == 1


def test_no_call_waits_for_an_observer():
    class Stuck:
        def note(self, _):
            may_go_on.wait(60)

    may_go_on = threading.Event()
    with cassq.connect("memory:", observer=Stuck()) as opened:
        queue = opened.queue("q")
        queue.push(b"x")
        with queue.popper() as popper:
            popper.pop(timeout=60).commit()
        may_go_on.set()


def test_an_observer_that_raises_costs_no_call(caplog):
    class Raising:
        def note(self, event):
            raise StorageUnavailableError(f"{event}")

    with cassq.connect("memory:", observer=Raising()) as opened:
        queue = opened.queue("q")
        queue.push(b"x")
        with queue.popper() as popper:
            popper.pop(timeout=60).commit()
    assert [each.name for each in caplog.records] == ["cassq.observer"]


def test_what_is_no_observer_is_refused():
    with pytest.raises(cassq.InvalidOptionError, match=r"observer=7 has no method note\(event\)"):
        cassq.connect("memory:", observer=7)


def test_a_store_for_asyncio_has_an_observer_too(notes):
    async def main():
        async with cassq.aio.connect("memory:", observer=notes) as opened:
            queue = await opened.queue("q")
            await queue.push(b"x")
            async with queue.popper() as popper:
                await (await popper.pop(60)).commit()

    asyncio.run(main())
    assert [each.count for each in notes.of(cassq.Pushed)] == [1]
    assert [each.count for each in notes.of(cassq.Popped)] == [1]
    assert [each.count for each in notes.of(cassq.Committed)] == [1]
