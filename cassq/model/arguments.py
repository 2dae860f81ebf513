"""Checks of what callers hand in, where several methods take the same."""

from datetime import timedelta

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten

#: Longer than anybody waits, and short enough for every clock of the operating system.
SECONDS_MAX = timedelta(days=365).total_seconds()

#: At most so many messages are looked at or popped in one call.
COUNT_MAX = 1_000_000


def check_count(count: object) -> int:
    """Return a number of messages.

    Raises:
        InvalidOptionError: it is no int, or out of range.
    """
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COUNT_MAX:
        raise InvalidOptionError(f"count={shorten(count)} must be an int of 1 or more, {COUNT_MAX} at most")
    return count


def to_seconds(timeout: object) -> float:
    """Return a time-out in seconds, a year at most.

    Raises:
        InvalidOptionError: it is neither a number of seconds nor a timedelta, or negative.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidOptionError(
            f"timeout={shorten(timeout)} must be a timedelta or a number of seconds, 0 or more"
        )
    # Compared first: an int may be larger than any float.
    return SECONDS_MAX if seconds >= SECONDS_MAX else float(seconds)
