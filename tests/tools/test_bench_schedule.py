import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.clients.bodies import Schedule, make_bodies, spaced, stamp_of, steady
from _bench.scenarios.idleness import Visit, busy_shares, idle_spans, waits_in_vain

INFINITE = float("inf")


def test_bodies_have_their_size_and_their_number_and_are_the_same_each_time():
    bodies = make_bodies(5000, 256)

    assert {len(body) for body in bodies} == {256}
    assert [stamp_of(body) for body in bodies] == list(range(5000))
    assert bodies == make_bodies(5000, 256)


def test_a_body_too_small_for_its_number_is_refused():
    with pytest.raises(ValueError, match="no room"):
        make_bodies(1, 7)


def test_a_steady_flow_is_due_at_even_distances():
    assert steady(1000, 4, 1.0) == [1000, 250_001_000, 500_001_000, 750_001_000]


def test_single_messages_have_a_pause_before_each():
    due = spaced(0, 100, 0.5, 0.8)

    pauses = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert len(due) == 100
    assert all(0.5e9 <= pause <= 0.8e9 for pause in pauses)
    assert len(set(pauses)) > 90


def test_a_body_appears_no_earlier_than_it_is_due_and_says_when_that_was():
    # Given bodies that are due 20 ms apart, the first one long ago
    now = time.monotonic_ns()
    due = [now - 10**9, now + 20_000_000, now + 40_000_000]

    # When they are read one after the other
    read = [(stamp_of(body), time.monotonic_ns()) for body in Schedule(due, 64)]

    # Then each carries the time it was due at, and was not there before
    assert [stamp for stamp, _ in read] == due
    assert all(at >= stamp for stamp, at in read)


def test_a_part_of_a_schedule_is_a_schedule():
    part = Schedule([1, 2, 3, 4], 16)[1:3]

    assert [stamp_of(body) for body in part] == [2, 3]
    assert len(part) == 2


def test_somebody_is_idle_whenever_fewer_are_busy_than_there_are():
    # Given two consumers that are both busy from 2 to 3 only
    visits = [Visit(0, 0, 1, 3), Visit(1, 0, 2, 4)]

    assert idle_spans(visits, 2) == [(-INFINITE, 2), (3, INFINITE)]
    assert idle_spans(visits, 3) == [(-INFINITE, INFINITE)]


def test_a_message_waits_in_vain_only_while_somebody_is_idle():
    # Given one that came while both were busy, and was taken half a second after one became free
    visits = [Visit(0, 0, 0, 3), Visit(1, 0, 0, 4), Visit(0, 2, 3.5, 4.5)]

    assert waits_in_vain(visits, 2) == pytest.approx([0, 0, 0.5])


def test_a_visit_that_follows_at_once_leaves_nobody_idle():
    assert waits_in_vain([Visit(0, 0, 0, 1), Visit(0, 0.2, 1, 2)], 1) == pytest.approx([0, 0])


def test_the_busy_share_counts_what_lies_within_the_time():
    shares = busy_shares([Visit(0, 0, -1, 1), Visit(1, 0, 2, 9)], 3, 0, 4)

    assert shares == pytest.approx([0.25, 0.5, 0])
