"""How the times of popping hang together."""

from itertools import pairwise

import pytest

from cassq.popping import timing as t


@pytest.mark.parametrize(
    "rising",
    [
        # A popper that nobody wakes looks less and less often, and a pop waits for a look of it.
        (t.POLL_MIN_S, t.POLL_S, t.POLL_MAX_S),
        # It lingers for consumers that come back, and idles only long after its last look.
        (t.LINGER_S, t.POLL_S, t.SLOW_S, t.POLL_MAX_S, t.IDLE_S),
        # What may come soon is read more often than what comes late, and that more often than a pipe rests.
        (t.LOOK_SOON_S, t.LOOK_S, t.WINDOW_LOOK_S, t.REST_S),
        # A hungry popper has the time to claim what it was left before the giver looks again; an order is
        # given up only after several attempts at a busy pipe.
        (t.COURTESY_S, t.BUSY_S, t.PATIENCE_S),
        # A group waits less than an attempt anew.
        (t.GROUP_S, t.PAUSE_S, t.PAUSE_MAX_S),
    ],
)
def test_times_rise(rising):
    assert all(shorter < longer for shorter, longer in pairwise(rising))


def test_a_pop_with_little_time_waits_for_the_look_of_a_popper_that_rests():
    assert t.LOOK_TIMEOUT_S >= t.POLL_MAX_S
