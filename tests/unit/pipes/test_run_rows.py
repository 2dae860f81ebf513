"""The rows of a leased run: where they are cut by marks, and what becomes of them where a part goes back."""

from dataclasses import replace

import pytest

from cassq.model.ids import new_token
from cassq.model.pipe import Head, PipeState, Run, RunState
from cassq.model.ranges import Ranges
from cassq.model.take_plan import Taken
from cassq.pipes.run_rows import Return, RunRows

LEASE = new_token()
ROW = Run(
    first=1,
    last=10,
    state=RunState.LEASED,
    lease_id=LEASE,
    holder="a popper",
    leased_at_ms=1000,
    lease_ms=5000,
    not_before_ms=0,
    attempt=2,
    read_from=1,
)


def taken(*firsts):
    """What a take brings of messages 1 to 10, in batches that begin at these."""
    return Taken(ROW, (), firsts)


@pytest.fixture
def rows():
    return RunRows(taken(1, 4, 8))


def places(found):
    return [(each.first, each.last) for each in found]


def test_a_mark_ends_where_a_row_does(rows):
    rows.keep([replace(ROW, last=4), replace(ROW, first=5)])
    assert places(rows.cut(Ranges([(3, 6), (9, 9), (12, 14)]))) == [(3, 4), (5, 6), (9, 9)]


def test_what_goes_back_splits_the_row_and_counts_as_an_attempt(rows):
    found, changes = rows.split(Ranges([(5, 6)]), 7000, Return())
    assert places(found) == [(1, 4), (5, 6), (7, 10)]
    kept, back, rest = found
    assert [each.state for each in found] == [RunState.LEASED, RunState.RETURNED, RunState.LEASED]
    assert (back.attempt, back.rolled_back, back.not_before_ms, back.leased_at_ms) == (2, 2, 7000, 0)
    assert back.lease_id not in {LEASE, rows.split(Ranges([(5, 6)]), 7000, Return())[0][1].lease_id}
    assert (kept.lease_id, rest.lease_id) == (LEASE, LEASE)
    # Only the row that stands already is changed under the condition of its lease.
    assert [change.if_lease_id for change in changes] == [LEASE, None, None]
    # Each is read from the batch on in which it begins.
    assert [each.read_from for each in found] == [1, 4, 4]


def test_what_goes_back_keeps_why(rows):
    found, _ = rows.split(Ranges([(5, 6), (9, 9)]), 0, Return(reason="no route"))
    assert [(each.first, each.reason) for each in found if each.reason] == [(5, "no route"), (9, "no route")]
    # Also where it is given back by somebody who has nothing to say
    rows.keep([replace(ROW, reason="no route")])
    ((back,), _) = rows.split(Ranges([(1, 10)]), 0, Return(is_counted=False))
    assert back.reason == "no route"


def test_what_goes_back_for_the_last_time_is_leased_to_be_buried_under_a_lease_of_its_own(rows):
    found, changes = rows.split(Ranges([(5, 6)]), 0, Return(is_last=True, reason="no route"))
    kept, last, rest = found
    assert (last.state, last.is_burial, last.attempts, last.reason) == (RunState.LEASED, True, 2, "no route")
    assert last.lease_id not in {kept.lease_id, rest.lease_id}
    assert all(change.is_leased_now for change in changes)
    # And nothing that is done under the lease of the others touches it
    rows.keep(found)
    assert places(rows.cut(Ranges([(1, 10)]))) == [(1, 4), (7, 10)]


def test_what_was_never_handed_out_counts_no_attempt(rows):
    ((back,), _) = rows.split(Ranges([(1, 10)]), 0, Return(is_counted=False))
    assert (back.attempt, back.rolled_back) == (1, 0)


def test_a_row_of_which_nothing_goes_back_is_left_as_it_is(rows):
    assert rows.split(Ranges([(11, 12)]), 0, Return()) == ([ROW], [])


def test_a_run_goes_on_with_what_is_leased_still(rows):
    found, _ = rows.split(Ranges([(5, 6)]), 0, Return())
    rows.keep(found)
    assert places(rows.cut(Ranges([(1, 10)]))) == [(1, 4), (7, 10)]


@pytest.mark.parametrize(
    ("runs", "is_leased"),
    [
        ((ROW,), True),
        ((replace(ROW, lease_id=new_token()),), False),
        ((), False),
    ],
)
def test_a_lease_stands_where_all_that_stands_is_under_it(rows, runs, is_leased):
    state = PipeState(Head(new_token()), runs, (), 0)
    assert rows.is_leased(rows.standing(state)) is is_leased


def test_a_part_that_others_took_ends_the_lease(rows):
    rows.keep([replace(ROW, last=4), replace(ROW, first=5)])
    others = replace(ROW, first=5, lease_id=new_token())
    state = PipeState(Head(new_token()), (replace(ROW, last=4), others), (), 0)
    assert not rows.is_leased(rows.standing(state))
    # What is below the floor counts for nothing.
    assert rows.is_leased(rows.standing(PipeState(Head(new_token()), (replace(ROW, first=5),), (), 0)))


def test_of_a_window_the_row_ends_where_the_window_did():
    rows = RunRows(replace(taken(1), run=replace(ROW, last=100, window_ms=500)))
    rows.grow(taken(1, 4, 8))
    rows.end_window(10)
    found, _ = rows.split(Ranges([(9, 9)]), 0, Return())
    assert places(found) == [(1, 8), (9, 9), (10, 10)]
    assert {each.window_ms for each in found} == {0}
    assert found[1].read_from == 8
