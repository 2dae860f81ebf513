"""How much is left of a lease, as a process that did not take it may believe."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.lease import Lease
from cassq.model.pipe import Head, PipeEntry, Run, RunState
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Advance, RunChange, Transaction
from cassq.pipes.lent_rows import LentRows, Seen
from cassq.storage.sqlite.storage import SqliteStorage

SKEW_MS = 500


def row(leased_at_ms, lease_ms):
    return Run(1, 1, 1, RunState.LEASED, 1, new_token(), leased_at_ms, lease_ms, 0, "lease q")


@given(
    st.integers(100, 3_600_000),
    st.lists(st.integers(0, SKEW_MS), min_size=3, max_size=3),
    st.integers(0, 4_000_000),
    st.integers(0, 10_000),
)
def test_it_is_over_here_before_anybody_may_judge_it_over(lease_ms, ahead_ms, asked_ms, way_ms):
    """True time begins with the lease; three nodes' clocks are ahead of it, by the margin at most.

    One node writes `leased_at`, one answers the read, one tells a taker the time.
    """
    writer_ms, reader_ms, taker_ms = ahead_ms
    now_ms = asked_ms + way_ms + reader_ms
    seen = Seen(row(writer_ms, lease_ms), Ranges(((1, 1),)), now_ms, asked_ms / 1000)
    ends_ms = round(seen.ends_at * 1000)

    assert not seen.row.is_expired(ends_ms + taker_ms, SKEW_MS)


def test_it_counts_from_before_the_question_however_long_the_answer_took():
    clock, storage = HandClock(), SqliteStorage(None)
    pipe, head, taken = new_pipe_id(), Head(new_token()), row(0, 60_000)
    storage.create_pipe("q", PipeEntry(pipe, "a pusher"), head)
    take = Advance(head.op, replace(head, op=new_token(), cursor=1))
    assert storage.transact(pipe, Transaction(take, (RunChange(taken, is_leased_now=True),))).is_applied
    read = storage.read_stretch

    def read_slowly(*values):
        clock.seconds += 20
        return read(*values)

    storage.read_stretch = read_slowly
    asked_at = clock.latest()
    lease = Lease(b"abcd", pipe, 1, 1, taken.lease_id, 1)

    seen = LentRows(context_of(storage, QueueSettings(), clock, queue="q")).read([lease])[lease]

    assert seen.row
    assert seen.ends_at <= asked_at + 60
    storage.close()


def test_without_a_row_nothing_is_left():
    assert Seen(None, Ranges(), 0, 5.0).ends_at == float("-inf")


def test_a_lease_of_which_a_second_or_a_quarter_is_left_is_short():
    def is_short(lease_ms, left_ms):
        return Seen(row(0, lease_ms), Ranges(), lease_ms - left_ms, 5.0).is_short

    assert is_short(60_000, 1000)
    assert not is_short(60_000, 1001)
    assert is_short(400, 100)
    assert not is_short(400, 101)
