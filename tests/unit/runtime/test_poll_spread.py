"""Many queues in one process: how seldom those at rest are looked at."""

import pytest

from cassq.runtime.poll_spread import LOOKS_PER_S, PASSES_PER_S, RETRIES_PER_S, PollSpread


def crowd_of(queues):
    crowd = PollSpread()
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
