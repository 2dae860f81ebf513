import pytest

from cassq.reaping.duty import Duty
from cassq.runtime.poll_spread import PASSES_PER_S, PollSpread


class Work:
    """Finds something to do as often as it is told."""

    def __init__(self, *found):
        self._found = list(found)

    def __call__(self):
        found = self._found.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def pauses(polls, duty, count):
    """Make each pass when it is due; return how long the duty rests after each."""
    found = []
    for _ in range(count):
        now = duty.due_at
        duty.run_once(now, polls, "q")
        found.append(duty.due_at - now)
    return found


def test_a_duty_that_finds_nothing_rests_longer_and_longer():
    duty = Duty(Work(False, False, False, True, False), 2.0, 7.0)
    assert pauses(PollSpread(), duty, 5) == [4.0, 7.0, 7.0, 2.0, 4.0]


def test_a_pass_that_fails_leaves_the_duty_due():
    duty = Duty(Work(OSError("away"), True), 2.0, 8.0, due_at=5.0)
    with pytest.raises(OSError, match="away"):
        duty.run_once(6.0, PollSpread(), "q")
    assert duty.due_at == 5.0
    duty.run_once(7.0, PollSpread(), "q")
    assert duty.due_at == 9.0


def test_duties_of_many_queues_at_rest_share_the_passes_of_a_process():
    polls = PollSpread()
    queues = 1000
    for _ in range(queues):
        polls.enter()
    rests = []
    for number in range(queues):
        duty = Duty(Work(False), 2.0, 2.0)
        duty.run_once(0.0, polls, f"q{number}")
        rests.append(duty.due_at)
    assert sum(1 / rest for rest in rests) == pytest.approx(PASSES_PER_S, rel=0.1)
    busy = Duty(Work(True), 2.0, 16.0)
    busy.run_once(0.0, polls, "q")
    assert busy.due_at == 2.0
