"""The bundled schema files, read as statements and as table shapes.

Owns how `cassq/schema/cassandra.cql` and the migrations beside it are read, so that what `cassq schema apply`
does and what `cassq schema check` compares with is the file that `cqlsh -f` loads. It reads the CQL of those
files, not CQL at large. What must not break: the name of the keyspace stands in them as a qualifier only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

#: A table's option: a number, a text, or the strategy and settings of its compaction.
Option = int | str | dict[str, str]

#: The keyspace that the files name.
FILE_KEYSPACE = "cassq"

# A text, a comment, the end of a statement, or anything else.
_PIECE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|;|[^'\-;]+|-")
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \w+\.(\w+) \((.*?)\) WITH (.*)", re.DOTALL)
_OPTION = re.compile(r"(\w+) = (?:'((?:[^']|'')*)'|(\d+)|\{([^}]*)\})")
_ENTRY = re.compile(r"'(\w+)': '?([^',]+)'?")
_KEY = re.compile(r"PRIMARY KEY \(\(([^)]*)\)(.*)\)$", re.DOTALL)
_MIGRATION = re.compile(r"(\d{4})_\w+\.cql")


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """One column, in the words of `system_schema.columns`."""

    type: str
    kind: str = "regular"
    position: int = -1
    clustering_order: str = "none"

    def __str__(self) -> str:
        """Return the column as a person would say it."""
        place = "" if self.kind == "regular" else f", {self.kind.replace('_', ' ')} {self.position + 1}"
        order = "" if self.clustering_order == "none" else f" {self.clustering_order}"
        return f"{self.type}{place}{order}"


@dataclass(frozen=True, slots=True)
class TableShape:
    """One table: its columns and indexes, and those options that the file names or promises rest on."""

    columns: Mapping[str, ColumnShape]
    options: Mapping[str, Option]
    indexes: Sequence[str] = ()


def read_statements(keyspace: str, replication: Mapping[str, str | int] | None = None) -> list[str]:
    """Return the statements of the bundled schema, for a keyspace of another name and replication."""
    return _adapt(_read("cassandra.cql"), keyspace, replication)


def read_migrations(
    keyspace: str, replication: Mapping[str, str | int] | None = None
) -> dict[int, list[str]]:
    """Return the statements of each numbered migration, in their order."""
    folder = resources.files("cassq") / "schema" / "migrations" / "cassandra"
    found = {
        int(match[1]): _adapt(file.read_text("utf-8"), keyspace, replication)
        for file in folder.iterdir()
        if (match := _MIGRATION.fullmatch(file.name))
    }
    return dict(sorted(found.items()))


def read_shapes() -> dict[str, TableShape]:
    """Return the tables of the bundled schema by name."""
    return {name: shape for name, (shape, _) in read_tables(FILE_KEYSPACE).items()}


def read_tables(keyspace: str) -> dict[str, tuple[TableShape, str]]:
    """Return the tables of the bundled schema by name, each with the statement that creates it."""
    matches = map(_TABLE.match, read_statements(keyspace))
    return {
        match[1]: (TableShape(_columns(match[2], match[3]), _options(match[3])), match[0])
        for match in matches
        if match
    }


def split(text: str) -> Iterator[str]:
    """Yield the statements of a CQL file, without comments and semicolons."""
    parts: list[str] = []
    for piece in _PIECE.findall(text):
        if piece == ";":
            yield "".join(parts).strip()
            parts = []
        elif not piece.startswith("--"):
            parts.append(piece)
    if rest := "".join(parts).strip():
        yield rest


def _read(name: str) -> str:
    return (resources.files("cassq") / "schema" / name).read_text("utf-8")


def _adapt(text: str, keyspace: str, replication: Mapping[str, str | int] | None) -> list[str]:
    return [_rename(statement, keyspace, replication) for statement in split(text)]


def _rename(statement: str, keyspace: str, replication: Mapping[str, str | int] | None) -> str:
    created = re.match(r"CREATE KEYSPACE IF NOT EXISTS \w+", statement)
    if not created:
        return re.sub(rf"\b{FILE_KEYSPACE}\.(?=\w)", f"{keyspace}.", statement)
    rest = statement[created.end() :]
    if replication is not None:
        options = ", ".join(f"{_quote(name)}: {_quote(value)}" for name, value in replication.items())
        rest = f" WITH replication = {{{options}}}"
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace}{rest}"


def _quote(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _columns(body: str, options: str) -> dict[str, ColumnShape]:
    orders = dict(re.findall(r"(\w+) (ASC|DESC)", options))
    columns: dict[str, ColumnShape] = {}
    partition: list[str] = []
    clustering: list[str] = []
    for part in _split_outside_brackets(body):
        if key := _KEY.match(part):
            partition, clustering = re.findall(r"\w+", key[1]), re.findall(r"\w+", key[2])
            continue
        name, cql_type = part.split(" ", 1)
        columns[name] = ColumnShape(cql_type)
    for place, name in enumerate(partition):
        columns[name] = ColumnShape(columns[name].type, "partition_key", place)
    for place, name in enumerate(clustering):
        order = orders.get(name, "ASC").lower()
        columns[name] = ColumnShape(columns[name].type, "clustering", place, order)
    return columns


def _options(text: str) -> dict[str, Option]:
    """Return the options in the words of `system_schema.tables`."""
    options: dict[str, Option] = {"read_repair": "BLOCKING", "default_time_to_live": 0}
    for name, words, number, entries in _OPTION.findall(text):
        options[name] = dict(_ENTRY.findall(entries)) or (int(number) if number else words.replace("''", "'"))
    return options


def _split_outside_brackets(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for place, character in enumerate(text):
        depth += (character in "(<") - (character in ")>")
        if character == "," and depth == 0:
            yield " ".join(text[begin:place].split())
            begin = place + 1
    yield " ".join(text[begin:].split())
