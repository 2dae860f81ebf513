"""A second failure in the same step, and time that passes inside of a call."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.bulk.leased_run import LeasedRun
from cassq.bulk.reader_leases import ReaderLeases
from cassq.catalog.cached_record import CachedRecord
from cassq.cli.bench.arrivals import Arrivals
from cassq.cli.execution import Execution
from cassq.cli.signals import Wish
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import NO_HEADERS, Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.ranges import Range, Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.observing.statistics import Statistics
from cassq.pipes.run_rows import Return
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.pushing.push_buffer import PushBuffer
from cassq.pushing.push_result import PushFuture
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage


class Wrapped:
    """A storage of which a test changes one method."""

    def __init__(self, storage):
        self._storage = storage

    def __getattr__(self, name):
        return getattr(self._storage, name)


class Scene:
    """One queue, and the pipes that a test fills."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        self.fetchers = []

    def context(self, storage=None, **settings):
        chosen = QueueSettings(**settings)
        return context_of(storage or self.storage, chosen, self.clock, coordinator=self.coordinator)

    def fetcher(self, context, holder):
        made = Fetcher(context, holder, on_pipe_over=lambda _: None)
        self.fetchers.append(made)
        return made

    def open(self, *sizes):
        entry = PipeEntry(new_pipe_id(), "a pusher")
        self.storage.create_pipe("q", entry, Head(new_token()))
        first = 1
        for size in sizes:
            self.storage.append(entry.pipe, Batch(first, (b"body",) * size, None, size))
            first += size
        return entry.pipe


@pytest.fixture
def scene():
    made = Scene()
    yield made
    for each in made.fetchers:
        each.close()
    made.coordinator.close()
    made.storage.close()


def test_a_lease_that_begins_anew_is_counted_from_before_it_was_sent(scene):
    # Given a run that a dead process of a reader wrote down, and a database that answers slowly
    pipe = scene.open(3)
    lease = timedelta(seconds=8)
    first = scene.fetcher(scene.context(lease=lease), "first")
    ((_, taken),) = first.feed(10)
    first.close()
    run = LeasedRun(pipe, taken.run.lease_id, taken.run.attempt, taken.run.read_from, (Range(1, 3),))

    class Slow(Wrapped):
        def transact(self, *values):
            answer = self._storage.transact(*values)
            scene.clock.seconds += 5.0
            return answer

    leases = ReaderLeases(scene.context(Slow(scene.storage), lease=lease), "reader")
    assert leases.begin_anew(run)
    # When the lease has ended for others, by the time at which it began
    scene.clock.seconds += 5.0
    assert scene.fetcher(scene.context(lease=lease), "another").feed(10, Reach.DRAINED)
    # Then it has ended for the reader
    assert not leases.is_held(run)


def test_a_change_that_may_land_is_not_told_as_refused_by_a_later_attempt():
    with cassq.connect("memory:") as store:
        store.queue("q")
        flying = []

        class Cut(Wrapped):
            def change_queue(self, seen, wanted):
                if not flying:
                    flying.append((seen, wanted))
                    raise OutcomeUnknownError("no answer")
                raise StorageUnavailableError("no node answers")

        (record,) = store.storage.read_queues("q")
        cached = CachedRecord(Cut(store.storage), record, SystemClock())
        with pytest.raises(OutcomeUnknownError):
            cached.change(lambda seen: replace(seen, state=QueueState.PAUSED))
        assert store.storage.change_queue(*flying[0])  # it lands


def test_peek_shows_nothing_behind_the_end_of_a_pipe():
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        entry = PipeEntry(new_pipe_id(), "a pusher")
        store.storage.create_pipe("q", entry, Head(new_token()))
        store.storage.append(entry.pipe, Batch(1, (b"stored",), None, 1))
        # Its pusher heard nothing of this one, and sealed before it.
        store.storage.append(entry.pipe, Batch(2, (b"refused",), None, 1))
        assert store.storage.transact(entry.pipe, Transaction(Seal(1))).is_applied
        assert [message.body for message in queue.peek()] == [b"stored"]


def test_what_was_taken_beside_a_dead_message_is_handed_out_though_no_letter_can_be_written(scene):
    class NoLetters(Wrapped):
        def change_dead(self, *_, **__):
            raise StorageUnavailableError("no node answers")

    scene.open(1, 1)
    context = scene.context(NoLetters(scene.storage), lease=timedelta(seconds=60), max_attempts=1)
    fetcher = scene.fetcher(context, "a popper")
    ((held, _),) = fetcher.feed(1)
    assert held.give_back(Ranges(((1, 1),)), Return())
    scene.clock.seconds += 6
    found = fetcher.feed(1, Reach.DRAINED)
    assert [part.bodies for _, taken in found for part in taken.parts] == [(b"body",)]


def test_a_push_in_a_hurry_does_not_wait_for_a_patient_one():
    clock = HandClock()
    buffer = PushBuffer(clock, 1000, 1_000_000)
    patient, hurried = PushFuture(), PushFuture()
    buffer.put_one(b"patient", NO_HEADERS, clock.now() + 30, patient)
    buffer.put_one(b"hurried", NO_HEADERS, clock.now() + 1, hurried)
    clock.seconds += 2
    buffer.expire()
    assert hurried.done()
    assert not patient.done()


def test_queues_that_others_deleted_do_not_make_the_rest_slower():
    with cassq.connect("memory:") as store:
        for number in range(100):
            queue = store.queue(f"job{number}")
            with queue.popper():
                queue.record.change(lambda record: replace(record, state=QueueState.DELETED))
                queue._workers._housekeeping._duties[0].due_at = 0.0
                queue._workers._housekeeping.run_once()
            queue.close()
        assert store._services.polls.spread(16.0, 2.0, "q") == 16.0


def test_a_message_whose_commit_failed_is_counted_once_by_the_command_line():
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        queue.push(b"x")
        with queue.popper() as popper:
            delivery = popper.pop(10)
            delivery.run.ends_at = float("-inf")
            execution = Execution(Arrivals(popper, Wish(), timedelta(seconds=1)), ["true"], queue)
            execution._end(delivery)
            told = execution.summary()
            assert (told["committed"], told["rolled_back"]) == (0, 1)


def test_statistics_see_a_bulk_write_whose_pipes_are_older_than_what_lives():
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        staged = queue.staging.open("writer", 1, "a task")
        for _ in range(5):
            staged.add(b"bulk")
        pipes = staged.close()
        clock = HandClock()
        onlooker = Statistics(replace(queue._context, clock=clock))
        queue.push(b"one")
        onlooker.queue_stats(queue.record.read)
        # Younger than this nothing is staged any more that it would read again
        clock.seconds += 45
        assert onlooker.queue_stats(queue.record.read).waiting == 1
        assert queue.staging.publish("writer", 1, pipes)
        assert onlooker.queue_stats(queue.record.read).waiting == 6
