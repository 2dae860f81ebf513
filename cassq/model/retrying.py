"""When a message that failed is tried again, and the words for why it failed.

Pure. What must not break: how long a message rests depends on its id, its attempt and the settings alone, so
whoever rolls it back, and however often that is repeated, comes to the same.
"""

import traceback
from datetime import timedelta
from uuid import UUID
from zlib import crc32

from cassq.errors import InvalidOptionError
from cassq.limits import REASON_BYTES_MAX
from cassq.model.arguments import tell_duration
from cassq.model.ids import shorten
from cassq.model.settings import DELAY_MAX, QueueSettings

#: What stands for the reason where a consumer gave none.
NO_REASON = "rolled back without a reason"

#: And where one rejects without a reason.
NO_REASON_TO_REJECT = "rejected without a reason"

#: What stands for it where a lease ran out.
LEASE_ENDED = "lease ended"

#: And of a message that nobody took in time.
EXPIRED = "expired: it waited for longer than its ttl"

_MILLISECOND = timedelta(milliseconds=1)


def rest_ms(settings: QueueSettings, pipe: UUID, seq: int, attempt: int) -> int:
    """Return how long a message rests after an attempt that failed, in milliseconds.

    That is retry_delay for the first, retry_factor_percent of it for each further one, retry_delay_max at
    most; then up to retry_jitter_percent more or less: what failed together does not come back together.

    Args:
        attempt: which delivery it was, from 1.
    """
    first, most = settings.retry_delay / _MILLISECOND, settings.retry_delay_max / _MILLISECOND
    try:
        rest = min(most, first * (settings.retry_factor_percent / 100) ** (attempt - 1))
    except OverflowError:
        rest = most if first else 0
    # From -1 to 1, spread evenly over messages.
    place = crc32(b"%b:%d:%d" % (pipe.bytes, seq, attempt)) / (2**31 - 0.5) - 1
    return round(rest * (1 + place * settings.retry_jitter_percent / 100))


def to_delay_ms(delay: object) -> int:
    """Return how long a caller wants a message to rest, in milliseconds.

    Raises:
        InvalidOptionError: it is no timedelta, negative or too long.
    """
    if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= DELAY_MAX:
        raise InvalidOptionError(
            f"delay={shorten(delay)} must be a timedelta from 0 to {tell_duration(DELAY_MAX)}"
        )
    return round(delay / _MILLISECOND)


def to_reason(reason: object) -> str:
    """Return a reason as it is stored: cut to 1 KiB, and text that UTF-8 can carry.

    Raises:
        InvalidOptionError: it is no text.
    """
    if not isinstance(reason, str):
        raise InvalidOptionError(f"reason={shorten(reason)} must be a text, not {type(reason).__name__}")
    stored = reason[:REASON_BYTES_MAX].encode("utf-8", "backslashreplace")
    return stored[:REASON_BYTES_MAX].decode("utf-8", "ignore")


def reason_of(error: BaseException) -> str:
    """Return the class and the text of an error, and its notes, as a reason."""
    try:
        told = "".join(traceback.format_exception_only(error))
    except Exception:  # whatever the error's own code raises: the error of the work is the one to tell
        told = type(error).__qualname__
    return to_reason(told.strip())


def in_one_line(reason: str) -> str:
    """Return a reason for a log or a table: without line ends, and without what a terminal would obey."""
    return " ".join("".join(each if each.isprintable() else " " for each in reason).split())
