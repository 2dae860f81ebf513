"""What a message is pushed with that steers it: its label.

Owns which values one may have. Pure. What must not break: a batch has messages of one label, and a pipe those
of one priority, type and slot.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cassq.errors import InvalidOptionError
from cassq.model.arguments import tell_duration
from cassq.model.ids import check_name, shorten
from cassq.model.key import NO_SLOT, check_key
from cassq.model.options import PushOptions
from cassq.model.schedule import AT_ONCE, LEAD_MAX_S, SOON
from cassq.model.settings import TTL_MAX, TTL_MIN

#: The highest priority; 0 is that of a message which names none.
PRIORITY_MAX = 9

#: A time-to-live is rounded up by 1/64 of itself at most: a batch has messages of one such time.
STEPS_BITS = 7

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LEAD_MAX = timedelta(seconds=LEAD_MAX_S)


class Label(NamedTuple):
    """What steers a message.

    Attributes:
        ttl_ms: how long it may wait for its consumer; 0 for as long as its queue says.
        priority: consumers get those of a higher one first.
        type: consumers may ask for those of some types; "" for none.
        due_class: how long it waits until it is due; see `cassq.model.schedule`.
        due_ms: when that is, by the database's clock; 0 for at once.
        slot: of the key, in the queue that it is pushed into; NO_SLOT until that is known, and without a key.
        key: of all messages with it one is in a consumer's hands at a time; "" for none.
    """

    ttl_ms: int = 0
    priority: int = 0
    type: str = ""
    due_class: int = AT_ONCE
    due_ms: int = 0
    slot: int = NO_SLOT
    key: str = ""

    @property
    def of_batch(self) -> "Label":
        """What it has in common with all messages of its batch."""
        return self._replace(due_ms=0, key="") if self.due_ms or self.key else self

    @property
    def of_pipe(self) -> "Label":
        """What it has in common with all messages of its pipe."""
        if self.ttl_ms or self.due_ms or self.key:
            return self._replace(ttl_ms=0, due_ms=0, key="")
        return self


#: Of messages that were pushed without options.
UNLABELLED = Label()


def to_label(options: PushOptions) -> Label:
    """Return the label of messages that are pushed with these options.

    Raises:
        InvalidOptionError: one is unknown, of the wrong type, or out of range.
        InvalidNameError: the type of the messages breaks the rule of names.
    """
    for name in options.keys() - PushOptions.__annotations__.keys():
        known = ", ".join(sorted(PushOptions.__annotations__))
        raise InvalidOptionError(f"{shorten(name)} is no option of a push; the options are {known}")
    ttl, priority, kind = options.get("ttl"), options.get("priority", 0), options.get("type")
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidOptionError(
            f"priority={shorten(priority)} must be a whole number from 0 to {PRIORITY_MAX}: the higher one "
            "goes first, and 0 is that of a message which names none"
        )
    checked = "" if kind is None else check_name(kind, "type of messages")
    ttl_ms = 0 if ttl is None else _to_ttl_ms(ttl)
    delay, due_ms = to_delay(options), _to_due_ms(options)
    due_class = AT_ONCE if delay is None and due_ms is None else SOON
    key = "" if options.get("key") is None else check_key(options["key"])
    if key and due_class:
        raise InvalidOptionError(
            f"key={shorten(key)} goes with no delay= and no due=, as what waits would hold up its key: "
            "push it once it is due"
        )
    return Label(ttl_ms, priority, checked, due_class, due_ms or 0, key=key)


def to_delay(options: PushOptions) -> timedelta | None:
    """Return how long messages wait until they are due, from the push on; None where no delay is given.

    Raises:
        InvalidOptionError: it is no timedelta, negative, or both delay and due are given.
    """
    delay = options.get("delay")
    if delay is None:
        return None
    if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= _LEAD_MAX:
        told = tell_duration(delay) if isinstance(delay, timedelta) else shorten(delay)
        raise InvalidOptionError(f"delay={told} must be a timedelta from 0 to {_LEAD_MAX.days} days")
    if options.get("due") is not None:
        raise InvalidOptionError("a message has a delay or a due time: give one of them")
    return delay or None


def _to_due_ms(options: PushOptions) -> int | None:
    due = options.get("due")
    if due is None:
        return None
    try:
        has_zone = isinstance(due, datetime) and due.utcoffset() is not None
    except Exception as error:
        raise InvalidOptionError(f"due={shorten(due)} has a time zone that raises {error!r}") from error
    if not has_zone:
        raise InvalidOptionError(
            f"due={shorten(due)} must be a datetime with a time zone, for example "
            "datetime.now(UTC) + timedelta(hours=1); delay= counts from the push on"
        )
    return max(0, -((_EPOCH - due) // _MILLISECOND))


def to_types(types: object) -> frozenset[str]:
    """Return the types that a popper is for; none for all messages.

    Raises:
        InvalidOptionError: they are not several names.
        InvalidNameError: one breaks the rule of names.
    """
    if types is None:
        return frozenset()
    if isinstance(types, str | bytes) or not isinstance(types, Iterable):
        raise InvalidOptionError(f"types={shorten(types)} are not several types: give a list of names")
    checked = frozenset(check_name(each, "type of messages") for each in types)
    if not checked:
        raise InvalidOptionError("types=[] would take no message: name some types, or None for all messages")
    return checked


def _to_ttl_ms(ttl: object) -> int:
    if not isinstance(ttl, timedelta) or not TTL_MIN <= ttl <= TTL_MAX:
        told = tell_duration(ttl) if isinstance(ttl, timedelta) else shorten(ttl)
        raise InvalidOptionError(
            f"ttl={told} must be a timedelta from {tell_duration(TTL_MIN)} to {tell_duration(TTL_MAX)}, "
            "or left out for a message that waits as long as the queue says"
        )
    ttl_ms = -(-ttl // timedelta(milliseconds=1))
    step = 1 << max(0, ttl_ms.bit_length() - STEPS_BITS)
    return -(-ttl_ms // step) * step
