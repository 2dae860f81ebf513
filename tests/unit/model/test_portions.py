"""What a take takes is cut into a row for each client, in the order in which they wait."""

from hypothesis import given
from hypothesis import strategies as st

from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import BURIAL, Run, RunState
from cassq.model.portions import Portions
from cassq.model.take_plan import Plan, Taken
from cassq.model.transaction import RunChange


def plan(first, *counts, attempt=1):
    """Return a plan to take batches of so many messages."""
    parts, at = [], first
    for count in counts:
        parts.append(Batch(at, tuple(b"x" for _ in range(count)), None, count, 0))
        at += count
    values = (parts[0].first, RunState.LEASED, attempt, new_token(), 0, 30_000, 0, "lease q")
    run = Run(first, at - 1, *values)
    taken = Taken(run, tuple(parts), tuple(part.first for part in parts))
    return Plan(taken, (RunChange(run, new_token(), 0, is_leased_now=True),))


def cut(wanted, *plans):
    portions = Portions()
    portions.begin(wanted)
    plans = portions.cut(plans)
    assert portions.left == sum(wanted)
    portions.use()
    return plans, portions.left


def stretches(plans):
    return [(each.taken.run.first, each.taken.run.last) for each in plans]


def test_each_gets_a_row_of_its_own():
    plans, left = cut([3, 1, 2], plan(1, 6))

    assert stretches(plans) == [(1, 3), (4, 4), (5, 6)]
    assert left == 0
    assert len({each.taken.run.lease_id for each in plans}) == 3


def test_what_a_short_run_leaves_of_a_portion_the_next_run_fills():
    plans, left = cut([5, 4], plan(1, 2), plan(10, 6))

    assert stretches(plans) == [(1, 2), (10, 12), (13, 15)]
    assert left == 1


def test_only_the_first_row_is_conditional_on_the_one_that_stands():
    (first, second), _ = cut([1, 1], plan(1, 2))

    assert first.changes[0].if_lease_id
    assert second.changes == (RunChange(second.taken.run, is_leased_now=True),)


def test_what_is_to_be_buried_stays_whole():
    plans, left = cut([1, 1], plan(1, 4, attempt=BURIAL + 1))

    assert stretches(plans) == [(1, 4)]
    assert left == 2


@given(st.lists(st.integers(1, 9), max_size=8), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_rows_have_every_message_once_and_lie_side_by_side(wanted, counts):
    whole = plan(1, *counts)

    plans, _ = cut(wanted, whole)

    assert [seq for each in plans for seq, *_ in each.taken.messages] == list(range(1, sum(counts) + 1))
    assert [run.last + 1 for run in (each.taken.run for each in plans)][:-1] == [
        each.taken.run.first for each in plans[1:]
    ]
    for each in plans:
        assert each.taken.run.read_from == max(
            first for first in whole.taken.batch_firsts if first <= each.taken.run.first
        )
        assert each.taken.batch_firsts[0] == each.taken.run.read_from


@given(
    st.lists(st.integers(1, 9_000), max_size=5),
    st.lists(
        st.tuples(st.sampled_from((0, 1, 4000, 9_999, 10_000, 30_000)), st.integers(1, 1000)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from((0, 9_000, 20_000)),
)
def test_a_row_with_messages_has_no_more_numbers_than_a_token_names(wanted, batches, tail):
    parts, at = [], 1
    for gap, count in batches:
        at += gap
        parts.append(Batch(at, tuple(b"x" for _ in range(count)), None, count, 0))
        at += count
    run = Run(1, at - 1 + tail, 1, RunState.LEASED, 1, new_token(), 0, 30_000, 0, "lease q")
    whole = Plan(
        Taken(run, tuple(parts), tuple(part.first for part in parts)),
        (RunChange(run, new_token(), 0, is_leased_now=True),),
    )

    plans, _ = cut(wanted, whole)

    runs = [each.taken.run for each in plans]
    assert [seq for each in plans for seq, *_ in each.taken.messages] == [
        seq for seq, *_ in whole.taken.messages
    ]
    assert (runs[0].first, runs[-1].last) == (run.first, run.last)
    assert [each.last + 1 for each in runs][:-1] == [each.first for each in runs[1:]]
    lent = [each.taken.run for each in plans if each.taken.parts]
    assert max(each.last - each.first for each in lent) < TAKE_MESSAGES_MAX
