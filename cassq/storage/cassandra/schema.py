"""The schema in a cluster: bring it up, tell its version, and compare it with what this code needs.

Owns the keyspace and its tables; refuses to remove or alter anything that a migration does not name. What
must not break: applying is safe at any time and any number of times, and never makes a newer schema older.
"""

from collections.abc import Mapping

from cassq.errors import SchemaMismatchError
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.cql_file import (
    ColumnShape,
    TableShape,
    read_migrations,
    read_shapes,
    read_statements,
)
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.statements import Call

#: The version of the schema that this code reads and writes.
VERSION = 4


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
        try:
            found = self._session.execute(cql.READ_VERSION)
        except SchemaMismatchError:
            return None
        return int(found[0][0]) if found else None

    def check_version(self) -> None:
        """Check that this code can work with the schema.

        Raises:
            SchemaMismatchError: it is missing, older or newer.
        """
        version = self.version()
        if version == VERSION:
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
        raise SchemaMismatchError(self._tell_newer(version))

    def apply(self, replication: Mapping[str, str | int] | None = None) -> None:
        """Create what is missing and bring an older schema up to this version.

        Args:
            replication: of the keyspace, when it has to be created; None for the file's (one replica).

        Raises:
            SchemaMismatchError: the schema is newer than this code.
        """
        version = self.version()
        if version is not None and version > VERSION:
            raise SchemaMismatchError(self._tell_newer(version))
        if version is None or version == VERSION:
            statements = read_statements(self._keyspace, replication)
        else:
            migrations = read_migrations(self._keyspace, replication)
            statements = [step for number, steps in migrations.items() if number > version for step in steps]
        # Whoever may create tables in a keyspace that exists may not create keyspaces.
        is_there = self._keyspace_exists()
        for statement in statements:
            if not (is_there and statement.startswith("CREATE KEYSPACE")):
                self._session.define(statement)

    def check(self) -> list[str]:
        """Return how the schema differs from what this code needs, one phrase each; nothing if it fits."""
        if not self._keyspace_exists():
            return [f"keyspace {self._keyspace} does not exist"]
        differences = []
        version = self.version()
        if version != VERSION:
            differences.append(f"the version is {version}, and should be {VERSION}")
        stand = self._read_tables()
        for name, wanted in read_shapes().items():
            if name not in stand:
                differences.append(f"table {name} is missing")
            else:
                differences.extend(_compare(name, stand[name], wanted))
        return differences

    def _tell_newer(self, version: int) -> str:
        return (
            f"the schema in keyspace {self._keyspace!r} is version {version}, newer than the {VERSION} that "
            "this cassq knows: install the newer cassq; `cassq schema apply --url …` takes no version back"
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
        options = {
            table: {
                "gc_grace_seconds": str(gc_grace_s),
                "read_repair": read_repair,
                "default_time_to_live": str(time_to_live),
                "compaction": dict(compaction)["class"].rsplit(".", 1)[-1],
            }
            for table, gc_grace_s, read_repair, time_to_live, compaction in self._session.ask(
                self._select(
                    "table_name, gc_grace_seconds, read_repair, default_time_to_live, compaction", "tables"
                ),
                Call.LOCAL,
            )
        }
        return {table: TableShape(columns[table], options[table]) for table in options if table in columns}

    def _select(self, columns: str, table: str) -> str:
        # The session's keyspace is checked to be a plain word.
        return f"SELECT {columns} FROM system_schema.{table} WHERE keyspace_name = '{self._keyspace}'"  # noqa: S608


def _compare(table: str, stands: TableShape, wanted: TableShape) -> list[str]:
    differences = []
    for name, column in wanted.columns.items():
        found = stands.columns.get(name)
        if found is None:
            differences.append(f"column {table}.{name} ({column}) is missing")
        elif found != column:
            differences.append(f"column {table}.{name} is {found}, and should be {column}")
    differences.extend(
        f"column {table}.{name} ({column}) is not one of cassq's"
        for name, column in stands.columns.items()
        if name not in wanted.columns
    )
    differences.extend(
        f"{name} of table {table} is {stands.options[name]}, and should be {value}"
        for name, value in wanted.options.items()
        if stands.options[name] != value
    )
    return differences
