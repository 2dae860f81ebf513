"""What one Cassandra node keeps, and how two copies of it become one.

Owns cells, timestamps, tombstones and reconciliation, column by column as Cassandra does it. Refuses to know
of requests, quorums and clocks.

What must not break: rows are never changed, only replaced, so that replicas may share them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The pseudo column that an INSERT writes: its row exists though every column be null.
MARKER = ""

Key = tuple[Any, ...]
#: By column: (timestamp, value).
Cells = Mapping[str, tuple[int, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The cells of one row, and when it was deleted."""

    cells: Cells
    deleted_at: int = -1

    def live(self, partition_deleted_at: int) -> dict[str, Any] | None:
        """Return its values by column; None when there are none."""
        dead_at = max(self.deleted_at, partition_deleted_at)
        found = {column: value for column, (at, value) in self.cells.items() if at > dead_at}
        return found if any(value is not None for value in found.values()) else None


@dataclass(slots=True, eq=False)
class Partition:
    """The rows of one partition, by clustering key, and when all of it was deleted."""

    rows: dict[Key, Row] = field(default_factory=dict)
    deleted_at: int = -1


@dataclass(slots=True, eq=False)
class Mutation:
    """What one write does to one partition.

    Attributes:
        rows: what becomes of each row.
        deleted_at: the timestamp of a deletion of all of it.
    """

    table: str
    key: Key
    rows: dict[Key, Row] = field(default_factory=dict)
    deleted_at: int = -1
    _known: dict[tuple[Key, int], tuple[Row, Row]] = field(default_factory=dict)

    def apply(self, partition: Partition) -> None:
        """Write it into one replica's partition; twice changes nothing."""
        partition.deleted_at = max(partition.deleted_at, self.deleted_at)
        for key, new in self.rows.items():
            old = partition.rows.get(key)
            partition.rows[key] = new if old is None else self._merged(key, old, new)

    def _merged(self, key: Key, old: Row, new: Row) -> Row:
        # Three replicas mostly have the same row: they get the same merged one.
        known = self._known.get((key, id(old)))
        if known is None:
            known = self._known[key, id(old)] = (old, merge_rows(old, new))
        return known[1]


def merge_rows(one: Row, other: Row) -> Row:
    """Reconcile two versions of a row: in each column the higher timestamp wins, then the larger value."""
    if one is other:
        return one
    cells = dict(one.cells)
    for column, cell in other.cells.items():
        mine = cells.get(column)
        if mine is None or _wins(cell, mine):
            cells[column] = cell
    return Row(cells, max(one.deleted_at, other.deleted_at))


def _wins(cell: tuple[int, Any], mine: tuple[int, Any]) -> bool:
    if cell[0] != mine[0]:
        return cell[0] > mine[0]
    if cell[1] is None or mine[1] is None:
        return cell[1] is None  # a tombstone beats a value
    try:
        return bool(cell[1] > mine[1])
    except TypeError:
        return repr(cell[1]) > repr(mine[1])


def merge_partitions(partitions: Iterable[Partition]) -> Partition:
    """Reconcile what several replicas have of one partition."""
    first, *others = partitions
    merged = Partition(dict(first.rows), first.deleted_at)
    for other in others:
        merged.deleted_at = max(merged.deleted_at, other.deleted_at)
        for key, row in other.rows.items():
            mine = merged.rows.get(key)
            merged.rows[key] = row if mine is None or mine is row else merge_rows(mine, row)
    return merged


class Replica:
    """One node's copy of everything."""

    def __init__(self) -> None:
        self.is_up = True
        self._partitions: dict[tuple[str, Key], Partition] = {}

    def partition(self, table: str, key: Key) -> Partition:
        """Return its copy of a partition."""
        found = self._partitions.get((table, key))
        if found is None:
            found = self._partitions[table, key] = Partition()
        return found

    def keys(self, table: str) -> list[Key]:
        """Return the keys of every partition of a table that it knows of."""
        return [key for name, key in self._partitions if name == table]

    def compact(self, table: str) -> None:
        """Forget deletions, as compaction does once they are older than gc_grace_seconds."""
        for key in self.keys(table):
            partition = self.partition(table, key)
            partition.rows = {
                ck: Row({column: cell for column, cell in row.cells.items() if cell[0] > row.deleted_at})
                for ck, row in partition.rows.items()
                if row.live(partition.deleted_at) is not None
            }

    def apply(self, mutation: Mutation) -> None:
        """Write."""
        mutation.apply(self.partition(mutation.table, mutation.key))

    def take_over(self, table: str, key: Key, merged: Partition) -> None:
        """Become equal to what a read found: read repair."""
        mine = self.partition(table, key)
        mine.deleted_at = max(mine.deleted_at, merged.deleted_at)
        mine.rows.update(merged.rows)
