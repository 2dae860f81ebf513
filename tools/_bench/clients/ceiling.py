"""The ceiling: what the driver and the database do with cassq's own statements, and no library in between.

Owns a program that pushes, takes and marks by the statements of `cassq.storage.cassandra.statements`,
prepared and pipelined, over connections with the library's settings. It refuses everything that makes a queue
of it: no claims, no leases that end, no retries, no unknown outcomes, no clearing away while it is measured.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any
from uuid import UUID, uuid1, uuid4

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, FallthroughRetryPolicy, TokenAwarePolicy
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, PreparedStatement, tuple_factory

from _bench.servers import CassandraServer, address_of
from cassq.installation import target_of
from cassq.limits import NO_LIMIT, UNDECIDED
from cassq.storage.cassandra import Address
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.statement import Call, Statement
from cassq.urls import CassandraTarget

#: Ten runs of 4000; the library's pipes are of 10 000 by default.
PIPE_MESSAGES = 40_000
_MARKS_IN_FLIGHT = 4
_LEASE_MS = 30_000
_COMMITTED = "committed"


@dataclass(slots=True)
class _Pipe:
    """A pipe and the batches in it, by first number and count."""

    name: UUID
    op: UUID
    batches: list[tuple[int, int]]

    @property
    def last(self) -> int:
        return sum(self.batches[-1]) - 1 if self.batches else 0


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages that are taken together."""

    pipe: _Pipe
    first: int
    last: int
    batches: int


class RawCassandra:
    """One process that sends statements.

    Args:
        target: the cluster and the keyspace, which has cassq's tables.
    """

    def __init__(self, target: CassandraTarget) -> None:
        auth = None
        if target.username is not None:
            auth = PlainTextAuthProvider(username=target.username, password=target.password or "")
        address = address_of(target)
        self._cluster = Cluster(
            contact_points=list(address.hosts),
            protocol_version=5,
            auth_provider=auth,
            ssl_context=address.tls,
            sockopts=[(IPPROTO_TCP, TCP_NODELAY, 1)],
            compression=False,
            execution_profiles=_profiles(address),
            monitor_reporting_enabled=False,
        )
        self._session = self._cluster.connect()
        self._session.use_client_timestamp = False
        self._keyspace = target.keyspace
        self._prepared: dict[Statement, PreparedStatement] = {}
        self._full: deque[_Pipe] = deque()

    def close(self) -> None:
        """Close the connections."""
        self._cluster.shutdown()

    def opened(self, count: int, pipes: int) -> list[list[_Pipe]]:
        """Make pipes for `count` messages: `pipes` side by side, and as many after each other as it takes."""
        deep = -(-count // (pipes * PIPE_MESSAGES))
        return [[self._open() for _ in range(deep)] for _ in range(pipes)]

    def push(self, bodies: Sequence[bytes], batch: int, lanes: list[list[_Pipe]]) -> None:
        """Push batches into several pipes at once, each pipe with one write in flight, as the protocol asks.

        The next batch of a pipe is bound while the last one is on its way.
        """
        flying: dict[int, Any] = {}
        for number, begin in enumerate(range(0, len(bodies), batch)):
            lane = number % len(lanes)
            part = bodies[begin : begin + batch]
            pipe = next(each for each in lanes[lane] if each.last + len(part) <= PIPE_MESSAGES)
            values = (pipe.name, pipe.last + 1, len(part), part, UNSET_VALUE)
            bound = self._prepare(cql.APPEND).bind(values)
            if lane in flying:
                flying.pop(lane).result()
            flying[lane] = self._send(cql.APPEND, bound)
            pipe.batches.append((pipe.last + 1, len(part)))
        for future in flying.values():
            future.result()
        self._full.extend(pipe for lane in lanes for pipe in lane)

    def pop(self, count: int, run_messages: int) -> int:
        """Read, take and mark what was pushed; the next read is under way while a take is decided."""
        runs = list(self._runs(run_messages))
        marks: deque[Any] = deque()
        popped = 0
        reading = self._read(runs[0]) if runs else None
        for number, run in enumerate(runs):
            popped += sum(len(row[3]) for row in reading.result()) if reading else 0
            taking = self._take(run)
            reading = self._read(runs[number + 1]) if number + 1 < len(runs) else None
            if not taking.result().one()[0]:
                raise RuntimeError("a take was refused, and nobody else is here")
            marks.append(self._mark(run.pipe, run.first, run.last))
            if len(marks) > _MARKS_IN_FLIGHT:
                marks.popleft().result()
        for mark in marks:
            mark.result()
        if popped < count:
            raise RuntimeError(f"only {popped} of {count} messages were there")
        return popped

    def mark_each(self, count: int) -> None:
        """Mark messages one by one, each acknowledged before the next."""
        pipe = self._open()
        for number in range(1, count + 1):
            self._mark(pipe, number, number).result()

    def clear(self) -> None:
        """Delete what was pushed; never measured."""
        for pipe in self._full:
            for statement in (cql.DELETE_WAITING, cql.DELETE_PENDING):
                self._send(statement, self._prepare(statement).bind((pipe.name,))).result()
        self._full.clear()

    def _open(self) -> _Pipe:
        pipe = _Pipe(uuid1(), uuid4(), [])
        head = (pipe.name, pipe.op, 0, 1, 0, "open", UNDECIDED, 0, 0, 0, 0)
        self._send(cql.INSERT_HEAD, self._prepare(cql.INSERT_HEAD).bind(head)).result()
        return pipe

    def _runs(self, run_messages: int) -> Iterator[_Run]:
        for pipe in self._full:
            taken: list[tuple[int, int]] = []
            for batch in pipe.batches:
                taken.append(batch)
                if sum(count for _, count in taken) >= run_messages:
                    yield _Run(pipe, taken[0][0], sum(taken[-1]) - 1, len(taken))
                    taken = []
            if taken:
                yield _Run(pipe, taken[0][0], sum(taken[-1]) - 1, len(taken))

    def _read(self, run: _Run) -> Any:  # noqa: ANN401 - the driver's future
        statement = cql.READ_BATCHES[False, False]
        values = (run.pipe.name, run.first, NO_LIMIT, run.batches)
        return self._send(statement, self._prepare(statement).bind(values))

    def _take(self, run: _Run) -> Any:  # noqa: ANN401 - the driver's future
        op, insert = uuid4(), cql.WRITE_RUN["", True]
        name, floor = run.pipe.name, run.first - 1
        head = (op, run.last, run.last + 1, floor, 0, 0, 0, 0, UNSET_VALUE, name, run.pipe.op, run.last)
        unset = UNSET_VALUE, UNSET_VALUE
        run_columns = (run.last, run.first, "leased", 1, uuid4(), _LEASE_MS, 0, "raw", 0, 0, *unset)
        leased = (*run_columns, name, run.first)
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.add(self._prepare(cql.ADVANCE).bind(head))
        batch.add(self._prepare(insert).bind(leased))
        run.pipe.op = op
        return self._send(cql.ADVANCE, batch)

    def _mark(self, pipe: _Pipe, first: int, last: int) -> Any:  # noqa: ANN401 - the driver's future
        values = (pipe.name, first, last, _COMMITTED, UNSET_VALUE, last)
        return self._send(cql.MARK, self._prepare(cql.MARK).bind(values))

    def _send(self, statement: Statement, query: object) -> Any:  # noqa: ANN401 - the driver's future
        return self._session.execute_async(query, execution_profile=statement.call.value)

    def _prepare(self, statement: Statement) -> PreparedStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._session.prepare(statement.cql.replace("{ks}", self._keyspace))
            prepared.is_idempotent = statement.is_idempotent
            prepared.fetch_size = statement.page_rows
            self._prepared[statement] = prepared
        return prepared


def _profiles(address: Address) -> dict[object, ExecutionProfile]:
    """Return how each kind of call goes out: at the library's consistency levels, sent once."""
    quorum, serial = ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL
    if address.datacenter is not None:
        quorum, serial = ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL
    balance = DCAwareRoundRobinPolicy(address.datacenter or "")

    def profile(level: int) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(balance, shuffle_replicas=True),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=level,
            serial_consistency_level=serial,
            request_timeout=address.timeout_s,
            row_factory=tuple_factory,
        )

    calls = dict.fromkeys((Call.WRITE, Call.READ, Call.TRANSACTION), quorum)
    return {EXEC_PROFILE_DEFAULT: profile(quorum)} | {
        call.value: profile(level) for call, level in calls.items()
    }


@dataclass(frozen=True, slots=True)
class RawOpener:
    """Opens a raw client in whichever process calls it."""

    url: str

    def __call__(self) -> RawCassandra:
        """Connect."""
        target = target_of(self.url)
        if not isinstance(target, CassandraTarget):
            raise TypeError(f"{self.url!r} is not the URL of a store on Cassandra")
        return RawCassandra(target)


def raw_opener(server: CassandraServer) -> Callable[[], RawCassandra]:
    """Make the raw program's keyspace and return what opens its client."""
    server.prepare(is_raw=True)
    return RawOpener(server.store_url(is_raw=True))
