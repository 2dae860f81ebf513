"""How tables that stand differ from those of the bundled schema, and the statements that mend it.

Owns the judgement of which mend is safe: adding a column, setting an option. It refuses to run any. What must
not break: no statement that could remove what is stored is ever called safe.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cassq.storage.cassandra.cql_file import ColumnShape, Option, TableShape

_PLAIN = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        told: what it is, as a phrase.
        mends: the statements that mend it, in their order.
        is_safe: whether they leave everything that is stored as it is.
    """

    told: str
    mends: tuple[str, ...]
    is_safe: bool


def compare(
    keyspace: str,
    stands: Mapping[str, TableShape],
    wanted: Mapping[str, tuple[TableShape, str]],
    *,
    is_newer: bool = False,
) -> Iterator[Difference]:
    """Yield how tables differ.

    Args:
        keyspace: the tables' own.
        stands: the tables that are there, by name.
        wanted: the shape of each table, and the statement that creates it.
        is_newer: a newer cassq has added to the schema: columns that this one does not know are its own.
    """
    for name, (shape, creation) in wanted.items():
        table = f"{keyspace}.{name}"
        found = stands.get(name)
        if found is None:
            yield Difference(f"table {name} is missing", (creation,), is_safe=True)
            continue
        for index in found.indexes:  # before its column, which cannot be dropped with it
            told = f"index {index} of table {name} is not one of cassq's"
            yield Difference(told, (f"DROP INDEX {keyspace}.{_name(index)}",), is_safe=False)
        # Neither keys nor types can be altered: only another table has them.
        again = (f"DROP TABLE {table}", creation)
        yield from _missing_columns(table, name, found, shape, again)
        for column, kind in found.columns.items():
            if column not in shape.columns and not is_newer:
                told = f"column {name}.{column} ({kind}) is not one of cassq's"
                drop = (f"ALTER TABLE {table} DROP {column}",)
                yield Difference(told, drop if kind.kind == "regular" else again, is_safe=False)
        yield from _options_at_odds(table, name, found, shape)


def _missing_columns(
    table: str, name: str, found: TableShape, shape: TableShape, again: tuple[str, ...]
) -> Iterator[Difference]:
    for column, kind in shape.columns.items():
        stands: ColumnShape | None = found.columns.get(column)
        if stands is None:
            is_safe = kind.kind == "regular"
            add = (f"ALTER TABLE {table} ADD {column} {kind.type}",)
            told = f"column {name}.{column} ({kind}) is missing"
            yield Difference(told, add if is_safe else again, is_safe=is_safe)
        elif stands != kind:
            yield Difference(
                f"column {name}.{column} is {stands}, and should be {kind}", again, is_safe=False
            )


def _options_at_odds(table: str, name: str, found: TableShape, shape: TableShape) -> Iterator[Difference]:
    for option, value in shape.options.items():
        stands = found.options[option]
        mended = _mended(stands, value)
        if mended != stands:
            told = f"{option} of table {name} is {_tell(stands, value)}, and should be {_tell(value, value)}"
            yield Difference(told, (f"ALTER TABLE {table} WITH {option} = {_literal(mended)}",), is_safe=True)


def _name(name: str) -> str:
    """Return a name as a statement has it."""
    quoted = name.replace('"', '""')
    return name if _PLAIN.fullmatch(name) else f'"{quoted}"'


def _mended(stands: Option, wanted: Option) -> Option:
    """Return what an option has to become: of a compaction, what an operator tuned stays."""
    if isinstance(stands, dict) and isinstance(wanted, dict) and stands["class"] == wanted["class"]:
        return stands | wanted
    return wanted


def _tell(value: Option, wanted: Option) -> str:
    if not (isinstance(value, dict) and isinstance(wanted, dict)):
        return str(value)
    rest = [f"{name} {each}" for name, each in value.items() if name in wanted and name != "class"]
    return ", ".join([value["class"], *rest])


def _literal(value: Option) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{name}': {_literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, int):
        return str(value)
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
