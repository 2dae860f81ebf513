"""What a queue was ever used with, so that nobody looks for what was never there.

Owns where that stands: among the stored settings, which an older cassq keeps though it does not know them.
What must not break: it stands there before the first message does that it tells of, and two types never have
one number.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import or_

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten
from cassq.model.key import NO_SLOT
from cassq.model.label import Label
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.shelf import MOVING, Shelf

_TTL = "uses_message_ttl"
_PRIORITY = "uses_priority"
_DUE = "uses_due"
_SCHEDULES = "uses_schedules"
_KEYS = "uses_keys"
_TYPES = "uses_types"

#: Before the name of each type, among the stored settings.
_TYPE = "type:"

#: A queue knows so many types at most: each has a bit of a number.
TYPES_MAX = 62

#: The bits of all types.
ANY_TYPE = (1 << TYPES_MAX + 1) - 2

#: Whatever a popper takes, also those types that nobody has pushed yet.
EVERY_POPPER = ANY_TYPE | 1


def uses_message_ttl(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a time-to-live of its own."""
    return _TTL in settings.others


def uses_priority(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a priority."""
    return _PRIORITY in settings.others


def uses_due(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a due time."""
    return _DUE in settings.others


def uses_schedules(settings: QueueSettings) -> bool:
    """Tell whether the queue ever had a schedule."""
    return _SCHEDULES in settings.others


def with_schedules(record: QueueRecord) -> QueueRecord:
    """Return the record of a queue that may have schedules."""
    others = {**record.settings.others, _SCHEDULES: 1}
    return replace(record, settings=replace(record.settings, others=others))


def uses_keys(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a key."""
    return _KEYS in settings.others


def uses_types(settings: QueueSettings) -> bool:
    """Tell whether a message was ever pushed with a type."""
    return _TYPES in settings.others


def shelves_of(settings: QueueSettings) -> tuple[Shelf, ...]:
    """Return the lists that pipes of a queue may stand in, each before those that they move on to from it."""
    moving = MOVING if uses_due(settings) else (Shelf.STAGED, Shelf.READY)
    return (*moving, Shelf.KEYED) if uses_keys(settings) else moving


def types_of(settings: QueueSettings) -> list[str]:
    """Return the types that messages were ever pushed with, the first one first."""
    numbers = {name[len(_TYPE) :]: n for name, n in settings.others.items() if name.startswith(_TYPE)}
    return sorted(numbers, key=numbers.__getitem__)


def bits_of(settings: QueueSettings, types: Iterable[str]) -> int:
    """Return a bit for each type of messages that there are; none for "", those without one.

    One that this process has not heard of yet may be any.
    """
    numbers = [settings.others.get(_TYPE + name) for name in types if name]
    return reduce(or_, (ANY_TYPE if number is None else 1 << number for number in numbers), 0)


def wanted_bits(settings: QueueSettings, types: Iterable[str]) -> int:
    """Return a bit for each of the types that a popper is for; none for those that nobody has pushed yet."""
    numbers = [settings.others.get(_TYPE + name) for name in types]
    return reduce(or_, (1 << number for number in numbers if number), 0)


def is_told(settings: QueueSettings, label: Label) -> bool:
    """Tell whether a queue says of itself that there are messages with what this label has."""
    return _uses(label) <= settings.others.keys()


def with_uses(record: QueueRecord, *labels: Label) -> QueueRecord:
    """Return the record of a queue into which messages with these labels may be pushed.

    Raises: InvalidOptionError: it would have too many types.
    """
    others = dict(record.settings.others)
    for name in sorted({name for label in labels for name in _uses(label)} - others.keys()):
        others[name] = 1 + sum(each.startswith(_TYPE) for each in others) if name.startswith(_TYPE) else 1
    types = [name[len(_TYPE) :] for name in others if name.startswith(_TYPE)]
    if len(types) > TYPES_MAX:
        known = types_of(record.settings)
        raise InvalidOptionError(
            f"queue {record.name!r} has {len(known)} types, and takes {TYPES_MAX}: "
            f"{shorten(next(name for name in types if name not in known))} is one too many ({known[0]}, "
            f"{known[1]}, … are known); a type is a kind of message that some consumers are for, so put what "
            "differs more into a header"
        )
    return replace(record, settings=replace(record.settings, others=others))


def _steering(label: Label) -> tuple[tuple[str, int], ...]:
    return (
        (_TTL, label.ttl_ms),
        (_PRIORITY, label.priority),
        (_DUE, label.due_class),
        (_KEYS, label.slot - NO_SLOT),
    )


def _uses(label: Label) -> set[str]:
    uses = {name for name, value in _steering(label) if value}
    return uses | {_TYPES, _TYPE + label.type} if label.type else uses
