"""Every sentence of `cassq.storage.port`, for every adapter."""

import os
import secrets
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

import pytest
from spoilt import make_rollup

from cassq.errors import ClosedError, DecodeError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import SEQ_MAX
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.message import Batch, to_datetime
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry, Run, RunState, Tally
from cassq.model.queue_record import QueueRecord, QueueState, Sample, Written
from cassq.model.rollup import NAMES
from cassq.model.settings import QueueSettings
from cassq.model.transaction import (
    Advance,
    Cancel,
    Drain,
    ForceSeal,
    Retire,
    RunChange,
    Seal,
    Transaction,
)
from cassq.storage.port import BatchQuery, DeadLetter
from cassq.storage.sqlite import SqliteStorage

EARLY_MS = 1_600_000_000_000


def batch(first, *bodies, headers=None):
    return Batch(first, bodies, headers, len(bodies))


def unstamped(batches):
    return [replace(found, pushed_at_ms=None) for found in batches]


def run(first, last, **changes):
    values = {
        "read_from": first,
        "state": RunState.LEASED,
        "attempt": 1,
        "lease_id": new_token(),
        "leased_at_ms": EARLY_MS,
        "lease_ms": 30_000,
        "not_before_ms": 0,
        "holder": "a popper",
        "rolled_back": 0,
    }
    return Run(first, last, **(values | changes))


def record(name, **changes):
    return replace(QueueRecord(name, new_token(), QueueSettings(), new_token()), **changes)


def letter(pipe, seq, **changes):
    values = {"body": b"a body", "headers": {"type": "new"}, "pushed_at_ms": EARLY_MS, "attempts": 5}
    return DeadLetter(MessageId(pipe, seq), **(values | {"reason": "it failed"} | changes))


def undated(letters):
    return [replace(found, died_at_ms=0) for found in letters]


@pytest.fixture
def pipe(storage, queue):
    """A fresh pipe of `queue`."""
    return created(storage, queue)


def created(storage, queue, **head):
    pipe = new_pipe_id()
    storage.create_pipe(queue, PipeEntry(pipe, "a pusher"), Head(new_token(), **head))
    return pipe


def head_of(storage, pipe):
    return storage.load_pipe(pipe).head


def advance(storage, pipe, *, runs=(), marks=(), **head):
    """Apply an owner's change that does hold, and return the head that it leaves."""
    seen = head_of(storage, pipe)
    wanted = replace(seen, op=new_token(), **head)
    answer = storage.transact(pipe, Transaction(Advance(seen.op, wanted), tuple(runs), tuple(marks)))
    assert answer.is_applied
    return wanted


def take(storage, pipe, taken):
    """Hand a run out."""
    return advance(storage, pipe, cursor=taken.last, runs=[RunChange(taken)])


def race(change, wanted):
    """Make all changes at the same moment; return those applied, and those of unknown outcome."""
    start = threading.Barrier(len(wanted))

    def run_one(mine):
        start.wait()
        try:
            return change(mine)
        except OutcomeUnknownError:
            return None  # replicas that are contended for may not say; what is stored tells

    with ThreadPoolExecutor(len(wanted)) as pool:
        answers = list(zip(pool.map(run_one, wanted), wanted, strict=True))
    return [mine for said, mine in answers if said], [mine for said, mine in answers if said is None]


def surely(read):
    """Read until the database serves: a read beside a busy owner may be turned away."""
    while True:
        try:
            return read()
        except StorageUnavailableError:
            continue


def check_one_winner(applied, unknown, left, seen):
    """Check that at most one was told that it won, and that what is left is what the winner wrote."""
    assert len(applied) <= 1
    assert left in (applied or [*unknown, seen])
    assert applied or unknown


class TestQueues:
    def test_a_record_reads_back_as_it_was_written(self, storage, queue):
        wanted = record(
            queue,
            settings=QueueSettings(lease=timedelta(milliseconds=1500), pop_width=3),
            state=QueueState.PAUSED,
            totals=Tally(6, 5, 4, 3, 2, 1),
            counted=frozenset(new_pipe_id() for _ in range(3)),
            samples=(Sample(EARLY_MS, 1, 2, 3), Sample(EARLY_MS + 1, 4, 5, 6)),
            writers={"loader": Written(7, new_pipe_id()), "other": Written(0)},
        )

        assert storage.change_queue(None, wanted)

        assert list(storage.read_queues(queue)) == [wanted]
        assert storage.glance_queue(queue) == wanted

    def test_a_queue_that_was_never_made_reads_as_nothing(self, storage, queue):
        assert list(storage.read_queues(queue)) == []
        assert storage.glance_queue(queue) is None

    def test_all_queues_read_in_the_order_of_their_names(self, storage, queue):
        names = [f"{queue}-{place}" for place in (2, 0, 1)]
        for name in names:
            storage.change_queue(None, record(name))

        found = [read.name for read in storage.read_queues() if read.name in names]

        assert found == sorted(names)

    def test_a_second_creation_is_refused_and_changes_nothing(self, storage, queue):
        first = record(queue)
        storage.change_queue(None, first)

        assert not storage.change_queue(None, record(queue))

        assert list(storage.read_queues(queue)) == [first]

    def test_a_change_needs_the_op_that_was_seen(self, storage, queue):
        first = record(queue)
        second = replace(first, op=new_token(), totals=Tally(pushed=1))
        storage.change_queue(None, first)

        assert storage.change_queue(first, second)
        assert not storage.change_queue(first, replace(first, op=new_token(), totals=Tally(pushed=9)))

        assert list(storage.read_queues(queue)) == [second]
        assert storage.glance_queue(queue) == second

    def test_a_change_of_a_queue_that_is_not_there_is_refused(self, storage, queue):
        assert not storage.change_queue(record(queue), record(queue))
        assert list(storage.read_queues(queue)) == []

    def test_a_deleted_queue_stays_as_a_row_and_a_new_one_replaces_it(self, storage, queue):
        first = record(queue, totals=Tally(pushed=7))
        deleted = replace(first, op=new_token(), state=QueueState.DELETED)
        storage.change_queue(None, first)
        storage.change_queue(first, deleted)
        assert list(storage.read_queues(queue)) == [deleted]
        assert storage.glance_queue(queue) == deleted

        anew = record(queue)
        assert storage.change_queue(None, anew)

        assert list(storage.read_queues(queue)) == [anew]

    def test_of_eight_racing_changes_exactly_one_applies(self, storage, queue):
        seen = record(queue)
        storage.change_queue(None, seen)
        wanted = [replace(seen, op=new_token()) for _ in range(8)]

        applied, unknown = race(lambda mine: storage.change_queue(seen, mine), wanted)

        (left,) = storage.read_queues(queue)
        check_one_winner(applied, unknown, left, seen)

    def test_of_eight_racing_creations_exactly_one_applies(self, storage, queue):
        wanted = [record(queue) for _ in range(8)]

        applied, unknown = race(lambda mine: storage.change_queue(None, mine), wanted)

        left = next(iter(storage.read_queues(queue)), None)
        check_one_winner(applied, unknown, left, None)


class TestPipes:
    def test_a_created_pipe_is_listed_with_the_databases_time(self, storage, queue):
        pipe = new_pipe_id()

        storage.create_pipe(queue, PipeEntry(pipe, "a pusher", priority=3, lane=2), Head(new_token()))

        listing = storage.list_pipes(queue)
        (entry,) = listing.entries
        assert replace(entry, created_at_ms=0) == PipeEntry(pipe, "a pusher", priority=3, lane=2)
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


def listed(storage, queue, *, is_staged=False):
    return {entry.pipe for entry in storage.list_pipes(queue, is_staged=is_staged).entries}


def staged(storage, queue):
    """Create a staged pipe with one message, sealed; return its entry."""
    entry = PipeEntry(new_pipe_id(), "a writer/7/task 0", lane=2)
    storage.create_pipe(queue, entry, Head(new_token()), is_staged=True)
    storage.append(entry.pipe, batch(1, b"one"))
    assert storage.transact(entry.pipe, Transaction(Seal(1))).is_applied
    return entry


class TestStagedPipes:
    def test_a_staged_pipe_is_listed_among_the_staged_only(self, storage, queue):
        entry = staged(storage, queue)
        assert listed(storage, queue) == set()
        found = storage.list_pipes(queue, is_staged=True)
        assert [replace(each, created_at_ms=0) for each in found.entries] == [entry]
        assert EARLY_MS < found.entries[0].created_at_ms <= found.now_ms

    def test_publishing_moves_it_with_what_it_holds(self, storage, queue):
        entry, other = staged(storage, queue), staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        assert [replace(each, created_at_ms=0) for each in storage.list_pipes(queue).entries] == [entry]
        assert listed(storage, queue, is_staged=True) == {other.pipe}
        assert [found.bodies for found in storage.read_batches(entry.pipe, BatchQuery())] == [(b"one",)]

    def test_publishing_again_changes_nothing(self, storage, queue):
        entry = staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        storage.publish_pipes(queue, [entry])
        assert listed(storage, queue) == {entry.pipe}
        assert listed(storage, queue, is_staged=True) == set()

    def test_many_are_published_in_one_call(self, storage, queue):
        entries = [staged(storage, queue) for _ in range(103)]
        storage.publish_pipes(queue, entries)
        assert listed(storage, queue) == {entry.pipe for entry in entries}
        assert listed(storage, queue, is_staged=True) == set()

    def test_publishing_what_was_deleted_brings_nothing_back(self, storage, queue):
        entry = staged(storage, queue)
        storage.publish_pipes(queue, [entry])
        storage.delete_pipe(queue, entry.pipe)
        storage.publish_pipes(queue, [entry])
        assert storage.load_pipe(entry.pipe) is None
        assert not storage.read_batches(entry.pipe, BatchQuery())

    def test_a_staged_pipe_is_deleted_from_among_the_staged(self, storage, queue):
        entry, other = staged(storage, queue), staged(storage, queue)
        storage.delete_pipe(queue, entry.pipe, is_staged=True)
        assert storage.load_pipe(entry.pipe) is None
        assert listed(storage, queue, is_staged=True) == {other.pipe}


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


class TestBatches:
    def test_a_batch_reads_back_with_the_databases_time(self, storage, pipe):
        pushed = batch(1, b"", b"\x00\xff", b"c" * 70_000, headers=({}, {"a": "b", "é": "ü"}, {}))

        storage.append(pipe, pushed)

        (found,) = storage.read_batches(pipe, BatchQuery())
        assert replace(found, pushed_at_ms=None) == pushed
        assert abs(found.pushed_at_ms - storage.load_pipe(pipe).now_ms) < 60_000

    def test_a_batch_without_headers_reads_back_without(self, storage, pipe):
        storage.append(pipe, batch(1, b"a"))

        (found,) = storage.read_batches(pipe, BatchQuery())

        assert found.headers is None

    def test_appending_the_same_batch_again_changes_nothing(self, storage, pipe):
        for _ in range(3):
            storage.append(pipe, batch(1, b"a", b"b"))

        found = storage.read_batches(pipe, BatchQuery(limit=10))

        assert unstamped(found) == [batch(1, b"a", b"b")]

    def test_a_gap_is_shown_as_a_gap(self, storage, pipe):
        storage.append(pipe, batch(1, b"a", b"b"))
        storage.append(pipe, batch(7, b"g"))

        found = storage.read_batches(pipe, BatchQuery(limit=10))

        assert [(read.first, read.last) for read in found] == [(1, 2), (7, 7)]

    def test_a_read_begins_and_ends_where_the_query_says(self, storage, pipe):
        for first in range(1, 10, 2):
            storage.append(pipe, batch(first, b"x", b"y"))

        within = storage.read_batches(pipe, BatchQuery(first=3, last=7, limit=10))
        limited = storage.read_batches(pipe, BatchQuery(first=2, limit=2))

        assert [read.first for read in within] == [3, 5, 7]
        assert [read.first for read in limited] == [3, 5]

    def test_newest_first_keeps_the_newest(self, storage, pipe):
        for first in range(1, 6):
            storage.append(pipe, batch(first, b"x"))

        found = storage.read_batches(pipe, BatchQuery(last=4, limit=2, is_newest_first=True))

        assert [read.first for read in found] == [4, 3]

    @pytest.mark.parametrize("is_newest_first", [False, True])
    def test_an_outline_counts_the_messages_and_leaves_them_out(self, storage, pipe, is_newest_first):
        storage.append(pipe, batch(1, b"a", b"b", b"c", headers=({}, {"a": "b"}, {})))

        (found,) = storage.read_batches(pipe, BatchQuery(is_outline=True, is_newest_first=is_newest_first))

        assert (found.first, found.last, found.count) == (1, 3, 3)
        assert found.bodies == ()
        assert found.headers is None
        assert found.pushed_at_ms > EARLY_MS

    def test_more_batches_than_one_page_come_all_and_in_order(self, storage, pipe):
        for first in range(1, 151):
            storage.append(pipe, batch(first, b"x"))

        found = storage.read_batches(pipe, BatchQuery(limit=1000))

        assert [read.first for read in found] == list(range(1, 151))

    def test_a_full_batch_of_a_thousand_bodies_goes_through(self, storage, pipe):
        pushed = batch(1, *(secrets.token_bytes(256) for _ in range(1000)))

        storage.append(pipe, pushed)

        assert unstamped(storage.read_batches(pipe, BatchQuery())) == [pushed]

    def test_what_one_thread_appended_another_reads(self, storage, pipe):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda first: storage.append(pipe, batch(first, b"x")), range(1, 41)))

        found = storage.read_batches(pipe, BatchQuery(limit=100, is_outline=True))

        assert [read.first for read in found] == list(range(1, 41))


class TestAdvance:
    def test_it_moves_the_head_and_inserts_the_run(self, storage, pipe):
        taken = run(1, 10, not_before_ms=EARLY_MS + 7, rolled_back=2, read_from=1)

        left = advance(
            storage,
            pipe,
            runs=[RunChange(taken)],
            cursor=10,
            read_from=11,
            skipped=1,
            dead=2,
            purged=3,
            rolled_back=4,
        )

        state = storage.load_pipe(pipe)
        assert state.head == left
        assert state.runs == (taken,)

    def test_it_writes_the_databases_time_where_the_lease_begins_now(self, storage, pipe):
        taken = run(1, 10, leased_at_ms=0)

        advance(storage, pipe, cursor=10, runs=[RunChange(taken, is_leased_now=True)])

        state = storage.load_pipe(pipe)
        (found,) = state.runs
        assert replace(found, leased_at_ms=0) == taken
        assert abs(state.now_ms - found.leased_at_ms) < 60_000

    def test_it_is_refused_when_the_op_is_not_the_one_seen(self, storage, pipe):
        seen = head_of(storage, pipe)
        moved = Advance(new_token(), replace(seen, op=new_token(), cursor=5))

        answer = storage.transact(pipe, Transaction(moved, (RunChange(run(1, 5)),)))

        assert not answer.is_applied
        assert (answer.cursor, answer.last) == (None, None)
        state = storage.load_pipe(pipe)
        assert (state.head, state.runs) == (seen, ())

    def test_it_is_refused_when_the_pipe_ends_before_the_new_cursor(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Seal(4)))

        answer = storage.transact(
            pipe, Transaction(Advance(seen.op, replace(seen, op=new_token(), cursor=5)))
        )

        assert not answer.is_applied
        assert head_of(storage, pipe).cursor == 0

    def test_it_leaves_the_phase_and_the_end_alone(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Seal(5)))
        blind = Advance(seen.op, replace(seen, op=new_token(), cursor=5))

        assert storage.transact(pipe, Transaction(blind, (RunChange(run(1, 5)),))).is_applied

        head = head_of(storage, pipe)
        assert (head.phase, head.last, head.cursor) == (Phase.SEALED, 5, 5)


class TestSeal:
    def test_it_sets_the_end_and_the_phase_and_moves_no_op(self, storage, pipe):
        seen = head_of(storage, pipe)

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

        assert head_of(storage, pipe) == replace(seen, last=7, phase=Phase.SEALED)

    def test_it_holds_when_the_cursor_is_just_there(self, storage, pipe):
        take(storage, pipe, run(1, 7))

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

    def test_a_refusal_behind_the_cursor_tells_cursor_and_end(self, storage, pipe):
        take(storage, pipe, run(1, 8))

        answer = storage.transact(pipe, Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, 8, SEQ_MAX)
        assert head_of(storage, pipe).phase is Phase.OPEN

    def test_a_refusal_after_the_end_is_decided_tells_cursor_and_end(self, storage, pipe):
        storage.transact(pipe, Transaction(Seal(5)))

        answer = storage.transact(pipe, Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, 0, 5)

    def test_a_refusal_by_a_pipe_that_is_gone_tells_neither(self, storage):
        answer = storage.transact(new_pipe_id(), Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, None, None)

    def test_it_settles_the_end_of_a_pipe_sealed_by_force(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

        assert head_of(storage, pipe).last == 7


class TestWindow:
    def test_it_stands_as_a_run_while_the_cursor_is_undecided(self, storage, pipe):
        window = run(1, 10_000, window_ms=1000)
        advance(storage, pipe, cursor=SEQ_MAX, runs=[RunChange(window)])

        state = storage.load_pipe(pipe)

        assert state.head.is_window_out
        assert state.window == window

    def test_it_is_refused_once_the_end_is_decided(self, storage, pipe):
        assert storage.transact(pipe, Transaction(Seal(0))).is_applied
        seen = head_of(storage, pipe)
        begun = Advance(seen.op, replace(seen, op=new_token(), cursor=SEQ_MAX))
        change = RunChange(run(1, 10_000, window_ms=1000))

        assert not storage.transact(pipe, Transaction(begun, (change,))).is_applied
        assert storage.load_pipe(pipe).runs == ()

    def test_it_refuses_a_seal_but_not_a_free_one(self, storage, pipe):
        advance(storage, pipe, cursor=SEQ_MAX, runs=[RunChange(run(1, 10_000, window_ms=1000))])

        answer = storage.transact(pipe, Transaction(Seal(3)))
        assert (answer.is_applied, answer.cursor, answer.last) == (False, SEQ_MAX, SEQ_MAX)

        assert storage.transact(pipe, Transaction(Seal(3, is_free=True))).is_applied
        head = head_of(storage, pipe)
        assert (head.is_window_out, head.last, head.phase) == (True, 3, Phase.SEALED)

    def test_a_cut_ends_it_and_the_next_run_takes_the_place_of_an_empty_one(self, storage, pipe):
        window = run(1, 10_000, window_ms=1000)
        advance(storage, pipe, cursor=SEQ_MAX, runs=[RunChange(window)])
        empty = replace(window, last=0, window_ms=0)
        advance(storage, pipe, cursor=0, runs=[RunChange(empty, window.lease_id)])
        assert storage.load_pipe(pipe).runs == ()

        taken = run(1, 4)
        take(storage, pipe, taken)

        assert storage.load_pipe(pipe).runs == (taken,)


class TestForceSealDrainRetire:
    def test_force_seal_sets_op_and_phase_and_leaves_the_end_open(self, storage, pipe):
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(ForceSeal(seen.op, op))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, phase=Phase.SEALED)

    def test_drain_sets_op_and_end(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(Drain(seen.op, op, 3))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, last=3)

    def test_drain_is_refused_once_the_pusher_decided_the_end(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))
        storage.transact(pipe, Transaction(Seal(9)))
        seen = head_of(storage, pipe)

        assert not storage.transact(pipe, Transaction(Drain(seen.op, new_token(), 3))).is_applied

        assert head_of(storage, pipe) == seen

    def test_retire_sets_op_and_phase(self, storage, pipe):
        storage.transact(pipe, Transaction(Seal(0)))
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(Retire(seen.op, op))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, phase=Phase.RETIRED)

    @pytest.mark.parametrize("kind", [ForceSeal, lambda seen, op: Drain(seen, op, 3), Retire])
    def test_each_is_refused_when_the_op_is_not_the_one_seen(self, storage, pipe, kind):
        seen = head_of(storage, pipe)

        assert not storage.transact(pipe, Transaction(kind(new_token(), new_token()))).is_applied

        assert head_of(storage, pipe) == seen


class TestCancel:
    def test_it_moves_the_fence_and_marks_the_message(self, storage, pipe):
        op = new_token()
        mark = Mark(3, 3, End.PURGED)

        assert storage.transact(pipe, Transaction(Cancel(op, 3), marks=(mark,))).is_applied

        state = storage.load_pipe(pipe)
        assert state.head.op == op
        assert state.marks == (mark,)

    def test_it_comes_too_late_once_the_message_was_handed_out(self, storage, pipe):
        seen = take(storage, pipe, run(1, 3))

        answer = storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        assert not answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head, state.marks) == (seen, ())

    def test_a_take_that_did_not_see_it_is_refused(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        answer = storage.transact(
            pipe, Transaction(Advance(seen.op, replace(seen, op=new_token(), cursor=3)))
        )

        assert not answer.is_applied


HEAD_CHANGES = {
    "advance": lambda: Advance(new_token(), Head(new_token())),
    "seal": lambda: Seal(5),
    "force seal": lambda: ForceSeal(new_token(), new_token()),
    "drain": lambda: Drain(new_token(), new_token(), 5),
    "retire": lambda: Retire(new_token(), new_token()),
    "cancel": lambda: Cancel(new_token(), 5),
}


class TestTransactions:
    @pytest.mark.parametrize("kind", HEAD_CHANGES)
    def test_a_pipe_that_never_was_refuses_each_and_stays_gone(self, storage, kind):
        pipe = new_pipe_id()
        change = Transaction(HEAD_CHANGES[kind](), (RunChange(run(1, 1)),), (Mark(2, 2, End.DEAD),))

        assert not storage.transact(pipe, change).is_applied

        assert storage.load_pipe(pipe) is None

    @pytest.mark.parametrize("kind", HEAD_CHANGES)
    def test_a_deleted_pipe_refuses_each_and_stays_gone(self, storage, queue, pipe, kind):
        storage.delete_pipe(queue, pipe)

        assert not storage.transact(pipe, Transaction(HEAD_CHANGES[kind]())).is_applied

        assert storage.load_pipe(pipe) is None

    def test_a_run_changes_under_its_lease(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        returned = replace(taken, state=RunState.RETURNED, attempt=1, not_before_ms=EARLY_MS, rolled_back=1)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(returned, taken.lease_id),)))

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (returned,)

    def test_a_run_under_another_lease_is_refused(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(run(1, 10), new_token()),)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, None, None)
        assert storage.load_pipe(pipe).runs == (taken,)

    def test_a_run_whose_lease_was_extended_meanwhile_is_refused(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        again = RunChange(run(1, 10, attempt=2), taken.lease_id, taken.leased_at_ms)
        extended = RunChange(taken, taken.lease_id, taken.leased_at_ms, is_leased_now=True)

        assert storage.transact(pipe, Transaction(runs=(extended,))).is_applied
        assert not storage.transact(pipe, Transaction(runs=(again,))).is_applied

        state = storage.load_pipe(pipe)
        assert abs(state.now_ms - state.runs[0].leased_at_ms) < 60_000
        assert state.runs[0].attempt == 1

    def test_a_lease_that_the_database_dated_can_be_a_condition(self, storage, pipe):
        taken = run(1, 10)
        advance(storage, pipe, cursor=10, runs=[RunChange(taken, is_leased_now=True)])
        (seen,) = storage.load_pipe(pipe).runs
        again = replace(seen, attempt=2, lease_id=new_token())

        answer = storage.transact(
            pipe, Transaction(runs=(RunChange(again, seen.lease_id, seen.leased_at_ms),))
        )

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (again,)

    def test_a_run_that_is_not_there_has_no_lease_to_change(self, storage, pipe):
        answer = storage.transact(pipe, Transaction(runs=(RunChange(run(1, 1), new_token()),)))

        assert not answer.is_applied
        assert storage.load_pipe(pipe).runs == ()

    def test_a_rollback_splits_a_run_in_one_step(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        kept = replace(taken, last=4)
        rest = run(5, 10, read_from=1, state=RunState.RETURNED, rolled_back=1)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(kept, taken.lease_id), RunChange(rest))))

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (kept, rest)

    def test_all_of_it_happens_when_every_condition_holds(self, storage, pipe):
        old = run(1, 10)
        seen = take(storage, pipe, old)
        again = replace(old, attempt=2, lease_id=new_token())
        fresh = run(11, 20)
        mark = Mark(21, 22, End.PURGED)

        answer = storage.transact(
            pipe,
            Transaction(
                Advance(seen.op, replace(seen, op=new_token(), cursor=22)),
                (RunChange(again, old.lease_id, old.leased_at_ms), RunChange(fresh)),
                (mark,),
            ),
        )

        assert answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head.cursor, state.runs, state.marks) == (22, (again, fresh), (mark,))

    @pytest.mark.parametrize("wrong", ["op", "lease", "beginning"])
    def test_none_of_it_happens_when_one_condition_fails(self, storage, pipe, wrong):
        old = run(1, 10)
        seen = take(storage, pipe, old)
        op = new_token() if wrong == "op" else seen.op
        lease_id = new_token() if wrong == "lease" else old.lease_id
        leased_at_ms = old.leased_at_ms + (wrong == "beginning")

        answer = storage.transact(
            pipe,
            Transaction(
                Advance(op, replace(seen, op=new_token(), cursor=20)),
                (RunChange(replace(old, attempt=2), lease_id, leased_at_ms), RunChange(run(11, 20))),
                (Mark(21, 22, End.PURGED),),
            ),
        )

        assert not answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head, state.runs, state.marks) == (seen, (old,), ())

    def test_of_eight_racing_owners_exactly_one_is_applied(self, storage, pipe):
        seen = head_of(storage, pipe)
        wanted = [replace(seen, op=new_token(), cursor=place + 1) for place in range(8)]

        def take_up_to(head):
            change = Transaction(Advance(seen.op, head), (RunChange(run(1, head.cursor)),))
            return storage.transact(pipe, change).is_applied

        applied, unknown = race(take_up_to, wanted)

        check_one_winner(applied, unknown, head_of(storage, pipe), seen)


class TestMarks:
    def test_marks_are_seen_by_the_next_load_in_their_order(self, storage, pipe):
        marks = [Mark(5, 9, End.DEAD), Mark(1, 2, End.COMMITTED), Mark(12, 12, End.PURGED)]
        take(storage, pipe, run(1, 12))

        storage.mark(pipe, marks)

        assert storage.load_pipe(pipe).marks == tuple(sorted(marks, key=lambda mark: mark.first))

    def test_marking_again_changes_nothing(self, storage, pipe):
        take(storage, pipe, run(1, 2))

        for _ in range(2):
            storage.mark(pipe, [Mark(1, 2, End.COMMITTED)])

        assert storage.load_pipe(pipe).marks == (Mark(1, 2, End.COMMITTED),)

    @pytest.mark.parametrize(
        ("longer", "shorter"), [(End.COMMITTED, End.PURGED), (End.PURGED, End.COMMITTED)]
    )
    @pytest.mark.parametrize("order", [1, -1])
    def test_of_two_with_the_same_beginning_the_longer_stands(self, storage, pipe, longer, shorter, order):
        apart = [Mark(1, 9, longer), Mark(1, 5, shorter)][::order]
        together = [Mark(10, 19, longer), Mark(10, 15, shorter)][::order]
        take(storage, pipe, run(1, 19))

        for mark in apart:
            storage.mark(pipe, [mark])
        storage.mark(pipe, together)

        assert storage.load_pipe(pipe).marks == (Mark(1, 9, longer), Mark(10, 19, longer))

    @pytest.mark.parametrize("is_set_first", [False, True])
    def test_a_longer_mark_stands_against_one_set_by_a_transaction(self, storage, pipe, is_set_first):
        take(storage, pipe, run(1, 7))

        def plain():
            storage.mark(pipe, [Mark(3, 7, End.COMMITTED)])

        def purge():
            advance(storage, pipe, marks=[Mark(3, 3, End.PURGED)])

        for step in (purge, plain) if is_set_first else (plain, purge):
            step()

        assert storage.load_pipe(pipe).marks == (Mark(3, 7, End.COMMITTED),)

    def test_no_marks_are_nothing_to_do(self, storage, pipe):
        storage.mark(pipe, [])

        assert storage.load_pipe(pipe).marks == ()

    def test_thousands_of_marks_in_one_call_are_all_seen(self, storage, pipe):
        marks = [Mark(first, first, End.COMMITTED) for first in range(1, 5000, 2)]
        take(storage, pipe, run(1, 5000))

        storage.mark(pipe, marks)

        assert storage.load_pipe(pipe).marks == tuple(marks)


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


class TestDeadLetters:
    def test_a_letter_reads_back_with_the_databases_time(self, storage, queue):
        wanted = letter(new_pipe_id(), 3)

        storage.change_dead(queue, added=[wanted])

        (found,) = storage.read_dead(queue)
        assert undated([found]) == [wanted]
        assert abs(found.died_at_ms - storage.list_pipes(queue).now_ms) < 60_000

    def test_letters_come_in_pages_in_the_order_of_their_ids(self, storage, queue):
        early, late = sorted((new_pipe_id(), new_pipe_id()), key=lambda pipe: pipe.time)
        letters = [letter(early, 1), letter(early, 2), letter(early, 10), letter(late, 1), letter(late, 3)]
        storage.change_dead(queue, added=letters[::-1])

        pages = [storage.read_dead(queue, limit=2)]
        while pages[-1]:
            pages.append(storage.read_dead(queue, after=pages[-1][-1].message_id, limit=2))

        assert [len(page) for page in pages] == [2, 2, 1, 0]
        assert undated(found for page in pages for found in page) == letters

    def test_adding_again_overwrites(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, 1, reason="the first", attempts=9, headers={})])

        storage.change_dead(queue, added=[letter(pipe, 1, reason="a later one", attempts=2)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 1, reason="a later one", attempts=2)]

    def test_a_removed_letter_never_comes_back_while_its_pipe_lives(self, storage, queue, pipe):
        storage.change_dead(queue, added=[letter(pipe, 1), letter(pipe, 2)])
        storage.change_dead(queue, removed=[MessageId(pipe, 1)])

        storage.change_dead(queue, added=[letter(pipe, 1), letter(pipe, 2)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 2)]

    def test_removed_letters_are_gone_and_others_stay(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, seq) for seq in range(1, 60)])

        for _ in range(2):
            storage.change_dead(queue, removed=[MessageId(pipe, seq) for seq in range(2, 59)])

        assert [found.message_id.seq for found in storage.read_dead(queue)] == [1, 59]

    def test_one_call_adds_and_removes(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, 1)])

        storage.change_dead(queue, added=[letter(pipe, 2)], removed=[MessageId(pipe, 1)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 2)]

    def test_a_queue_without_letters_has_none(self, storage, queue):
        storage.change_dead(queue)

        assert list(storage.read_dead(queue)) == []


class TestRollups:
    DAY = timedelta(days=1) // timedelta(milliseconds=1)

    @pytest.fixture
    def noon_ms(self, storage, queue):
        """Noon of the database's day."""
        return storage.list_pipes(queue).now_ms // self.DAY * self.DAY + self.DAY // 2

    def read(self, storage, queue, ms):
        return list(storage.read_rollups(queue, to_datetime(ms).date()))

    def test_they_read_back_in_the_order_of_their_keys(self, storage, queue, noon_ms):
        wanted = [
            make_rollup(noon_ms + at, minute_ms, pusher=pusher, holder=holder)
            for at in (0, 7)
            for minute_ms in (60_000, 120_000)
            for pusher in ("", "p")
            for holder in ("", "h")
        ]

        storage.write_rollups(queue, wanted[::-1])

        assert self.read(storage, queue, noon_ms) == wanted

    def test_every_figure_keeps_its_place(self, storage, queue, noon_ms):
        figures = {name: 100 + place for place, name in enumerate(NAMES[4:])}

        storage.write_rollups(queue, [make_rollup(noon_ms, **figures)])

        assert self.read(storage, queue, noon_ms) == [make_rollup(noon_ms, **figures)]

    def test_a_day_has_what_was_rolled_up_from_midnight_to_midnight(self, storage, queue, noon_ms):
        midnight_ms = noon_ms + self.DAY // 2
        moments = [noon_ms - self.DAY // 2 - 1, noon_ms - self.DAY // 2, midnight_ms - 1, midnight_ms]

        storage.write_rollups(queue, [make_rollup(moment) for moment in moments])

        found = [each.rolled_up_at_ms for each in self.read(storage, queue, noon_ms)]
        assert found == moments[1:3]

    def test_of_two_under_one_key_the_later_one_stands(self, storage, queue, noon_ms):
        ended = {"waiting": 0, "pending": 0, "returned": 0, "committed": 9}
        ages = dict.fromkeys(("oldest_age_ms", "age_p50_ms", "age_p90_ms", "age_p99_ms"))
        storage.write_rollups(queue, [make_rollup(noon_ms)])

        for _ in range(2):
            storage.write_rollups(queue, [make_rollup(noon_ms, **ended, **ages)])

        assert self.read(storage, queue, noon_ms) == [make_rollup(noon_ms, **ended, **ages)]

    def test_a_queue_without_any_has_none(self, storage, queue, noon_ms):
        storage.write_rollups(queue, [])

        assert self.read(storage, queue, noon_ms) == []

    def test_the_last_day_there_is_may_be_asked_for(self, storage, queue):
        assert list(storage.read_rollups(queue, date.max)) == []


def test_a_file_forgets_rollups_that_are_older_than_thirty_days(tmp_path):
    with closing(SqliteStorage(str(tmp_path / "store.db"))) as storage:
        now_ms = storage.list_pipes("q").now_ms
        moments = {age: now_ms - age * TestRollups.DAY for age in (31, 29, 0)}
        for age, queue in ((31, "gone"), (31, "q"), (29, "q")):
            storage.write_rollups(queue, [make_rollup(moments[age])])

        storage.write_rollups("q", [make_rollup(moments[0])])

        kept = [
            (queue, age)
            for queue in ("gone", "q")
            for age, at_ms in moments.items()
            if storage.read_rollups(queue, to_datetime(at_ms).date())
        ]
        assert kept == [("q", 29), ("q", 0)]


class TestRowsThatAreNotOurs:
    @pytest.mark.parametrize("what", ["phase", "run", "mark"])
    def test_a_pipe_with_one_raises(self, storage, adapter, pipe, what):
        take(storage, pipe, run(1, 1))
        storage.mark(pipe, [Mark(1, 1, End.COMMITTED)])

        adapter.plant(storage, what, pipe)

        with pytest.raises(DecodeError, match="melted"):
            storage.load_pipe(pipe)

    def test_rows_that_cannot_be_true_together_raise(self, storage, adapter, pipe):
        take(storage, pipe, run(1, 2))

        adapter.plant(storage, "cursor", pipe)

        with pytest.raises(DecodeError, match="message 3 was handed out or purged, and no row tells of it"):
            storage.load_pipe(pipe)

    def test_a_batch_that_says_another_number_than_it_has_raises(self, storage, adapter, pipe):
        storage.append(pipe, batch(1, b"a"))

        adapter.plant(storage, "batch", pipe)

        with pytest.raises(DecodeError):
            storage.read_batches(pipe, BatchQuery())

    def test_a_queue_in_a_state_that_there_is_not_raises(self, storage, adapter, queue):
        first = record(queue)
        storage.change_queue(None, first)

        adapter.plant(storage, "record", queue)

        with pytest.raises(DecodeError, match="melted"):
            storage.read_queues(queue)
        storage.change_queue(first, replace(first, op=new_token()))  # others read the list of all queues

    def test_a_letter_without_its_parts_raises(self, storage, adapter, queue):
        storage.change_dead(queue, added=[letter(new_pipe_id(), 1)])

        adapter.plant(storage, "letter", queue)

        with pytest.raises(DecodeError):
            storage.read_dead(queue)


CALLS = {
    "read_queues": lambda storage: storage.read_queues("q"),
    "glance_queue": lambda storage: storage.glance_queue("q"),
    "change_queue": lambda storage: storage.change_queue(None, record("q")),
    "create_pipe": lambda storage: storage.create_pipe("q", PipeEntry(new_pipe_id(), "p"), Head(new_token())),
    "list_pipes": lambda storage: storage.list_pipes("q"),
    "delete_pipe": lambda storage: storage.delete_pipe("q", new_pipe_id()),
    "append": lambda storage: storage.append(new_pipe_id(), batch(1, b"a")),
    "read_batches": lambda storage: storage.read_batches(new_pipe_id(), BatchQuery()),
    "load_pipe": lambda storage: storage.load_pipe(new_pipe_id()),
    "transact": lambda storage: storage.transact(new_pipe_id(), Transaction(Seal(1))),
    "mark": lambda storage: storage.mark(new_pipe_id(), [Mark(1, 1, End.DEAD)]),
    "read_dead": lambda storage: storage.read_dead("q"),
    "change_dead": lambda storage: storage.change_dead("q", [letter(new_pipe_id(), 1)]),
    "publish_pipes": lambda storage: storage.publish_pipes("q", [PipeEntry(new_pipe_id(), "p")]),
    "write_rollups": lambda storage: storage.write_rollups("q", [make_rollup(EARLY_MS)]),
    "read_rollups": lambda storage: storage.read_rollups("q", to_datetime(EARLY_MS).date()),
}


class TestEnds:
    def test_every_method_refuses_after_close(self, adapter):
        storage = adapter.open()
        storage.close()
        storage.close()

        for call in CALLS.values():
            with pytest.raises(ClosedError):
                call(storage)

    def test_every_method_refuses_in_a_forked_child(self, adapter):
        storage = adapter.open()
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
            child = os.fork()
        if child == 0:
            os.write(writer, ",".join(_outcome(call, storage) for call in CALLS.values()).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as said:
            assert said.read().split(",") == ["ClosedError"] * len(CALLS)

        assert list(storage.read_queues("no such queue")) == []  # the parent goes on
        storage.close()


def _outcome(call, storage):
    try:
        call(storage)
    except BaseException as error:
        return type(error).__name__
    return "nothing"
