"""What a URL points at, for whoever operates it: the schema, and what the services say of themselves.

Owns the way in where no store can be opened, because the schema is missing or a service is down. Beside
`cassq.connect` the only importer of adapters. It refuses to judge what it reads. What must not break:
looking changes nothing; only `apply_schema` writes.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from cassq.connect import connect
from cassq.coordination.zookeeper.coordinator import ZooKeeperCoordinator
from cassq.coordination.zookeeper.facts import ZooKeeperServer, read_servers
from cassq.errors import AccessDeniedError, InvalidOptionError, UnavailableError
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra import Address, CassandraSchema, CassandraSession, open_session
from cassq.storage.cassandra.cql_file import FILE_KEYSPACE, read_statements
from cassq.storage.cassandra.facts import ServerFacts
from cassq.storage.cassandra.facts import read_facts as read_cassandra_facts
from cassq.storage.cassandra.schema import VERSION, Mended
from cassq.storage.sqlite import facts as sqlite_facts
from cassq.storage.sqlite.facts import SqliteFacts, SqliteSchema
from cassq.urls import CassandraTarget, take_apart_cassandra, take_apart_sqlite

__all__ = [
    "AppliedSchema",
    "CassandraReport",
    "CassandraTarget",
    "Replication",
    "ServerFacts",
    "SqliteFacts",
    "SqliteTarget",
    "ZooKeeperReport",
    "ZooKeeperServer",
    "apply_schema",
    "check_schema",
    "read_cassandra",
    "read_sqlite",
    "read_zookeeper",
    "schema_versions",
    "show_schema",
    "target_of",
]

Replication = Mapping[str, str | int]

#: How long a ZooKeeper server, and then a session, may take to answer.
ZOOKEEPER_PATIENCE_S = 2.0
SESSION_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class SqliteTarget:
    """An `sqlite:` URL, taken apart; a path of None is `memory:`."""

    path: str | None
    is_durable: bool = True


@dataclass(frozen=True, slots=True)
class AppliedSchema:
    """The version that is in force, and what became of the differences from what this code needs."""

    version: int
    mended: Mended


@dataclass(frozen=True, slots=True)
class CassandraReport:
    """What a cluster says of itself, and how its schema stands.

    Attributes:
        trouble: why the version could not be read, though a node answers; empty where it was.
    """

    server: ServerFacts
    version: int | None
    version_needed: int
    differences: tuple[str, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ZooKeeperReport:
    """What each ZooKeeper server says, and whether a session can be opened with them."""

    servers: tuple[ZooKeeperServer, ...]
    has_session: bool


def target_of(url: str) -> CassandraTarget | SqliteTarget:
    """Take a store's URL apart without opening anything.

    Raises:
        InvalidOptionError, InvalidNameError: it is malformed or not the URL of a store.
    """
    scheme = url.partition(":")[0]
    if scheme == "cassandra":
        return take_apart_cassandra(url)
    if scheme == "sqlite":
        path, options = take_apart_sqlite(url)
        return SqliteTarget(path, options.get("durability", "full") == "full")
    connect(url).close()  # `memory:`; for everything else it says what is wrong
    return SqliteTarget(None)


def show_schema(url: str | None, replication: Replication | None = None) -> str:
    """Return the schema as text, for the kind of database and the keyspace that the URL names.

    Nothing is connected to. Without a URL: the Cassandra schema, in the keyspace `cassq`.
    """
    target = target_of(url) if url else None
    if isinstance(target, SqliteTarget):
        _refuse_replication(replication)
        return sqlite_facts.read_text()
    statements = read_statements(target.keyspace if target else FILE_KEYSPACE, replication)
    return "".join(f"{statement};\n\n" for statement in statements).rstrip("\n") + "\n"


def apply_schema(url: str, replication: Replication | None = None) -> AppliedSchema:
    """Create what is missing, bring an older schema up to this version, and mend what has drifted.

    Safe at any time and any number of times: nothing that is stored is removed.

    Args:
        url: of the store.
        replication: of the keyspace, where it has to be created; None for one replica.

    Raises:
        SchemaMismatchError: the schema is newer than this code.
        StorageUnavailableError: the database cannot be reached.
    """
    target = target_of(url)
    if isinstance(target, SqliteTarget):
        _refuse_replication(replication)
        schema = SqliteSchema(_file_of(target))
        schema.apply()
        return AppliedSchema(schema.needed, Mended(left=tuple(schema.check())))
    with _session(target) as session:
        return AppliedSchema(VERSION, CassandraSchema(session).apply(replication))


def check_schema(url: str) -> list[str]:
    """Return how the schema differs from what this code needs, one phrase each; nothing if it fits."""
    target = target_of(url)
    if isinstance(target, SqliteTarget):
        return SqliteSchema(_file_of(target)).check()
    with _session(target) as session:
        return CassandraSchema(session).check()


def schema_versions(url: str) -> tuple[int | None, int]:
    """Return the version that is in force (None: there is no schema) and the one this code needs."""
    target = target_of(url)
    if isinstance(target, SqliteTarget):
        schema = SqliteSchema(_file_of(target))
        return schema.version(), schema.needed
    with _session(target) as session:
        return CassandraSchema(session).version(), VERSION


def read_cassandra(target: CassandraTarget) -> CassandraReport:
    """Ask a cluster what it says of itself.

    Raises:
        StorageUnavailableError: it cannot be reached; within 8 seconds.
    """
    with _session(target) as session:
        server = read_cassandra_facts(session, time.time)
        schema = CassandraSchema(session)
        try:
            return CassandraReport(server, schema.version(), VERSION, tuple(schema.check()))
        except (AccessDeniedError, UnavailableError) as error:
            return CassandraReport(server, None, VERSION, (), str(error))


def read_zookeeper(target: CassandraTarget) -> ZooKeeperReport | None:
    """Ask the ZooKeeper servers that a URL names; None where it names none."""
    if target.zookeeper is None:
        return None
    addresses = [each.rpartition(":") for each in target.zookeeper.partition("/")[0].split(",")]
    servers = read_servers([(host, int(port)) for host, _, port in addresses], ZOOKEEPER_PATIENCE_S)
    if all(server.trouble for server in servers):
        return ZooKeeperReport(tuple(servers), has_session=False)
    with closing(
        ZooKeeperCoordinator(
            target.zookeeper, target.keyspace, clock=SystemClock(), auth=target.zookeeper_auth
        )
    ) as coordinator:
        return ZooKeeperReport(tuple(servers), coordinator.wait_connected(SESSION_PATIENCE_S))


def read_sqlite(target: SqliteTarget) -> tuple[SqliteFacts, list[str]] | None:
    """Look at a file, and how its schema differs from what is needed; None where there is no file.

    Raises:
        CorruptError: it is not an SQLite database.
        StorageUnavailableError: it cannot be read.
    """
    path = _file_of(target)
    facts = sqlite_facts.read_facts(path)
    return None if facts is None else (facts, [] if facts.damage else SqliteSchema(path).check())


@contextmanager
def _session(target: CassandraTarget) -> Iterator[CassandraSession]:
    address = Address(
        target.hosts, target.username, target.password, target.datacenter, target.tls, target.timeout_s
    )
    session = open_session(address, target.keyspace)
    try:
        yield session
    finally:
        session.close()


def _file_of(target: SqliteTarget) -> str:
    if target.path is None:
        raise InvalidOptionError("memory: holds nothing beyond one process; there is no schema to look after")
    return target.path


def _refuse_replication(replication: Replication | None) -> None:
    if replication is not None:
        raise InvalidOptionError("an SQLite file has no replication; leave it out")
