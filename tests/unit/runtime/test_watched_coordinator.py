"""Which calls of a coordinator wait for an answer."""

from cassq.coordination.watched import silent_service, watched
from cassq.runtime.clock import SystemClock
from cassq.runtime.outage_log import OutageLog


class Interrupted:
    """A coordinator that is asked about a queue in the middle of a call about another one."""

    def __init__(self):
        self.silent = []

    def __str__(self):
        return "the coordinator"

    def wake(self, queue, count):
        self.silent.append(silent_service(self.outside, queue))
        self.outside.hungry("other")
        self.silent.append(silent_service(self.outside, queue))

    def hungry(self, queue):
        return 0


def test_a_call_that_was_interrupted_by_another_one_still_waits():
    coordinator = Interrupted()
    coordinator.outside = watched(coordinator, OutageLog("memory:", SystemClock()))

    coordinator.outside.wake("q", 1)

    assert coordinator.silent == ["the coordinator", "the coordinator"]
    assert silent_service(coordinator.outside, "q") is None
