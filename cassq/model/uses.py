"""What a queue was ever used with, so that nobody looks for what was never there.

Owns where that stands: among the stored settings, which an older cassq keeps though it does not know them.
What must not break: it stands there before the first message does that it tells of.
"""

from dataclasses import replace

from cassq.model.label import Label
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings

_TTL = "uses_message_ttl"
_PRIORITY = "uses_priority"


def uses_message_ttl(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a time-to-live of its own."""
    return _TTL in settings.others


def uses_priority(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a priority."""
    return _PRIORITY in settings.others


def is_told(settings: QueueSettings, label: Label) -> bool:
    """Tell whether a queue says of itself that there are messages with what this label has."""
    return _uses(label) <= settings.others.keys()


def with_uses(record: QueueRecord, label: Label) -> QueueRecord:
    """Return the record of a queue into which messages with this label may be pushed."""
    settings = record.settings
    return replace(
        record, settings=replace(settings, others={**settings.others, **dict.fromkeys(_uses(label), 1)})
    )


def _uses(label: Label) -> set[str]:
    return {name for name, value in ((_TTL, label.ttl_ms), (_PRIORITY, label.priority)) if value}
