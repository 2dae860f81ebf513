"""Many poppers in one process: how many take at a time, and how seldom many queues at rest are looked at."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cassq.crowd import LOOKS_PER_S, PASSES_PER_S, RETRIES_PER_S, TAKERS_MAX, Crowd, Turns


def crowd_of(queues):
    crowd = Crowd()
    for _ in range(queues):
        crowd.enter()
    return crowd


@pytest.mark.parametrize("per_s", [LOOKS_PER_S, RETRIES_PER_S, PASSES_PER_S])
def test_all_queues_together_are_looked_at_so_often(per_s):
    crowd = crowd_of(1000)
    pauses = [crowd.spread(0.01, per_s, f"queue-{number}") for number in range(1000)]
    assert sum(1 / pause for pause in pauses) == pytest.approx(per_s, rel=0.1)
    assert len(set(pauses)) > 990, "those that began together would go on together"


def test_a_few_queues_are_looked_at_as_often_as_each_wants():
    assert {crowd_of(3).spread(2.0, LOOKS_PER_S, f"queue-{number}") for number in range(3)} == {2.0}


def test_who_leaves_counts_no_more():
    crowd = crowd_of(1000)
    for _ in range(999):
        crowd.leave()
    assert crowd.spread(1.0, LOOKS_PER_S, "queue") == 1.0


def test_as_many_take_at_a_time_as_may_and_no_more():
    turns, guard = Turns(), threading.Lock()
    full, at_work, most = threading.Barrier(TAKERS_MAX), 0, 0

    def take(_):
        nonlocal at_work, most
        with turns.turn(lambda: False) as is_on:
            with guard:
                at_work += 1
                most = max(most, at_work)
            full.wait(30)  # nobody goes before as many are in as may be
            with guard:
                at_work -= 1
            return is_on

    with ThreadPoolExecutor(3 * TAKERS_MAX) as pool:
        assert all(pool.map(take, range(3 * TAKERS_MAX)))
    assert most == TAKERS_MAX


def test_who_is_closed_while_it_waits_has_no_turn():
    turns, is_closing = Turns(), threading.Event()
    entered = [turns.turn(lambda: False) for _ in range(TAKERS_MAX)]
    assert all(each.__enter__() for each in entered)

    def take():
        with turns.turn(is_closing.is_set) as is_on:
            return is_on

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(take)
        is_closing.set()
        assert late.result(30) is False
    for each in entered:
        each.__exit__(None, None, None)
    is_closing.clear()
    assert take()
