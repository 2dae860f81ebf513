"""What a message is pushed with that steers it: its label.

Owns which values one may have. Pure. What must not break: a batch has messages of one label, and a pipe those
of one priority and type.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from cassq.errors import InvalidOptionError
from cassq.model.arguments import tell_duration
from cassq.model.ids import check_name, shorten
from cassq.model.options import PushOptions
from cassq.model.settings import TTL_MAX, TTL_MIN

#: The highest priority; 0 is that of a message which names none.
PRIORITY_MAX = 9

#: A time-to-live is rounded up by 1/64 of itself at most: a batch has messages of one such time.
STEPS_BITS = 7


class Label(NamedTuple):
    """What steers a message.

    Attributes:
        ttl_ms: how long it may wait for its consumer; 0 for as long as its queue says.
        priority: consumers get those of a higher one first.
        type: consumers may ask for those of some types; "" for none.
    """

    ttl_ms: int = 0
    priority: int = 0
    type: str = ""

    @property
    def of_pipe(self) -> "Label":
        """What it has in common with all messages of its pipe."""
        return Label(0, self.priority, self.type) if self.ttl_ms else self


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
    return Label(0 if ttl is None else _to_ttl_ms(ttl), priority, checked)


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
