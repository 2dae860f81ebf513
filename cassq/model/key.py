"""Keys of messages, and the slots that they are spread over.

Owns which keys there may be, and which slot one has. Pure. What must not break: a key has one slot, for every
process of every version, as long as its queue lives.
"""

import re
from collections.abc import Iterable
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid5
from zlib import crc32

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten

#: A key names somebody or something: as UTF-8 it has so many bytes at most.
KEY_BYTES_MAX: Final = 256

#: The slot of messages without a key.
NO_SLOT: Final = -1

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


def check_key(key: object) -> str:
    """Return the key of a message.

    Raises:
        InvalidOptionError: it is no str, is empty or too long, or has characters that no key has.
    """
    if not isinstance(key, str):
        raise InvalidOptionError(
            f"key={shorten(key)} must be a str, not {type(key).__name__}: {_way_out(key)}, or leave it out "
            "for a message without a key"
        )
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidOptionError(
            f"key={shorten(key)} cannot be written as UTF-8: leave surrogates out of it"
        ) from None
    if not 1 <= size <= KEY_BYTES_MAX:
        raise InvalidOptionError(
            f"key={shorten(key)} has {size} bytes of UTF-8, and a key has 1 to {KEY_BYTES_MAX}: "
            + ("take a hash of it" if size else "leave it out for a message without a key")
        )
    if found := _CONTROL.search(key):
        raise InvalidOptionError(
            f"key={shorten(key)} has {found[0]!r} in it, and a key has no control characters: encode it"
        )
    return key


def _way_out(key: object) -> str:
    if isinstance(key, bytes | bytearray | memoryview):
        return "decode it, or write it as key.hex()"
    if isinstance(key, Iterable):
        return "a message has one key, so join its parts, as in ':'.join(parts)"
    return "write a number, or an id, as str(number)"


def slot_of(key: str, key_slots: int) -> int:
    """Return the slot of a key, from 0 on, in a queue that has so many."""
    return crc32(key.encode()) % key_slots


def slot_claim(incarnation: UUID, slot: int) -> UUID:
    """Return what stands for a slot of a queue where pipes are claimed."""
    return uuid5(NAMESPACE_OID, f"{incarnation}/{slot}")
