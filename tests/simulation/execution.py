"""What one statement does to one partition.

Owns keys, conditions, and turning rows into what the driver returns. Pure: it knows neither replicas nor
time.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, cast
from uuid import UUID

from cassandra.query import UNSET_VALUE
from cql import Relation, Select, Table, Term, Write, tables, written_in
from replicas import MARKER, Key, Mutation, Partition, Row, merge_rows

#: A statement and what is bound to it.
Bound = tuple[Select | Write, Sequence[Any]]

_LOW = 2**64 - 1
_SIGNS = 0x8080808080808080

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as the driver returns them


class Answer(list[tuple[Any, ...]]):
    """The rows of a reply, with the names of their columns."""

    def __init__(self, column_names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(rows)
        self.column_names = column_names


def place_of(bound: Bound) -> tuple[str, Key] | None:
    statement, values = bound
    if isinstance(statement, Write):
        return statement.table.name, cast("Key", _partition_key(statement.table, statement.key, values))
    if statement.table is None:
        return None
    key = key_of(statement, values)
    return None if key is None else (statement.table.name, key)


def key_of(select: Select, values: Sequence[Any]) -> Key | None:
    terms = {relation.columns[0]: relation.terms[0] for relation in select.where if relation.sign == "="}
    return _partition_key(cast("Table", select.table), terms, values)


def _partition_key(table: Table, terms: Any, values: Sequence[Any]) -> Key | None:
    try:
        return tuple([terms[column].of(values, 0) for column in table.partition])
    except KeyError:
        return None


def _encode(kind: str, value: Any) -> Any:
    """Return what orders as Cassandra does: time-UUIDs by their time, then as signed bytes."""
    if kind != "timeuuid":
        return value
    return value.time, value.int & _LOW ^ _SIGNS, value.int


def to_mutation(
    work: Sequence[tuple[Write, Sequence[Any]]], now_ms: int, timestamp: int, made_on: float = 0.0
) -> Mutation:
    """Return what a write does.

    Args:
        made_on: when a deletion was made, in the world's seconds.
    """
    first, values = work[0]
    key = cast("Key", _partition_key(first.table, first.key, values))
    mutation = Mutation(first.table.name, key)
    for write, bound in work:
        table = write.table
        if (table.name, _partition_key(table, write.key, bound)) != (mutation.table, key):
            raise ValueError("one write, two partitions")
        at = timestamp if write.timestamp is None else write.timestamp.of(bound, now_ms)
        if write.within:
            low, high = (
                _encode(table.types[write.within[0]], term.of(bound, 0)) for term in write.within[1:]
            )
            around = _clustering(table, write.key, bound)
            mutation.ranges[(*around, low), (*around, high)] = at, made_on
            continue
        if not all(column in write.key for column in table.clustering):
            mutation.deleted_at, mutation.deleted_on = at, made_on
            continue
        ck = _clustering(table, write.key, bound)
        if write.cells is None:
            mutation.rows[ck] = Row({}, at, made_on)
            continue
        cells: dict[str, tuple[int, Any]] = {MARKER: (at, True)} if write.is_insert else {}
        for column, term in write.cells:
            value = term.of(bound, now_ms)
            if value is not UNSET_VALUE:
                cells[column] = (at, value)
        row = Row(cells)
        mutation.rows[ck] = merge_rows(mutation.rows[ck], row) if ck in mutation.rows else row
    return mutation


def _clustering(table: Table, terms: Any, values: Sequence[Any]) -> Key:
    known = [column for column in table.clustering if column in terms]
    return tuple(_encode(table.types[column], terms[column].of(values, 0)) for column in known)


def live_rows(partition: Partition) -> list[tuple[Key, dict[str, Any]]]:
    found = ((key, partition.live(key)) for key in partition.rows)
    return sorted((key, values) for key, values in found if values is not None)


def refusal_of(work: Sequence[tuple[Write, Sequence[Any]]], merged: Partition) -> Answer | None:
    """Return what a refused transaction answers; None when every condition holds."""
    told: list[tuple[Any, ...]] = []
    names: tuple[str, ...] = ()
    is_refused = False
    for write, bound in work:
        if write.conditions is None:
            continue
        values = merged.live(_clustering(write.table, write.key, bound))
        if write.is_if_absent:
            is_refused |= values is not None
            continue
        holds = all(_holds(condition, values or {}, bound) for condition in write.conditions)
        is_refused |= not holds
        columns = tuple(condition.columns[0] for condition in write.conditions)
        if values is not None:
            keys = () if len(work) == 1 else tuple(write.table.clustering)
            names = ("[applied]", *keys, *columns)
            ck = _clustering(write.table, write.key, bound)
            told.append((False, *(ck if keys else ()), *(values.get(column) for column in columns)))
    if not is_refused:
        return None
    if len({len(each) for each in told}) > 1:
        told, names = [], ()
    return Answer(names or ("[applied]",), told or [(False,)])


def _holds(relation: Relation, values: dict[str, Any], bound: Sequence[Any]) -> bool:
    stands = values.get(relation.columns[0])
    wanted = relation.terms[0].of(bound, 0)
    if stands is None or wanted is None:
        return False  # a comparison with null is false
    return _compare(stands, relation.sign, wanted)


def _compare(one: Any, sign: str, other: Any) -> bool:
    match sign:
        case "=":
            return bool(one == other)
        case "<":
            return bool(one < other)
        case "<=":
            return bool(one <= other)
        case ">":
            return bool(one > other)
        case ">=":
            return bool(one >= other)
        case "IN":
            return one[0] in other
    raise ValueError(f"{sign} is not understood")


def select_rows(
    select: Select, values: Sequence[Any], key: Key, merged: Partition, now_ms: int
) -> tuple[list[tuple[Any, ...]], list[Key]]:
    """Return what the client gets, and the keys of all rows that were read for it, also of deleted ones."""
    table = cast("Table", select.table)
    bounds = [
        (places, sign, tuple(_encode(kind, term.of(values, 0)) for kind, term in terms))
        for places, sign, terms in _bounds(select)
    ]
    limit = select.limit.of(values, 0) if select.limit else None
    readers = _readers(table.name, select.columns)
    clock = (to_time(now_ms),) if select.has_clock else ()
    written = [(name, column) for name in select.columns if (column := written_in(name))]
    found: list[tuple[Any, ...]] = []
    read: list[Key] = []
    for ck in sorted(merged.rows, reverse=select.is_descending):
        if not all(_compare(tuple([ck[i] for i in places]), sign, wanted) for places, sign, wanted in bounds):
            continue
        read.append(ck)
        row = merged.live(ck)
        if row is not None:
            for name, column in written:
                row[name] = None if row.get(column) is None else merged.rows[ck].cells[column][0]
            found.append((*[reader(key, ck, row) for reader in readers], *clock))
            if len(found) == limit:
                break
    return found, read


def conditioned_rows(work: Sequence[tuple[Write, Sequence[Any]]]) -> list[Key]:
    """Return the keys of the rows that a transaction reads: those with a condition."""
    return [
        _clustering(write.table, write.key, bound) for write, bound in work if write.conditions is not None
    ]


_known_bounds: dict[int, Any] = {}


def _bounds(select: Select) -> list[tuple[list[int], str, list[tuple[str, Term]]]]:
    """Return what a read asks of clustering columns; statements are parsed once, so this is too."""
    table = cast("Table", select.table)
    known = _known_bounds.get(id(select))
    if known is None:
        known = _known_bounds[id(select)] = [
            (
                [table.clustering.index(column) for column in relation.columns],
                relation.sign,
                [
                    (table.types[name], term)
                    for name, term in zip(
                        relation.columns * (len(relation.terms) if relation.sign == "IN" else 1),
                        relation.terms,
                        strict=True,
                    )
                ],
            )
            for relation in select.where
            if relation.columns[0] in table.clustering
        ]
    return cast("list[tuple[list[int], str, list[tuple[str, Term]]]]", known)


Reader = Callable[[Key, Key, dict[str, Any]], Any]


@cache
def _readers(name: str, columns: tuple[str, ...]) -> list[Reader]:
    return [_reader(tables()[name], column) for column in columns]


def _reader(table: Table, column: str) -> Reader:  # noqa: PLR0911 - one for each kind of column
    kind = "bigint" if written_in(column) else table.types[column]
    if column in table.partition:
        place = table.partition.index(column)
        return lambda key, _ck, _row: key[place]
    if column in table.clustering:
        at = table.clustering.index(column)
        if kind == "timeuuid":
            return lambda _key, ck, _row: UUID(int=ck[at][2])
        if kind == "timestamp":
            return lambda _key, ck, _row: _to_time(ck[at])
        return lambda _key, ck, _row: ck[at]
    if kind == "timestamp":
        return lambda _key, _ck, row: _to_time(row.get(column))
    if "tuple<timeuuid" in kind:
        return lambda _key, _ck, row: row.get(column) and [(*rest, _to_time(at)) for *rest, at in row[column]]
    if "tuple<timestamp" in kind:
        return lambda _key, _ck, row: [(_to_time(at), *rest) for at, *rest in row.get(column) or ()]
    if kind.startswith("frozen<set"):
        return lambda _key, _ck, row: row.get(column) or ()
    return lambda _key, _ck, row: row.get(column)


def _to_time(ms: int | None) -> datetime | None:
    return None if ms is None else to_time(ms)


def to_time(ms: int) -> datetime:
    """Return milliseconds since 1970 as the driver does."""
    return _EPOCH + timedelta(milliseconds=ms)
