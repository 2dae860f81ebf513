"""What comes between two steps: a push, a rollback, a seal, a stall, another reaper, an outage."""

import subprocess
import threading
from contextlib import contextmanager
from datetime import timedelta

from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.cli.execution import _Running
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.pushing.due_clock import DueClock
from cassq.pushing.pusher import Pusher
from cassq.reaping.reaper import Reaper
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))


def open_pipe(storage, count):
    entry = PipeEntry(new_pipe_id(), "a pusher")
    storage.create_pipe("q", entry, Head(new_token()))
    storage.append(entry.pipe, Batch(1, (b"body",) * count, None, count))
    return entry


class SlowBell:
    """A coordinator with a hungry popper, whose first wake-up takes its time."""

    def __init__(self, coordinator):
        self._coordinator = coordinator
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.woken = []

    def hungry(self, _queue, besides="", *, types=0):
        return 1

    def wake(self, _queue, count, besides="", *, types=0):
        self.woken.append(count)
        self.begun.set()
        self.go_on.wait(30)
        return count

    def __getattr__(self, name):
        return getattr(self._coordinator, name)


def test_what_is_pushed_while_a_wake_up_is_under_way_has_one_of_its_own():
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        coordinator = SlowBell(store.coordinator)
        context = context_of(store.storage, queue.settings, coordinator=coordinator)
        pusher = Pusher(context, DueClock(context))
        pusher.note_pushed(1, "")
        assert coordinator.begun.wait(30)
        pusher.note_pushed(1, "")
        coordinator.go_on.set()
        pusher.close()
        assert coordinator.woken == [1, 1]


def test_the_floor_stops_before_what_a_rollback_left_leased():
    clock = HandClock()
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    entry = open_pipe(storage, 10)
    context = context_of(storage, SETTINGS, clock)
    owned = OwnedPipe(context, entry, storage.load_pipe(entry.pipe), Taker("a popper"))
    result = owned.take(10)
    held = HeldRun(context, entry, result.runs[0], result.sent_at + 8.0, on_row_changed=owned.note)
    assert held.give_back(Ranges(((1, 1),)), Return())
    assert owned.take(1).runs
    for mark in (Mark(1, 1, End.COMMITTED), Mark(2, 3, End.COMMITTED)):
        storage.mark(entry.pipe, [mark])
        owned.note(mark)
    owned.heed()
    assert owned.advance(owned.head)
    state = storage.load_pipe(entry.pipe)
    assert (state.head.floor, [(run.first, run.last) for run in state.runs]) == (1, [(2, 10)])
    storage.close()


def test_a_pipe_that_was_sealed_before_what_was_seen_of_it_is_at_its_stop():
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        reader = queue.run_reader("tests", lease=timedelta(minutes=10))
        entry = open_pipe(store.storage, 3)
        # Written, but never acknowledged: its pusher decides by a seal that it did not happen
        store.storage.append(entry.pipe, Batch(4, (b"body",) * 3, None, 3))
        reader.stop_at_present()
        assert store.storage.transact(entry.pipe, Transaction(Seal(3))).is_applied
        found = []
        while runs := reader.take(None):
            found += runs
        assert sum(run.count for run in found) == 3
        assert reader.is_at_stop()
        reader.close()


def test_the_clock_is_read_before_the_marks_are(monkeypatch):
    clock = HandClock()
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    entry = open_pipe(storage, 1)
    begun_ms = storage.load_pipe(entry.pipe).now_ms
    reading = storage._file.reading

    @contextmanager
    def slow():
        with reading() as db:
            yield db
        clock.seconds += 10.0

    monkeypatch.setattr(storage._file, "reading", slow)
    assert storage.load_pipe(entry.pipe).now_ms == begun_ms
    storage.close()


def test_a_pipe_that_others_counted_and_forgot_meanwhile_is_counted_once(monkeypatch):
    clock = HandClock()
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    coordinator = LocalCoordinator(None, clock)
    assert storage.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
    context = context_of(storage, SETTINGS, clock, coordinator=coordinator)
    slow, quick = (Reaper(context, name, lambda _: None) for name in ("slow", "quick"))

    def finish():
        entry = open_pipe(storage, 1)
        assert storage.transact(entry.pipe, Transaction(Seal(1, is_free=True))).is_applied
        assert OwnedPipe(context, entry, storage.load_pipe(entry.pipe), Taker("p")).take(1).runs
        storage.mark(entry.pipe, [Mark(1, 1, End.COMMITTED)])
        return entry.pipe

    pipe = finish()
    look, looked = slow._totals._look, []

    def interrupted(owned):
        found = look(owned)
        if not looked:
            looked.append(owned)
            coordinator.release("q", pipe, "slow")  # as where its session ends
            assert quick.run_once().retired == 1
            finish()
            assert quick.run_once().retired == 1
        return found

    monkeypatch.setattr(slow._totals, "_look", interrupted)
    slow.run_once()
    assert looked
    (record,) = storage.read_queues("q")
    assert (record.totals.pushed, record.totals.committed) == (2, 2)
    coordinator.close()
    storage.close()


class Unextended:
    """A delivery whose lease cannot be extended at first; its command ends after that."""

    message_id = "an id"

    def __init__(self, process):
        self._process = process
        self.asked = 0

    def extend(self):
        self.asked += 1
        if self.asked > 1:
            self._process.stdin.close()
        raise StorageUnavailableError("an outage of a moment")


def test_a_command_goes_on_through_an_outage_of_a_moment():
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, process_group=0) as process:
        delivery = Unextended(process)
        assert _Running(process, delivery, 0.3).wait() == 0
    assert delivery.asked > 1
