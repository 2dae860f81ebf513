"""Sets of sequence numbers, kept as stretches."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.model.ranges import Range, Ranges

quietly = settings(derandomize=True, deadline=None)

numbers = st.integers(1, 40)
pairs = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))


def test_neighbours_join_into_one_stretch():
    stretches = Ranges([(1, 3), (7, 9), (4, 6)])

    assert list(stretches) == [Range(1, 9)]


@quietly
@given(st.lists(pairs))
def test_it_holds_what_a_plain_set_holds(added):
    stretches = Ranges(added)
    plain = {seq for first, last in added for seq in range(first, last + 1)}

    assert {seq for part in stretches for seq in range(part.first, part.last + 1)} == plain
    assert all((seq in stretches) == (seq in plain) for seq in range(42))


@quietly
@given(st.lists(pairs))
def test_its_stretches_are_sorted_and_never_touch(added):
    parts = list(Ranges(added))

    assert all(before.last + 1 < after.first for before, after in pairwise(parts))


@quietly
@given(st.lists(pairs), pairs)
def test_within_and_missing_share_a_range_between_them(added, bounds):
    stretches = Ranges(added)
    within = [seq for part in stretches.within(*bounds) for seq in range(part.first, part.last + 1)]
    missing = [seq for part in stretches.missing(*bounds) for seq in range(part.first, part.last + 1)]

    assert sorted(within + missing) == list(range(bounds[0], bounds[1] + 1))
    assert stretches.count_within(*bounds) == len(within)
    assert stretches.covers(*bounds) == (not missing)


@quietly
@given(st.lists(pairs), numbers)
def test_reach_is_the_end_of_the_unbroken_stretch(added, first):
    stretches = Ranges(added)
    reach = stretches.reach(first)

    assert all(seq in stretches for seq in range(first, reach + 1))
    assert reach + 1 not in stretches


@quietly
@given(st.lists(pairs), numbers)
def test_what_is_forgotten_is_only_what_lies_below(added, below):
    stretches = Ranges(added)
    kept = [seq for seq in range(below, 42) if seq in stretches]

    stretches.forget_below(below)

    assert [seq for seq in range(42) if seq in stretches] == kept


def test_its_portions_are_all_of_it_a_few_stretches_at_a_time():
    ranges = Ranges([(1, 1), (3, 5), (7, 7), (9, 9), (11, 12)])
    portions = [[tuple(part) for part in portion] for portion in ranges.portions(2)]
    assert portions == [[(1, 1), (3, 5)], [(7, 7), (9, 9)], [(11, 12)]]
    assert list(Ranges().portions(2)) == []
