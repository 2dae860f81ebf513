"""What can be read of all records of a store, where some are damaged.

What must not break: one damaged record hides no other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cassq.errors import DecodeError

Record = TypeVar("Record")


def readable(
    read_all: Callable[[], Sequence[Record]],
    names: Callable[[], Sequence[str]],
    find: Callable[[str], Record | None],
    note_damage: Callable[[str, DecodeError], None],
) -> Iterator[Record]:
    """Yield the records of all, deleted or not; of those that cannot be read tell it.

    Where one is damaged, the living ones are read one by one: the deleted ones wait for its repair.

    Args:
        find: returns the record of a name; None where it was deleted meanwhile.
    """
    try:
        yield from read_all()
    except DecodeError:
        for name in names():
            try:
                record = find(name)
            except DecodeError as error:
                note_damage(name, error)
            else:
                if record is not None:
                    yield record
