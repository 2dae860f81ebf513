"""A wait that a signal handler may end, and that no handler makes endless."""

import signal
from queue import Empty

import pytest
from support.patience import until

from cassq.runtime.clock import SystemClock
from cassq.runtime.signal_queue import SignalQueue

WAIT_S = 0.2


@pytest.fixture
def on_alarm():
    """Have a function called by a signal, in the middle of the wait that follows."""

    def set_up(handler):
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, WAIT_S / 4)

    before = signal.getsignal(signal.SIGALRM)
    yield set_up
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def get(queue: SignalQueue[str]) -> str:
    """Get what comes within the time, also where it is told early that there is nothing."""
    clock = SystemClock()
    ends_at = clock.now() + WAIT_S
    while True:
        try:
            return queue.get(max(0.0, ends_at - clock.now()))
        except Empty:
            if clock.now() >= ends_at:
                raise


def test_items_come_in_their_order():
    queue: SignalQueue[str] = SignalQueue()
    queue.put("a")
    queue.put("b")
    assert [queue.get(0.0), queue.get(0.0)] == ["a", "b"]


def test_a_wait_for_nothing_ends():
    with pytest.raises(Empty):
        get(SignalQueue())


def test_a_handler_puts_what_its_own_thread_waits_for(on_alarm):
    queue: SignalQueue[str] = SignalQueue()
    on_alarm(lambda: queue.put("from a handler"))
    assert get(queue) == "from a handler"


def test_a_handler_that_runs_until_the_time_is_over_does_not_make_the_wait_endless(on_alarm):
    # Given a wait, and a signal whose handler is at work for longer than that
    clock = SystemClock()
    ends_at = clock.now() + 3 * WAIT_S
    on_alarm(lambda: until(lambda: clock.now() > ends_at))
    # When it is waited, then the wait ends
    with pytest.raises(Empty):
        get(SignalQueue())
