"""What is in hand: its order, its number, and what has no lease any more."""

from cassq.model.message import Batch
from cassq.popping.delivery import BatchSlice
from cassq.popping.hand import Hand, count_of


class Run:
    def __init__(self, *, is_live=True):
        self.is_live = is_live


def batch_slice(first, count, run):
    bodies = (b"x",) * count
    return BatchSlice(run, Batch(first, bodies, ({},) * count, count, 0), None)


def places(given):
    return [(first, last) for _, first, last in given]


def test_what_nobody_got_is_cut_off_again_first():
    hand, run = Hand(lambda due_ms: due_ms / 1000), Run()
    hand.add([batch_slice(1, 4, run), batch_slice(5, 4, run)], 0.0)
    given = hand.cut(6)
    assert (places(given), count_of(given), hand.count) == ([(1, 4), (5, 6)], 6, 2)
    hand.put_back(given)
    assert hand.count == 8
    assert places(hand.cut(9)) == [(1, 4), (5, 6), (7, 8)]
    assert hand.count == 0


def test_what_has_no_lease_any_more_is_dropped_and_does_not_count():
    hand = Hand(lambda due_ms: due_ms / 1000)
    hand.add([batch_slice(1, 4, Run(is_live=False)), batch_slice(5, 2, Run())], 0.0)
    assert places(hand.cut(1)) == [(5, 5)]
    assert hand.count == 1


def test_an_emptied_hand_tells_what_was_left_by_run():
    hand, run, other = Hand(lambda due_ms: due_ms / 1000), Run(), Run()
    hand.add([batch_slice(1, 4, run), batch_slice(5, 4, other)], 0.0)
    hand.cut(1)
    assert hand.runs() == [run, other]
    assert {each: list(parts) for each, parts in hand.take_back().items()} == {run: [(2, 4)], other: [(5, 8)]}
    assert (hand.count, hand.runs(), hand.take_back()) == (0, [], {})
