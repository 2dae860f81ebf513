"""What `cassq doctor` wants to know of a cluster.

Owns the reading of server facts; refuses to judge them. What must not break: every fact that a server does
not tell (an older version, a missing permission) is left out, and never guessed; and nothing is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cassq.errors import AccessDeniedError, CassqError
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.cql_file import read_shapes
from cassq.storage.cassandra.session import CassandraSession, Node, Row
from cassq.storage.cassandra.statement import Call
from cassq.storage.cassandra.values import to_ms

#: Settings that the protocol's promises or costs rest on.
SETTINGS = (
    "paxos_variant",
    "max_hint_window",
    "max_mutation_size",
    "minimum_timestamp_fail_threshold",
    "maximum_timestamp_fail_threshold",
    "write_request_timeout",
    "cas_contention_timeout",
    "commitlog_sync",
)

#: So many of the latest repairs of a table are looked through.
_REPAIRS_MAX = 1000


@dataclass(frozen=True, slots=True)
class WaitingHints:
    """What one node keeps for another that it could not write to; times are seconds since 1970."""

    address: str
    is_up: bool
    oldest_at: float
    newest_at: float


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a cluster says of itself.

    Attributes:
        nodes: every node that the driver knows.
        replication: options of the keyspace's replication.
        gc_grace_s: of each table of the keyspace.
        settings: those of `SETTINGS` that one node told, as text; None where it is not set.
        clock_offset_ms: how far the database's clock is ahead of this machine's.
        clock_precision_ms: how far off `clock_offset_ms` may be: half a round trip, plus the clock's grain.
        now: by this machine's clock, in seconds since 1970.
        unreadable, unwritable: the tables that this user may not read, or write.
        closed: system keyspaces that this user may not read.
        hints: what waits for other nodes, as the node says that was asked.
        started_at: when each node was started, by its address.
        repaired_at: when a repair of each table last ended well, 0.0 for never; None where nobody may know.
    """

    nodes: tuple[Node, ...]
    replication: Mapping[str, str]
    gc_grace_s: Mapping[str, int]
    settings: Mapping[str, str | None]
    clock_offset_ms: float
    clock_precision_ms: float
    now: float
    unreadable: tuple[str, ...]
    unwritable: tuple[str, ...]
    closed: tuple[str, ...]
    hints: tuple[WaitingHints, ...]
    started_at: Mapping[str, float]
    repaired_at: Mapping[str, float] | None


def read_facts(session: CassandraSession, wall_clock: Callable[[], float]) -> ServerFacts:
    """Ask a cluster for the facts.

    Args:
        session: connections to it.
        wall_clock: this machine's time of day, in seconds since 1970.

    Raises:
        StorageUnavailableError: the cluster does not answer.
    """
    where = f"FROM system_schema.{{}} WHERE keyspace_name = '{session.keyspace}'"
    replication = session.ask(f"SELECT replication {where.format('keyspaces')}", Call.LOCAL)
    tables: dict[str, int] = dict(
        session.ask(f"SELECT table_name, gc_grace_seconds {where.format('tables')}", Call.LOCAL)
    )
    offset_ms, precision_ms = _compare_clocks(session, wall_clock)
    closed: set[str] = set()
    return ServerFacts(
        nodes=session.nodes(),
        replication=dict(replication[0][0]) if replication else {},
        gc_grace_s=tables,
        settings=_read_settings(session, closed),
        clock_offset_ms=offset_ms,
        clock_precision_ms=precision_ms,
        now=wall_clock(),
        unreadable=_read_denied(session, tables, "SELECT *", Call.READ),
        unwritable=_read_denied(session, tables, "DELETE", Call.WRITE),
        hints=_read_hints(session, closed),
        started_at=_read_starts(session, closed),
        repaired_at=_read_repairs(session, tables, closed),
        closed=tuple(sorted(closed)),
    )


def _compare_clocks(session: CassandraSession, wall_clock: Callable[[], float]) -> tuple[float, float]:
    session.execute(cql.READ_CLOCK)  # the first one also prepares the statement
    before_ms = wall_clock() * 1000
    now_ms = to_ms(session.execute(cql.READ_CLOCK)[0][0])
    after_ms = wall_clock() * 1000
    return now_ms - (before_ms + after_ms) / 2, (after_ms - before_ms) / 2 + 1


def _read_denied(
    session: CassandraSession, tables: Mapping[str, int], verb: str, call: Call
) -> tuple[str, ...]:
    denied = []
    for name, shape in read_shapes().items():
        if name not in tables:
            continue
        keys = [column for column, kind in shape.columns.items() if kind.kind == "partition_key"]
        # The server looks at permissions first, and then finds that there is nothing to do.
        nothing = " AND ".join(f"{key} IN ()" for key in keys)
        try:
            session.ask(f"{verb} FROM {session.keyspace}.{name} WHERE {nothing}", call)
        except AccessDeniedError:
            denied.append(name)
        except CassqError:
            continue  # it does not tell
    return tuple(denied)


def _read_settings(session: CassandraSession, closed: set[str]) -> dict[str, str | None]:
    names = ", ".join(f"'{name}'" for name in SETTINGS)
    return dict(_ask(session, "system_views", f"name, value FROM settings WHERE name IN ({names})", closed))


def _read_hints(session: CassandraSession, closed: set[str]) -> tuple[WaitingHints, ...]:
    rows = _ask(session, "system_views", "address, port, status, oldest, newest FROM pending_hints", closed)
    ports = {node.address.rpartition(":")[0]: node.address for node in session.nodes()}
    return tuple(
        WaitingHints(
            ports.get(str(address), f"{address}:{port}"),
            status == "UP",
            to_ms(oldest) / 1000,
            to_ms(newest) / 1000,
        )
        for address, port, status, oldest, newest in rows
    )


def _read_starts(session: CassandraSession, closed: set[str]) -> dict[str, float]:
    rows = _ask(session, "system_views", "native_address_and_port, generation FROM gossip_info", closed)
    return {address: float(generation) for address, generation in rows if address and generation}


def _read_repairs(
    session: CassandraSession, tables: Mapping[str, int], closed: set[str]
) -> dict[str, float] | None:
    found = {}
    for table in tables:
        rows = _ask(
            session,
            "system_distributed",
            f"status, finished_at FROM repair_history WHERE keyspace_name = '{session.keyspace}'"
            f" AND columnfamily_name = '{table}' ORDER BY id DESC LIMIT {_REPAIRS_MAX}",
            closed,
        )
        ends = [to_ms(finished_at) / 1000 for status, finished_at in rows if status == "SUCCESS"]
        found[table] = max(ends, default=0.0)
    return None if "system_distributed" in closed else found


def _ask(session: CassandraSession, keyspace: str, words: str, closed: set[str]) -> list[Row]:
    """Select from a system table; nothing where this user may not, or the server has no such table."""
    if keyspace in closed:
        return []
    try:
        return session.ask("SELECT " + words.replace("FROM ", f"FROM {keyspace}."), Call.LOCAL)
    except CassqError:
        closed.add(keyspace)
        return []
