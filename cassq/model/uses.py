"""What a queue was ever used with, so that nobody looks for what was never there.

Owns where that stands: among the stored settings, which an older cassq keeps though it does not know them.
What must not break: it stands there before the first message does that it tells of.
"""

from dataclasses import replace
from datetime import timedelta

from cassq.errors import InvalidOptionError
from cassq.model.arguments import tell_duration
from cassq.model.ids import shorten
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import TTL_MAX, TTL_MIN, QueueSettings

_TTL = "uses_message_ttl"

#: A time-to-live is rounded up by 1/64 of itself at most: a batch has messages of one such time.
STEPS_BITS = 7


def uses_message_ttl(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a time-to-live of its own."""
    return _TTL in settings.others


def with_message_ttl(record: QueueRecord) -> QueueRecord:
    """Return the record of a queue into which such a message may be pushed."""
    settings = record.settings
    return replace(record, settings=replace(settings, others={**settings.others, _TTL: 1}))


def to_ttl_ms(ttl: object) -> int:
    """Return the time-to-live of a message in milliseconds.

    Raises:
        InvalidOptionError: it is no timedelta, or out of range.
    """
    if not isinstance(ttl, timedelta) or not TTL_MIN <= ttl <= TTL_MAX:
        told = tell_duration(ttl) if isinstance(ttl, timedelta) else shorten(ttl)
        raise InvalidOptionError(
            f"ttl={told} must be a timedelta from {tell_duration(TTL_MIN)} to {tell_duration(TTL_MAX)}, "
            "or left out for a message that waits as long as the queue says"
        )
    ttl_ms = -(-ttl // timedelta(milliseconds=1))
    step = 1 << max(0, ttl_ms.bit_length() - STEPS_BITS)
    return -(-ttl_ms // step) * step
