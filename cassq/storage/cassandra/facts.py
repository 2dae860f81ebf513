"""What `cassq doctor` wants to know of a cluster.

Owns the reading of server facts; refuses to judge them. What must not break: every fact that a server does
not tell (an older version, a missing permission) is left out, and never guessed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cassq.errors import CassqError
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.rows import to_ms
from cassq.storage.cassandra.session import CassandraSession, Node
from cassq.storage.cassandra.statements import Call

#: Settings that the protocol's promises or costs rest on.
SETTINGS = (
    "paxos_variant",
    "max_hint_window",
    "max_mutation_size",
    "minimum_timestamp_fail_threshold",
    "maximum_timestamp_fail_threshold",
    "write_request_timeout",
    "cas_contention_timeout",
)


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
    """

    nodes: tuple[Node, ...]
    replication: Mapping[str, str]
    gc_grace_s: Mapping[str, int]
    settings: Mapping[str, str | None]
    clock_offset_ms: float
    clock_precision_ms: float


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
    tables = session.ask(f"SELECT table_name, gc_grace_seconds {where.format('tables')}", Call.LOCAL)
    offset_ms, precision_ms = _compare_clocks(session, wall_clock)
    return ServerFacts(
        nodes=session.nodes(),
        replication=dict(replication[0][0]) if replication else {},
        gc_grace_s=dict(tables),
        settings=_read_settings(session),
        clock_offset_ms=offset_ms,
        clock_precision_ms=precision_ms,
    )


def _compare_clocks(session: CassandraSession, wall_clock: Callable[[], float]) -> tuple[float, float]:
    session.execute(cql.READ_CLOCK)  # the first one also prepares the statement
    before_ms = wall_clock() * 1000
    now_ms = to_ms(session.execute(cql.READ_CLOCK)[0][0])
    after_ms = wall_clock() * 1000
    return now_ms - (before_ms + after_ms) / 2, (after_ms - before_ms) / 2 + 1


def _read_settings(session: CassandraSession) -> dict[str, str | None]:
    names = ", ".join(f"'{name}'" for name in SETTINGS)
    try:
        found = session.ask(
            f"SELECT name, value FROM system_views.settings WHERE name IN ({names})",  # noqa: S608
            Call.LOCAL,
        )
    except CassqError:
        return {}  # system_views may be closed to this user
    return dict(found)
