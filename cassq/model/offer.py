"""Offers: messages that a publisher lets others link.

Owns what is offered, and the names of sources. What must not break: no caller's writer has the name of a
source, so that the numbers of both are never mixed.
"""

from typing import NamedTuple

from cassq.model.ids import new_token
from cassq.model.message import Headers

#: What the name of a source begins with, and no other writer's: `check_name` refuses it.
_SOURCE = "~"


class Offer(NamedTuple):
    """Messages that are linked once, by whoever comes: under a number that its source did not have before.

    Attributes:
        source: the writer that the publisher is for this; see `new_source`.
        headers: one mapping for each body, or None where no message has any.
    """

    source: str
    number: int
    bodies: tuple[bytes, ...]
    headers: tuple[Headers, ...] | None


def new_source() -> str:
    """Return a writer's name that no caller gives."""
    return f"{_SOURCE}{new_token().hex}"


def is_source(writer: str) -> bool:
    """Tell whether a writer is the source of offers; its numbers count in one segment."""
    return writer.startswith(_SOURCE)
