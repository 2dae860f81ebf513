"""What is held until it is due, and leaves the hand of a popper again."""

import random

import pytest

from cassq.model.message import Batch
from cassq.model.ranges import Ranges
from cassq.popping.delivery import BatchSlice
from cassq.popping.hand import PARTS_MAX, Hand, count_of, to_deliveries
from cassq.popping.holding import TICK_S


class Run:
    """A run whose lease may end."""

    is_live = True
    pipe = None


def slice_of(run, dues, first=1):
    bodies = tuple(b"%d" % due for due in dues)
    return BatchSlice(run, Batch(first, bodies, None, len(dues), 1, dues=tuple(dues)), None)


@pytest.fixture
def hand():
    # The database's clock shows as many seconds as this process's.
    return Hand(lambda due_ms: due_ms / 1000)


def released(hand, now):
    hand.release(now)
    return [int(each.body) for each in to_deliveries(hand.cut(10**9))]


def test_nothing_leaves_before_it_is_due_and_all_of_it_then_in_order(hand):
    dice = random.Random(7)
    dues = [dice.randrange(1, 5000) for _ in range(500)]
    hand.add([slice_of(Run(), dues)], 0.0)
    assert hand.count == 0
    found, now = [], 0.0
    while now < 5.0:
        now += 0.05
        batch = released(hand, now)
        assert all(now - 0.05 - TICK_S < due / 1000 <= now for due in batch)
        found += batch
    assert sorted(found) == sorted(dues)
    assert not hand.held


def test_what_is_due_together_stays_together(hand):
    hand.add([slice_of(Run(), [1000] * 100)], 0.0)
    hand.release(1.0)
    assert hand.count == 100
    ((batch_slice, first, last),) = hand.cut(100)
    assert (batch_slice.batch.count, first, last) == (100, 1, 100)


def test_what_has_no_due_time_is_in_hand_at_once(hand):
    batch = Batch(1, (b"x",), None, 1, 1)
    hand.add([BatchSlice(Run(), batch, None)], 0.0)
    assert hand.count == 1


def test_it_tells_when_to_come_again(hand):
    assert hand.held.next_at == float("inf")
    hand.add([slice_of(Run(), [3000, 2000])], 0.0)
    assert hand.held.next_at == 2.0
    hand.release(2.0)
    assert hand.held.next_at == 3.0


def test_it_comes_earlier_once_the_clock_of_the_database_is_known_better():
    late_s = 0.04
    hand = Hand(lambda due_ms: due_ms / 1000 + late_s)
    hand.add([slice_of(Run(), [2000])], 0.0)
    assert hand.held.next_at == 2.04
    late_s = 0.001
    assert hand.held.plan() == hand.held.next_at == 2.001
    assert released(hand, 2.0) == []
    assert released(hand, 2.002) == [2000]


def test_a_run_is_told_until_its_last_message_has_left(hand):
    run, other = Run(), Run()
    hand.add([slice_of(run, [3000, 1000]), slice_of(other, [2000, 4000])], 0.0)
    told = []
    for now in (0.0, 1.0, 2.0, 3.0, 4.0):
        hand.release(now)
        told.append(list(hand.held.runs()))
    assert told == [[run, other], [run, other], [run, other], [other], []]


def test_what_has_no_lease_any_more_is_dropped(hand):
    run = Run()
    hand.add([slice_of(run, [1000, 2000])], 0.0)
    run.is_live = False
    assert released(hand, 5.0) == []


def test_what_is_held_goes_back_with_what_is_in_hand(hand):
    run, other = Run(), Run()
    hand.add([slice_of(run, [1000, 9000, 9000]), slice_of(other, [9000])], 0.0)
    hand.release(1.0)
    assert hand.runs() == [run, other]
    back = hand.take_back()
    assert {each: list(parts) for each, parts in back.items()} == {
        run: list(Ranges([(1, 3)])),
        other: [(1, 1)],
    }
    assert not hand.held
    assert hand.count == 0


def test_what_came_last_is_cut_off(hand):
    run, other = Run(), Run()
    hand.add([slice_of(run, [1000] * 5), slice_of(other, [2000] * 3)], 0.0)
    hand.release(3.0)
    assert {each: list(parts) for each, parts in hand.cut_last(2).items()} == {other: [(2, 3)]}
    found = {each: list(parts) for each, parts in hand.cut_last(3).items()}
    assert found == {other: [(1, 1)], run: [(4, 5)]}
    assert hand.cut_last(0) == hand.cut_last(-5) == {}
    assert hand.count == count_of(hand.cut(100)) == 3


def test_what_has_no_due_times_is_not_cut_off(hand):
    run, other, last = Run(), Run(), Run()
    plain = BatchSlice(other, Batch(1, (b"a", b"b"), None, 2, 1), None)
    hand.add([slice_of(run, [1000] * 3), slice_of(last, [2000] * 2)], 0.0)
    hand.release(3.0)
    hand.add([plain], 3.0)
    before = hand.count
    assert {each: list(parts) for each, parts in hand.cut_last(4).items()} == {last: [(1, 2)], run: [(2, 3)]}
    assert hand.count == before - 4
    assert [(each.run, first) for each, first, _ in hand.cut(100)] == [(run, 1), (other, 1)]


def test_a_run_that_would_go_back_in_many_parts_stays(hand):
    # Given twenty messages of which each second one came due, and others behind them that all did
    run, other = Run(), Run()
    hand.add([slice_of(run, [1000 + 8000 * (n % 2) for n in range(2 * PARTS_MAX + 4)])], 0.0)
    hand.add([slice_of(other, [2000] * 3)], 0.0)
    hand.release(3.0)
    before = hand.count
    # When all but one of them is to go back
    back = hand.cut_last(before - 1)
    # Then only those behind do, and the others are handed out in their order
    assert {each: list(parts) for each, parts in back.items()} == {other: [(1, 3)]}
    assert hand.count == before - 3 == PARTS_MAX + 2
    given = hand.cut(100)
    assert [first for _, first, _ in given] == [1 + 2 * n for n in range(PARTS_MAX + 2)]


def test_what_is_due_already_is_in_hand_at_once(hand):
    hand.add([slice_of(Run(), [1000, 2000])], 2.0)
    assert hand.count == 2


def test_neighbours_that_are_due_together_wait_for_the_last_of_them(hand):
    hand.add([slice_of(Run(), [1000, 1004, 1002, 1010, 1009, 1000])], 0.0)
    assert released(hand, 1.003) == [1000]
    assert released(hand, 1.004) == [1000, 1004, 1002]
    assert released(hand, 1.010) == [1010, 1009]
