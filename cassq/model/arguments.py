"""Checks of what callers hand in, where several methods take the same.

Owns the one grammar of durations: options of the command line, of a URL and of Spark are read here.
"""

import re
from datetime import date, datetime, timedelta
from fractions import Fraction

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten

#: Longer than anybody waits, and short enough for every clock of the operating system.
SECONDS_MAX = timedelta(days=365).total_seconds()

#: A number and its unit. A bare number is seconds, as it is in Python.
_DURATION = re.compile(r"([0-9]{1,2000}(?:\.[0-9]{1,2000})?)(ms|s|m|h|d)?")
_UNITS_US = {"ms": 1000, "s": 10**6, None: 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}

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


def seconds_of(timeout: object) -> float:
    """Return a time-out in seconds; None is a year, which is longer than anybody waits.

    Raises:
        InvalidOptionError: see `to_seconds`.
    """
    return SECONDS_MAX if timeout is None else to_seconds(timeout)


def to_duration(given: object) -> timedelta:
    """Return a duration that was written as 500ms, 30s, 2m, 1h, 1d, or as a number of seconds.

    Args:
        given: the text; a timedelta is returned as it is, an int or a float counts seconds.

    Raises:
        InvalidOptionError: it is no duration, is finer than a microsecond or too long.
    """
    if isinstance(given, timedelta):
        return given
    # As text, so that a float is what it shows: 0.1 s, not its nearest binary fraction.
    text = shorten(given) if type(given) in {int, float} else given
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise InvalidOptionError(
            f"{shorten(given)} is not a duration: it must be a number of seconds, or a number with its unit: "
            "write 500ms, 30s, 2m, 1h or 1d"
        )
    # By fractions: a float would make another duration of one that is long and exact.
    microseconds = Fraction(match[1]) * _UNITS_US[match[2]]
    if microseconds.denominator != 1:
        raise InvalidOptionError(f"{shorten(given)} is finer than a microsecond")
    try:
        return timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise InvalidOptionError(f"{shorten(given)} is too long") from None


def check_between(name: str, given: object, low: timedelta, high: timedelta) -> timedelta:
    """Return a duration from `low` to `high`, both included.

    Raises:
        InvalidOptionError: it is no duration, or out of range; the message names the option and the range.
    """
    bounds = f"{tell_duration(low)} to {tell_duration(high)}"
    try:
        duration = to_duration(given)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{name}: {error} ({bounds})") from None
    if not low <= duration <= high:
        raise InvalidOptionError(f"{name}={shorten(given)} is out of range: {bounds}")
    return duration


def tell_duration(duration: timedelta) -> str:
    """Return a duration as it may be written: in seconds."""
    return f"{duration.total_seconds():.15g}s"


def to_day(day: object) -> date:
    """Return a day, without a time.

    Raises:
        InvalidOptionError: it is none.
    """
    if isinstance(day, datetime) or not isinstance(day, date):
        raise InvalidOptionError(f"{day=} is not a datetime.date: give the day, in UTC, without a time")
    return day
