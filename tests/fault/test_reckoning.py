"""What ledgers must not tell of messages with keys, and of those that are due later."""

import pytest
from reckoning import ROUNDING_S, broken_dues, broken_keys

from cassq.verification.ledger import Kind, Line


def line(at, kind, name, attempt=1, until=0.0):
    return Line(float(at), "a popper", kind, f"{name}@foo", attempt, until)


def delivered(at, name, attempt=1):
    return line(at, Kind.DELIVERED, name, attempt, until=at + 5.0)


@pytest.mark.parametrize("end", [Kind.COMMITTING, Kind.ROLLING_BACK])
def test_one_after_the_other_is_as_it_should_be(end):
    assert list(broken_keys([delivered(1, "p-1"), line(2, end, "p-1"), delivered(3, "p-2")])) == []


def test_two_of_one_key_side_by_side_are_told():
    assert len(list(broken_keys([delivered(1, "p-1"), delivered(3, "q-1")]))) == 1


def test_two_keys_side_by_side_are_not():
    other = Line(3.0, "a popper", Kind.DELIVERED, "q-1@bar", 1, 8.0)
    assert list(broken_keys([delivered(1, "p-1"), other])) == []


def test_whose_lease_has_ended_has_nothing_in_hand():
    assert list(broken_keys([delivered(1, "p-1"), delivered(7, "q-1")])) == []


def test_whose_lease_was_extended_has_it_in_hand_for_longer():
    extended = line(2, Kind.EXTENDED, "p-1", until=9.0)
    assert len(list(broken_keys([delivered(1, "p-1"), extended, delivered(7, "q-1")]))) == 1


def test_what_was_noted_after_its_lease_had_ended_is_in_nobodys_hands():
    late = line(7, Kind.DELIVERED, "p-1", until=6.0)
    assert list(broken_keys([late, delivered(8, "q-1")])) == []


def test_an_earlier_one_that_comes_after_a_later_one_is_told():
    ended = line(2, Kind.COMMITTING, "p-2")
    assert len(list(broken_keys([delivered(1, "p-2"), ended, delivered(3, "p-1")]))) == 1


def test_those_of_two_pushers_come_in_any_order():
    ended = line(2, Kind.COMMITTING, "p-2")
    assert list(broken_keys([delivered(1, "p-2"), ended, delivered(3, "q-1")])) == []


@pytest.mark.parametrize(("late_s", "told"), [(0.0, 0), (-2 * ROUNDING_S, 1), (-1.5, 1)])
def test_what_comes_before_its_time_is_told(late_s, told):
    lines = [
        Line(1.0, "a pusher", Kind.ATTEMPTED, "p-1+1500"),
        Line(2.5 + late_s, "a popper", Kind.DELIVERED, "p-1+1500", 1, 9.0),
    ]
    assert len(list(broken_dues(lines))) == told


def test_what_has_no_delay_is_never_early():
    lines = [Line(1.0, "a popper", Kind.DELIVERED, name, 1, 9.0) for name in ("p-1", "p-2@foo")]
    assert not list(broken_dues(lines))
