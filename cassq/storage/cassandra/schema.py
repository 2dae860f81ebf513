"""The schema in a cluster: bring it up, tell its version, compare it with what this code needs, and mend it.

Owns the keyspace and its tables; refuses to remove anything that is stored. What must not break: applying is
safe at any time and any number of times, and never makes a newer schema older.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from cassandra import InvalidRequest
from cassandra.protocol import ConfigurationException

from cassq.errors import SchemaMismatchError, StorageUnavailableError
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.cql_file import (
    ColumnShape,
    Option,
    TableShape,
    read_migrations,
    read_statements,
    read_tables,
)
from cassq.storage.cassandra.schema_drift import Difference, compare
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.statement import Call

#: The version of the schema that this code reads and writes.
VERSION = 17


@dataclass(frozen=True, slots=True)
class Mended:
    """What applying a schema did to one that had drifted.

    Attributes:
        done: the differences that it mended.
        left: those that it did not.
        statements: what an operator has to run for those, in their order.
    """

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


class CassandraSchema:
    """The tables of cassq in one keyspace.

    Args:
        session: connections to the cluster; the keyspace need not exist yet.
    """

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._keyspace = session.keyspace

    def version(self) -> int | None:
        """Return the version that is in force, or None where there is no schema of cassq's."""
        return self._read_version()[0]

    def _read_version(self) -> tuple[int | None, int]:
        """Return the version that is in force, and the one that a cassq must know to work here."""
        try:
            found = self._session.execute(cql.READ_VERSIONS)
        except SchemaMismatchError:
            found = []
        must_know = [int(version) for component, version in found if component == "cassq"]
        return max((int(version) for _, version in found), default=None), max(must_know, default=0)

    def check_version(self) -> None:
        """Check that this code can work with the schema.

        Raises:
            SchemaMismatchError: it is missing, older, or newer and not only by what was added.
        """
        version, must_know = self._read_version()
        if version is not None and must_know <= VERSION <= version:
            return
        if version is None:
            exists = self._keyspace_exists()
            missing = "has no tables of cassq's" if exists else "does not exist"
            raise SchemaMismatchError(
                f"keyspace {self._keyspace!r} {missing}: run `cassq schema apply --url …`, or "
                "`cqlsh -f schema/cassandra.cql`"
            )
        if version < VERSION:
            raise SchemaMismatchError(
                f"the schema in keyspace {self._keyspace!r} is version {version}, and this cassq needs "
                f"{VERSION}: run `cassq schema apply --url …`"
            )
        raise SchemaMismatchError(self._tell_newer(must_know))

    def apply(self, replication: Mapping[str, str | int] | None = None) -> Mended:
        """Create what is missing, bring an older schema up to this version, and mend what has drifted.

        Args:
            replication: of the keyspace, when it has to be created; None for the file's (one replica).

        Raises:
            SchemaMismatchError: the schema is newer than this code.
        """
        version, must_know = self._read_version()
        if must_know > VERSION:
            raise SchemaMismatchError(self._tell_newer(must_know))
        if version is None:
            statements = read_statements(self._keyspace, replication)
        else:
            migrations = read_migrations(self._keyspace, replication)
            statements = [step for number, steps in migrations.items() if number > version for step in steps]
        # Whoever may create tables in a keyspace that exists may not create keyspaces.
        is_there = self._keyspace_exists()
        for statement in statements:
            if not (is_there and statement.startswith("CREATE KEYSPACE")):
                self._session.define(statement)
        return self._mend(is_newer=version is not None and version > VERSION)

    def check(self) -> list[str]:
        """Return how the schema differs from what this code needs, one phrase each; nothing if it fits."""
        if not self._keyspace_exists():
            return [f"keyspace {self._keyspace} does not exist"]
        differences = []
        version, must_know = self._read_version()
        if version is None or not must_know <= VERSION <= version:
            differences.append(f"the version is {version}, and should be {VERSION}")
        is_newer = version is not None and version > VERSION
        return [*differences, *(difference.told for difference in self._drift(is_newer=is_newer))]

    def _drift(self, *, is_newer: bool) -> list[Difference]:
        tables = self._read_tables()
        return list(compare(self._keyspace, tables, read_tables(self._keyspace), is_newer=is_newer))

    def _mend(self, *, is_newer: bool) -> Mended:
        refusals: dict[str, str] = {}
        drift = self._drift(is_newer=is_newer)
        for difference in drift:
            for statement in difference.mends if difference.is_safe else ():
                try:
                    self._session.define(statement)
                except StorageUnavailableError as error:
                    if not isinstance(error.__cause__, InvalidRequest | ConfigurationException):
                        raise
                    refusals[difference.told] = f"; the server refused to mend it: {error.__cause__}"
        left = {
            difference.told: difference.mends
            for difference in (self._drift(is_newer=is_newer) if drift else ())
        }
        return Mended(
            tuple(each.told for each in drift if each.told not in left),
            tuple(told + refusals.get(told, "") for told in left),
            tuple(dict.fromkeys(chain.from_iterable(left.values()))),
        )

    def _tell_newer(self, version: int) -> str:
        return (
            f"the schema in keyspace {self._keyspace!r} needs a cassq that knows version {version}, this one "
            f"knows {VERSION}: install the newer cassq; `cassq schema apply --url …` takes no version back"
        )

    def _keyspace_exists(self) -> bool:
        return bool(self._session.ask(self._select("keyspace_name", "keyspaces"), Call.LOCAL))

    def _read_tables(self) -> dict[str, TableShape]:
        columns: dict[str, dict[str, ColumnShape]] = {}
        for table, name, *shape in self._session.ask(
            self._select("table_name, column_name, type, kind, position, clustering_order", "columns"),
            Call.LOCAL,
        ):
            columns.setdefault(table, {})[name] = ColumnShape(*shape)
        indexes: dict[str, list[str]] = {}
        for table, name in self._session.ask(self._select("table_name, index_name", "indexes"), Call.LOCAL):
            indexes.setdefault(table, []).append(name)
        names = sorted({name for shape, _ in read_tables(self._keyspace).values() for name in shape.options})
        options = {
            table: {name: _plain(value) for name, value in zip(names, values, strict=True)}
            for table, *values in self._session.ask(
                self._select(", ".join(["table_name", *names]), "tables"), Call.LOCAL
            )
        }
        return {
            table: TableShape(columns[table], options[table], sorted(indexes.get(table, ())))
            for table in options
            if table in columns
        }

    def _select(self, columns: str, table: str) -> str:
        # The session's keyspace is checked to be a plain word.
        return f"SELECT {columns} FROM system_schema.{table} WHERE keyspace_name = '{self._keyspace}'"  # noqa: S608


def _plain(value: object) -> Option:
    """Return an option as the file has it: a class without its package."""
    if isinstance(value, int | str):
        return value
    entries: dict[str, str] = dict(value)  # type: ignore[call-overload]
    return entries | {"class": entries["class"].rsplit(".", 1)[-1]}
