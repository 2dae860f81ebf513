"""When poppers look, wait and let go: the times of popping.

Owns the numbers and what they mean; `tests/unit/popping/test_timing.py` holds the relations between them.
None of them is needed for a promise but PATIENCE_S, on which the order of a `pop_width` of 1 rests: a wrong
one costs requests, or time.
"""

# Poppers that nobody wakes

#: A hungry popper that nobody wakes looks by itself: soon at first if it is alone, then this often at most.
POLL_MIN_S = 0.01
POLL_S = 0.25
POLL_MAX_S = 2.0

#: With so many others that are hungry, each looks half as often.
POLL_SHARED = 4

# Consumers

#: A pop with little time still gets one honest look, but waits no longer than this for it.
LOOK_TIMEOUT_S = 2.0

#: A popper counts as waited for so long after its last consumer left: one that pops in a loop is back soon.
LINGER_S = 0.05

#: A popper from which nobody pops for so long gives its buffer and its claims back, and takes nothing.
IDLE_S = 5.0

#: The same where messages have priorities, but for the buffer, so that what is urgent finds who is free.
SLOW_S = 0.5

# Pipes that are claimed

#: An owned pipe that shows nothing new is read anew (its head, what came back) this often, and at most.
LOOK_S = 0.5
LOOK_SOON_S = 0.005

#: The same in a flow, while a window is held of it: a seal is noticed by the next renewal.
WINDOW_LOOK_S = 2.0

# Priorities

#: Where messages have priorities, a popper looks this often whether more urgent ones came; a pipe of those
#: that somebody else holds is tried again after as long.
BETTER_S = 0.1

# Pipes that are left alone

#: A pipe that was let go for a hungry popper is left to it for so long.
COURTESY_S = 0.05

#: A pipe that somebody else holds is tried again after so long, unless this popper is woken.
BUSY_S = 0.25

#: A pipe that somebody else has held for longer is another popper's: then there is no one order to keep.
PATIENCE_S = 1.0

#: A pipe with nothing to take is left alone for so long, if nothing comes due before.
REST_S = 5.0

#: A pipe whose next message is due later for so long at most: what came back, of somebody who works no more,
#: is found then.
SORTED_REST_S = 30.0

# Commits

#: Grouped commits wait at most so long for company.
GROUP_S = 0.005

#: The pause between two attempts to write marks, while the lease runs.
PAUSE_S = 0.05
PAUSE_MAX_S = 1.0
