"""What one Cassandra node keeps, and how two copies of it become one.

Owns cells, timestamps, tombstones and reconciliation, column by column as Cassandra does it. Refuses to know
of requests, quorums and clocks.

What must not break: rows are never changed, only replaced, so that replicas may share them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The pseudo column that an INSERT writes: its row exists though every column be null.
MARKER = ""

Key = tuple[Any, ...]
#: By column: (timestamp, value).
Cells = Mapping[str, tuple[int, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The cells of one row, and when it was deleted.

    Attributes:
        deleted_at: the timestamp of the deletion.
        deleted_on: when that was made, in the world's seconds: it is forgotten so long after.
    """

    cells: Cells
    deleted_at: int = -1
    deleted_on: float = 0.0

    def live(self, covered_at: int) -> dict[str, Any] | None:
        """Return its values by column, with a deletion of more than this row; None when there are none."""
        dead_at = max(self.deleted_at, covered_at)
        found = {column: value for column, (at, value) in self.cells.items() if at > dead_at}
        return found if any(value is not None for value in found.values()) else None


#: The first and the last clustering key of a range that was deleted, both included; and as in a row, when.
Ranges = dict[tuple[Key, Key], tuple[int, float]]


@dataclass(slots=True, eq=False)
class Partition:
    """The rows of one partition, by clustering key, and when it, or ranges of it, were deleted."""

    rows: dict[Key, Row] = field(default_factory=dict)
    deleted_at: int = -1
    deleted_on: float = 0.0
    ranges: Ranges = field(default_factory=dict)

    def delete(self, deleted_at: int, deleted_on: float, ranges: Ranges) -> None:
        """Delete all of it, and ranges, unless they were deleted later."""
        if deleted_at > self.deleted_at:
            self.deleted_at, self.deleted_on = deleted_at, deleted_on
        for bounds, deletion in ranges.items():
            self.ranges[bounds] = max(deletion, self.ranges.get(bounds, deletion))

    def dead_at(self, ck: Key) -> int:
        """Return the timestamp of the last deletion that covers more than this row."""
        if not self.ranges:
            return self.deleted_at
        covering = (at for (first, last), (at, _) in self.ranges.items() if first <= ck <= last)
        return max(self.deleted_at, *covering, -1)

    def count_tombstones(self, read: Collection[Key]) -> int:
        """Return how many a read of these rows meets: a range has two, and swallows those of its rows."""
        rows = sum(self.rows[ck].deleted_at > self.dead_at(ck) for ck in read)
        met = (any(first <= ck <= last for ck in read) for first, last in self.ranges)
        return rows + 2 * sum(met)

    def live(self, ck: Key) -> dict[str, Any] | None:
        """Return the values of a row by column; None when there are none."""
        row = self.rows.get(ck)
        return row.live(self.dead_at(ck)) if row else None


@dataclass(slots=True, eq=False)
class Mutation:
    """What one write does to one partition.

    Attributes:
        rows: what becomes of each row.
        deleted_at, deleted_on: of a deletion of all of it.
        ranges: what else is deleted.
    """

    table: str
    key: Key
    rows: dict[Key, Row] = field(default_factory=dict)
    deleted_at: int = -1
    deleted_on: float = 0.0
    ranges: Ranges = field(default_factory=dict)
    _known: dict[tuple[Key, int], tuple[Row, Row]] = field(default_factory=dict)

    def apply(self, partition: Partition) -> None:
        """Write it into one replica's partition; twice changes nothing."""
        partition.delete(self.deleted_at, self.deleted_on, self.ranges)
        for key, new in self.rows.items():
            old = partition.rows.get(key)
            partition.rows[key] = new if old is None else self._merged(key, old, new)

    @property
    def partition(self) -> Partition:
        """What it makes of an empty partition."""
        return Partition(self.rows, self.deleted_at, self.deleted_on, self.ranges)

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
    newer = one if one.deleted_at >= other.deleted_at else other
    return Row(cells, newer.deleted_at, newer.deleted_on)


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
    merged = Partition(dict(first.rows), first.deleted_at, first.deleted_on, dict(first.ranges))
    for other in others:
        merged.delete(other.deleted_at, other.deleted_on, other.ranges)
        for key, row in other.rows.items():
            mine = merged.rows.get(key)
            merged.rows[key] = row if mine is None or mine is row else merge_rows(mine, row)
    return merged


class Replica:
    """One node's copy of everything.

    Attributes:
        is_lost: whether it was wiped, and nobody has replaced it yet.
        lives: how often that has happened; what was on its way to it then never comes.
    """

    def __init__(self) -> None:
        self.is_up = True
        self.is_lost = False
        self.lives = 0
        self._partitions: dict[tuple[str, Key], Partition] = {}
        self._gone: list[dict[tuple[str, Key], Partition]] = []

    def partition(self, table: str, key: Key) -> Partition:
        """Return its copy of a partition."""
        found = self._partitions.get((table, key))
        if found is None:
            found = self._partitions[table, key] = Partition()
        return found

    def keys(self, table: str) -> list[Key]:
        """Return the keys of every partition of a table that it knows of."""
        return [key for name, key in self._partitions if name == table]

    def places(self) -> list[tuple[str, Key]]:
        """Return table and key of every partition that it knows of."""
        return list(self._partitions)

    def lose(self) -> None:
        """Be wiped; what was there can still be asked `had`."""
        self.is_lost = True
        self.lives += 1
        self._gone.append(self._partitions)
        self._partitions = {}

    def had(self, table: str, key: Key, ck: Key, columns: Collection[str]) -> bool:
        """Tell whether it has, or had when it was lost, these columns of a row, deleted or not."""
        for partitions in (self._partitions, *self._gone):
            partition = partitions.get((table, key))
            row = partition.rows.get(ck) if partition else None
            if row is not None and all(name in row.cells for name in columns):
                return True
        return False

    def compact(self, table: str) -> None:
        """Forget every deletion in a table."""
        for key in self.keys(table):
            self.forget(table, key, float("inf"))

    def forget(self, table: str, key: Key, before: float) -> None:
        """Forget the deletions in a partition that were made before then, and what they deleted."""
        partition = self.partition(table, key)
        if any(row.deleted_at >= 0 for row in partition.rows.values()):
            partition.rows = dict(_without_deleted_rows(partition, before))
        old = {bounds for bounds, (_, deleted_on) in partition.ranges.items() if deleted_on < before}
        is_old = partition.deleted_at >= 0 and partition.deleted_on < before
        if old or is_old:
            live = ((ck, _without(row, partition.dead_at(ck))) for ck, row in partition.rows.items())
            partition.rows = {ck: row for ck, row in live if row.cells or row.deleted_at >= 0}
            partition.ranges = {each: at for each, at in partition.ranges.items() if each not in old}
            partition.deleted_at = -1 if is_old else partition.deleted_at

    def apply(self, mutation: Mutation) -> None:
        """Write."""
        mutation.apply(self.partition(mutation.table, mutation.key))

    def adopt(self, table: str, key: Key, merged: Partition) -> None:
        """Take over all of a partition: what an operator's repair and a replaced node do."""
        self.take_over(table, key, merged, merged.rows, None)

    def take_over(
        self, table: str, key: Key, merged: Partition, read: Iterable[Key], named: Collection[str] | None
    ) -> None:
        """Take over what a read found: read repair.

        Args:
            read: the rows that it read.
            named: the columns that it named, which are the only ones that are written back; None for all.
        """
        mine = self.partition(table, key)
        mine.delete(merged.deleted_at, merged.deleted_on, merged.ranges)
        for ck in read:
            row, old = merged.rows.get(ck), mine.rows.get(ck)
            if row is None or row is old:
                continue
            if named is not None:
                row = Row(
                    {name: cell for name, cell in row.cells.items() if name in named or name == MARKER},
                    row.deleted_at,
                    row.deleted_on,
                )
            new = row if old is None else merge_rows(old, row)
            # As a rule nothing came in between: replicas that are equal share their rows.
            mine.rows[ck] = row if (new.cells, new.deleted_at) == (row.cells, row.deleted_at) else new


def _without_deleted_rows(partition: Partition, before: float) -> Iterator[tuple[Key, Row]]:
    for ck, row in partition.rows.items():
        if row.deleted_at < 0 or row.deleted_on >= before:
            yield ck, row
        elif kept := _without(row, row.deleted_at).cells:
            yield ck, Row(kept)


def _without(row: Row, deleted_at: int) -> Row:
    """Return a row without the cells that a deletion shadows."""
    kept = {column: cell for column, cell in row.cells.items() if cell[0] > deleted_at}
    return Row(kept, row.deleted_at, row.deleted_on) if len(kept) < len(row.cells) else row
