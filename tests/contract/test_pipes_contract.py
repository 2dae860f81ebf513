"""What the storage port says of pipes, their list, and loading one, asked of every adapter."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from stored import EARLY_MS, advance, batch, created, head_of, letter, run, take, undated
from support.clocks import HandClock

from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.key import NO_SLOT
from cassq.model.pipe import End, Head, Mark, PipeEntry
from cassq.model.shelf import Shelf
from cassq.model.topic import Progress, ProgressKey
from cassq.model.transaction import (
    Advance,
    RunChange,
    Seal,
    Transaction,
)
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage


def surely(read):
    """Read until the database serves: a read beside a busy owner may be turned away."""
    while True:
        try:
            return read()
        except StorageUnavailableError:
            continue


def listed(storage, queue, *, shelf=Shelf.READY):
    return {entry.pipe for entry in storage.list_pipes(queue, shelf=shelf).entries}


def staged(storage, queue):
    """Create a staged pipe with one message, sealed; return its entry."""
    entry = PipeEntry(
        *(new_pipe_id(), "a writer/7/task 0"), priority=3, lane=2, type="refund", shelf=Shelf.STAGED
    )
    storage.create_pipe(queue, entry, Head(new_token()))
    storage.append(entry.pipe, batch(1, b"one"))
    assert storage.transact(entry.pipe, Transaction(Seal(1))).is_applied
    return entry


class TestPipesOfRelays:
    @pytest.fixture
    def named(self, storage):
        """A pipe that the progress of a relay names, and that progress."""
        group, pipe = new_token(), new_pipe_id()
        unnamed, named = Progress(3, 1, "a", 1), Progress(3, 2, "a", 1, pipe)
        assert storage.change_progress(group, None, unnamed)
        assert storage.change_progress(group, unnamed, named)
        return ProgressKey(group, 3), named

    def test_a_pipe_that_is_there_stays_as_it_is(self, storage, queue, named):
        key, progress = named
        entry, head = PipeEntry(progress.pipe, "relay"), Head(new_token())
        storage.create_pipe(queue, entry, head, named_by=key)
        storage.append(entry.pipe, batch(1, b"one"))
        assert storage.transact(entry.pipe, Transaction(Seal(1))).is_applied

        storage.create_pipe(queue, entry, head, named_by=key)

        assert listed(storage, queue) == {entry.pipe}
        assert storage.load_pipe(entry.pipe).head.last == 1

    def test_a_pipe_that_was_left_and_deleted_does_not_come_back(self, storage, queue, named):
        key, progress = named
        entry, head = PipeEntry(progress.pipe, "relay"), Head(new_token())
        storage.create_pipe(queue, entry, head, named_by=key)
        assert storage.change_progress(key.group, progress, replace(progress, epoch=3, pipe=None))
        storage.delete_pipe(queue, entry.pipe)

        storage.create_pipe(queue, entry, head, named_by=key)
        storage.append(entry.pipe, batch(1, b"one"))

        assert listed(storage, queue) == set()
        assert storage.load_pipe(entry.pipe) is None


class TestPipes:
    def test_a_created_pipe_is_listed_with_the_databases_time(self, storage, queue):
        pipe = new_pipe_id()

        made = PipeEntry(pipe, "a pusher", priority=3, lane=2, type="refund")

        storage.create_pipe(queue, made, Head(new_token()))

        listing = storage.list_pipes(queue)
        (entry,) = listing.entries
        assert replace(entry, created_at_ms=0) == made
        assert entry.created_at_ms > EARLY_MS
        assert abs(listing.now_ms - entry.created_at_ms) < 60_000

    def test_a_queue_without_pipes_lists_none_and_still_tells_the_time(self, storage, queue):
        listing = storage.list_pipes(queue)

        assert listing.entries == ()
        assert listing.now_ms > EARLY_MS

    def test_the_pipes_of_another_queue_are_not_listed(self, storage, queue):
        created(storage, f"{queue}-other")

        assert storage.list_pipes(queue).entries == ()

    def test_pipes_are_listed_in_the_time_order_of_their_ids(self, storage, queue):
        # The low bits of a time-UUID come first in its bytes, so only a sort by time gives this order.
        ids = [
            UUID(fields=(low, mid, 0x11F0, 0x8D, 0xE9, 2)) for mid, low in ((1, 9), (2, 1), (2, 2), (3, 0))
        ]
        for pipe in (ids[2], ids[0], ids[3], ids[1]):
            storage.create_pipe(queue, PipeEntry(pipe, "a pusher"), Head(new_token()))

        assert [entry.pipe for entry in storage.list_pipes(queue).entries] == ids
        for pipe in ids:
            storage.delete_pipe(queue, pipe)

    def test_a_listing_since_an_id_includes_it_and_leaves_out_the_older(self, storage, queue):
        ids = [created(storage, queue) for _ in range(4)]
        ids.sort(key=lambda pipe: pipe.time)

        found = [entry.pipe for entry in storage.list_pipes(queue, since=ids[2]).entries]

        assert found == ids[2:]

    def test_a_fresh_pipe_loads_with_its_head_and_nothing_else(self, storage, queue):
        pipe = new_pipe_id()
        head = Head(new_token(), cursor=1, read_from=2, floor=1, skipped=4, dead=5, purged=6, rolled_back=7)

        storage.create_pipe(queue, PipeEntry(pipe, "a pusher"), head)

        state = storage.load_pipe(pipe)
        assert (state.head, state.runs, state.marks) == (head, (), ())
        assert state.now_ms > EARLY_MS

    def test_a_pipe_that_never_was_loads_as_none(self, storage):
        assert storage.load_pipe(new_pipe_id()) is None

    def test_a_deleted_pipe_is_gone_from_everywhere(self, storage, queue, pipe):
        storage.append(pipe, batch(1, b"a"))
        take(storage, pipe, run(1, 1))
        storage.mark(pipe, [Mark(1, 1, End.COMMITTED)])

        storage.delete_pipe(queue, pipe)

        assert storage.load_pipe(pipe) is None
        assert list(storage.read_batches(pipe, BatchQuery())) == []
        assert storage.list_pipes(queue).entries == ()

    def test_deleting_again_or_deleting_what_never_was_does_no_harm(self, storage, queue, pipe):
        other = created(storage, queue)

        for _ in range(2):
            storage.delete_pipe(queue, pipe)
        storage.delete_pipe(queue, new_pipe_id())

        assert [entry.pipe for entry in storage.list_pipes(queue).entries] == [other]

    def test_a_pipe_whose_batches_are_deleted_keeps_its_head_and_marks(self, storage, pipe):
        mark = Mark(1, 2, End.PURGED)
        storage.append(pipe, batch(1, b"one", b"two"))
        storage.transact(pipe, Transaction(Seal(2)))
        storage.mark(pipe, [mark])
        before = storage.load_pipe(pipe)

        storage.delete_batches(pipe)
        storage.delete_batches(pipe)

        after = storage.load_pipe(pipe)
        assert (after.head, after.marks) == (before.head, before.marks)
        assert list(storage.read_batches(pipe, BatchQuery(limit=9))) == []

    def test_a_late_append_leaves_nothing_in_a_deleted_pipe(self, storage, queue, pipe):
        storage.delete_pipe(queue, pipe)

        storage.append(pipe, batch(1, b"late"))

        assert list(storage.read_batches(pipe, BatchQuery(limit=10))) == []

    def test_a_late_mark_leaves_nothing_in_a_deleted_pipe(self, storage, queue, pipe):
        storage.delete_pipe(queue, pipe)

        storage.mark(pipe, [Mark(1, 5, End.COMMITTED)])

        assert storage.load_pipe(pipe) is None

    def test_a_late_transaction_leaves_nothing_in_a_deleted_pipe(self, storage, queue, pipe):
        seen = head_of(storage, pipe)
        storage.delete_pipe(queue, pipe)

        answer = storage.transact(
            pipe,
            Transaction(Advance(seen.op, replace(seen, op=new_token(), cursor=1)), (RunChange(run(1, 1)),)),
        )

        assert not answer.is_applied
        assert storage.load_pipe(pipe) is None


class TestStagedPipes:
    def test_a_staged_pipe_is_listed_among_the_staged_only(self, storage, queue):
        entry = staged(storage, queue)
        assert listed(storage, queue) == set()
        found = storage.list_pipes(queue, shelf=Shelf.STAGED)
        assert [replace(each, created_at_ms=0) for each in found.entries] == [entry]
        assert EARLY_MS < found.entries[0].created_at_ms <= found.now_ms

    def test_publishing_moves_it_with_what_it_holds(self, storage, queue):
        entry, other = staged(storage, queue), staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        assert [replace(each, created_at_ms=0) for each in storage.list_pipes(queue).entries] == [entry]
        assert listed(storage, queue, shelf=Shelf.STAGED) == {other.pipe}
        assert [found.bodies for found in storage.read_batches(entry.pipe, BatchQuery())] == [(b"one",)]

    def test_publishing_again_changes_nothing(self, storage, queue):
        entry = staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        storage.publish_pipes(queue, [entry])
        assert listed(storage, queue) == {entry.pipe}
        assert listed(storage, queue, shelf=Shelf.STAGED) == set()

    def test_many_are_published_in_one_call(self, storage, queue):
        entries = [staged(storage, queue) for _ in range(103)]
        storage.publish_pipes(queue, entries)
        assert listed(storage, queue) == {entry.pipe for entry in entries}
        assert listed(storage, queue, shelf=Shelf.STAGED) == set()

    def test_publishing_what_was_deleted_brings_nothing_back(self, storage, queue):
        entry = staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        storage.delete_pipe(queue, entry.pipe)
        storage.publish_pipes(queue, [entry])
        assert storage.load_pipe(entry.pipe) is None
        assert not storage.read_batches(entry.pipe, BatchQuery())

    def test_a_staged_pipe_is_deleted_from_among_the_staged(self, storage, queue):
        entry, other = staged(storage, queue), staged(storage, queue)
        storage.delete_pipe(queue, entry.pipe, shelf=Shelf.STAGED)
        assert storage.load_pipe(entry.pipe) is None
        assert listed(storage, queue, shelf=Shelf.STAGED) == {other.pipe}


class TestLists:
    @pytest.mark.parametrize("shelf", list(Shelf))
    def test_a_pipe_is_listed_where_it_was_created_and_nowhere_else(self, storage, queue, shelf):
        moved_from = new_pipe_id()
        slot = 0 if shelf is Shelf.KEYED else NO_SLOT
        entry = PipeEntry(
            new_pipe_id(), "a pusher", due_class=3, moved_from=moved_from, slot=slot, shelf=shelf
        )
        storage.create_pipe(queue, entry, Head(new_token()))
        assert [each for each in Shelf if listed(storage, queue, shelf=each)] == [shelf]
        (found,) = storage.list_pipes(queue, shelf=shelf).entries
        assert (replace(found, created_at_ms=0), found.shelf) == (entry, shelf)
        storage.delete_pipe(queue, entry.pipe, shelf)
        assert not any(listed(storage, queue, shelf=each) for each in Shelf)
        assert storage.load_pipe(entry.pipe) is None

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (Shelf.SCHEDULED, Shelf.DUE),
            (Shelf.SCHEDULED, Shelf.MOVED),
            (Shelf.SORTED, Shelf.SCHEDULED),
            (Shelf.SORTED, Shelf.DUE),
            (Shelf.MOVED, Shelf.DUE),
            (Shelf.DUE, Shelf.MOVED),
            (Shelf.READY, Shelf.MOVED),
        ],
    )
    def test_a_pipe_moves_from_one_list_to_another_as_it_is(self, storage, queue, before, after):
        entry = PipeEntry(new_pipe_id(), "a pusher", type="a", due_class=2, shelf=before)
        storage.create_pipe(queue, entry, Head(new_token()))
        storage.append(entry.pipe, batch(1, b"one"))
        for _ in range(2):
            storage.publish_pipes(queue, [entry], after)
            assert [each for each in Shelf if listed(storage, queue, shelf=each)] == [after]
        (found,) = storage.list_pipes(queue, shelf=after).entries
        assert replace(found, created_at_ms=0) == entry
        assert len(storage.read_batches(entry.pipe, BatchQuery())) == 1

    @pytest.mark.parametrize("shelf", [Shelf.READY, Shelf.SCHEDULED, Shelf.SORTED])
    def test_a_part_of_a_list_is_read_by_the_times_of_ids(self, storage, queue, shelf):
        now_ms = storage.list_pipes(queue).now_ms
        pipes = [new_pipe_id(now_ms + 1000 * second) for second in range(5)]
        for pipe in pipes:
            storage.create_pipe(queue, PipeEntry(pipe, "a pusher", shelf=shelf), Head(new_token()))

        def read(**bounds):
            return [entry.pipe for entry in storage.list_pipes(queue, shelf=shelf, **bounds).entries]

        assert read() == pipes
        assert read(since=pipes[1]) == pipes[1:]
        assert read(until=pipes[2]) == pipes[:3]
        assert read(since=pipes[1], until=pipes[3]) == pipes[1:4]
        assert read(since=pipes[2], until=pipes[2]) == pipes[2:3]
        assert read(until=new_pipe_id(now_ms - 1000)) == []


class TestWholeState:
    def test_it_shows_runs_and_marks_below_the_floor_too(self, storage, queue, pipe):
        storage.append(pipe, batch(1, b"a", b"b", b"c"))
        take(storage, pipe, run(1, 2))
        storage.mark(pipe, [Mark(1, 2, End.COMMITTED)])
        advance(storage, pipe, floor=2, cursor=3, runs=[RunChange(run(3, 3))])
        assert [each.first for each in storage.load_pipe(pipe).runs] == [3]
        state = storage.load_pipe(pipe, is_whole=True)
        assert [(each.first, each.last) for each in state.runs] == [(1, 2), (3, 3)]
        assert state.marks == (Mark(1, 2, End.COMMITTED),)
        assert state.head == head_of(storage, pipe)

    def test_a_pipe_that_is_gone_loads_as_none(self, storage, queue, pipe):
        storage.delete_pipe(queue, pipe)
        assert storage.load_pipe(pipe, is_whole=True) is None


class TestLoad:
    @pytest.mark.parametrize("size", [10, 400])
    def test_only_what_begins_above_the_floor_is_loaded(self, storage, pipe, size):
        take(storage, pipe, run(1, 9))
        for first in range(1, 41):
            take(storage, pipe, run(first * 10, first * 10 + 9))
        storage.mark(pipe, [Mark(first, first, End.COMMITTED) for first in range(1, size + 1)])
        floor = size // 2

        left = advance(storage, pipe, floor=floor)

        state = storage.load_pipe(pipe)
        assert state.head == left
        assert [mark.first for mark in state.marks] == list(range(floor + 1, size + 1))
        assert [found.first for found in state.runs] == [
            first * 10 for first in range(1, 41) if first * 10 > floor
        ]

    def test_the_clock_was_read_before_the_runs_were(self, storage, pipe):
        before = storage.load_pipe(pipe).now_ms
        advance(storage, pipe, cursor=1, runs=[RunChange(run(1, 1), is_leased_now=True)])

        state = storage.load_pipe(pipe)
        after = storage.list_pipes("no such queue").now_ms

        assert before <= state.runs[0].leased_at_ms <= state.now_ms <= after

    def test_a_reader_beside_a_busy_owner_sees_states_that_belong_together(self, storage, pipe):
        # Many rows, so that Cassandra reads the state in parts.
        take(storage, pipe, run(1, 249))
        storage.mark(pipe, [Mark(first, first, End.COMMITTED) for first in range(1, 250)])
        seen = head_of(storage, pipe)
        is_done = threading.Event()

        def take_surely(head, seq):
            # A SERIAL read may come between the phases of a transaction, and then its outcome is unknown.
            while True:
                wanted = replace(head, op=new_token(), cursor=seq)
                change = Transaction(Advance(head.op, wanted), (RunChange(run(seq, seq)),))
                try:
                    assert storage.transact(pipe, change).is_applied
                except OutcomeUnknownError:
                    left = surely(lambda: head_of(storage, pipe))
                    if left == head:
                        continue
                    assert left == wanted
                return wanted

        def own():
            head = seen
            for seq in range(250, 280):
                head = take_surely(head, seq)
            is_done.set()

        with ThreadPoolExecutor(1) as pool:
            owner = pool.submit(own)
            while not is_done.is_set() and not owner.done():
                state = surely(lambda: storage.load_pipe(pipe))
                assert max((found.last for found in state.runs), default=0) == state.head.cursor
            owner.result()


def test_a_file_remembers_a_removed_letter_for_as_long_as_its_pipe_is_there(tmp_path):
    clock = HandClock()
    with closing(SqliteStorage(str(tmp_path / "store.db"), clock=clock)) as storage:
        standing, gone = new_pipe_id(), new_pipe_id()
        for pipe in (standing, gone):
            storage.create_pipe("q", PipeEntry(pipe, "pusher"), Head(op=new_token()))
            storage.change_dead("q", added=[letter(pipe, 1)])
            storage.change_dead("q", removed=[MessageId(pipe, 1)])
        clock.seconds += timedelta(days=2).total_seconds()

        storage.delete_pipe("q", gone)

        storage.change_dead("q", added=[letter(standing, 1), letter(gone, 1)])
        assert undated(storage.read_dead("q")) == [letter(gone, 1)]
