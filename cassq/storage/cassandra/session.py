"""One process's connections to Cassandra.

Owns the driver's Session: how statements are prepared and sent, and that every failure leaves as a cassq
error. It refuses to know what is stored.

What must not break: nothing that writes is ever sent twice by the driver. A transaction that was applied and
is sent again by a retry answers "not applied".
"""

import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from cassandra import OperationTimedOut
from cassandra.cluster import Session as DriverSession
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from cassq.errors import (
    AccessDeniedError,
    CassqError,
    ClosedError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import SystemClock
from cassq.runtime.deadline import seconds_left
from cassq.storage.cassandra.errors_map import (
    DRIVER_ERRORS,
    is_contended,
    mapped,
)
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.statement import Call, Statement

Row = tuple[Any, ...]
Work = tuple[Statement, Sequence[Any]]

#: How long the first connections to a cluster may take.
CONNECT_S = 8.0
_IN_FLIGHT_MAX = 32
# A request that is sent gets so long, however little time its caller has left.
_CALL_S = 0.05
_SERIAL_READS_MAX = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster, as the driver sees it; `is_up` is None where it never connected to it."""

    address: str
    datacenter: str | None
    rack: str | None
    release_version: str | None
    is_up: bool | None


class CassandraSession:
    """Sends statements; safe to use from many threads, and by the process that made it only."""

    def __init__(self, driver: DriverSession, keyspace: str, sick: SickNodes, timeout_s: float) -> None:
        self.keyspace = keyspace
        self._clock = SystemClock()
        self._timeout_s = timeout_s
        self._sick = sick
        self._driver = driver
        points = ", ".join(f"{host}:{port}" for host, port in driver.cluster.contact_points)
        self._place = f"keyspace {keyspace!r} at {points}"
        self._pid = os.getpid()
        self._is_closed = False
        self._lock = threading.RLock()
        self._prepared: dict[Statement, PreparedStatement] = {}
        self._preparing: dict[Statement, Future[PreparedStatement]] = {}

    def close(self) -> None:
        """Close every connection; nothing happens when they are closed already, or in a forked child."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and os.getpid() == self._pid:
            self._driver.cluster.shutdown()

    def execute(self, statement: Statement, values: Sequence[Any] = ()) -> list[Row]:
        """Send one statement and return all its rows, page by page.

        A SERIAL read that meets a transaction between its phases may be told that nobody knows how that one
        ended. A read can be asked again, and mostly knows then.
        """
        for _ in range(_SERIAL_READS_MAX - 1 if statement.call is Call.SERIAL_READ else 0):
            try:
                return self.finish(statement, self.start(statement, values))
            except StorageUnavailableError as error:
                if not is_contended(error.__cause__):
                    raise
        return self.finish(statement, self.start(statement, values))

    def start(self, statement: Statement, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401 - the driver's
        """Send one statement without waiting for the answer; `finish` waits."""
        with mapped(statement.call, self._place):
            return self._send(statement.call, self._bind(statement, values))

    def finish(self, statement: Statement, future: Any) -> list[Row]:  # noqa: ANN401 - the driver's
        """Return all rows of a statement that was started."""
        with mapped(statement.call, self._place):
            return list(self._result_of(future))

    def execute_conditional(self, work: Sequence[Work]) -> list[dict[str, Any]]:
        """Send one transaction and return its reply, each row by the names of its columns."""
        with mapped(Call.TRANSACTION, self._place):
            found = self._result_of(self._send_together(work))
            return [dict(zip(found.column_names, row, strict=True)) for row in found]

    def execute_each(self, work: Iterable[Work]) -> None:
        """Send plain writes side by side, a bounded number at a time.

        Raises:
            OutcomeUnknownError: some may have been written and others not.
            StorageUnavailableError, AccessDeniedError: none was written.
        """
        flying: deque[tuple[Statement, Any]] = deque()
        finished = 0
        try:
            for statement, values in work:
                flying.append((statement, self.start(statement, values)))
                if len(flying) == _IN_FLIGHT_MAX:
                    self.finish(*flying.popleft())
                    finished += 1
            while flying:
                self.finish(*flying.popleft())
                finished += 1
        except (StorageUnavailableError, AccessDeniedError) as error:
            is_denied = isinstance(error, AccessDeniedError) and all(map(self._is_denied, flying))
            if finished or (flying and not is_denied):
                raise OutcomeUnknownError(f"part of a write may have happened: {error}") from error
            raise

    def execute_in_turn(self, groups: Sequence[Sequence[Work]]) -> None:
        """Send plain writes one after the other, each only after the one before was acknowledged.

        Args:
            groups: what goes out as one write, on one partition: all of it or nothing.

        Raises: see `execute_each`.
        """
        for place, work in enumerate(groups):
            try:
                with mapped(Call.WRITE, self._place):
                    self._result_of(self._send_together(work))
            except (StorageUnavailableError, AccessDeniedError) as error:
                if place:
                    raise OutcomeUnknownError(f"only part of a write happened: {error}") from error
                raise

    def ask(self, cql: str, call: Call = Call.READ) -> list[Row]:
        """Send a statement that is not worth preparing and return all its rows."""
        with mapped(call, self._place):
            return list(self._result_of(self._send(call, cql)))

    def define(self, cql: str) -> None:
        """Send a statement that changes the schema."""
        with mapped(Call.WRITE, self._place):
            self._result_of(self._send(Call.WRITE, cql))

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that the driver knows, once it has tried to connect to each."""
        self._check_usable()
        wait(self._driver._initial_connect_futures, timeout=CONNECT_S)  # noqa: SLF001 - told nowhere else
        hosts = self._driver.cluster.metadata.all_hosts()
        return tuple(
            Node(str(host.endpoint), host.datacenter, host.rack, host.release_version, host.is_up)
            for host in hosts
        )

    def _send_together(self, work: Sequence[Work]) -> Any:  # noqa: ANN401 - the driver's
        (first, values), *rest = work
        query: BatchStatement | BoundStatement = self._bind(first, values)
        if rest:
            query = BatchStatement(BatchType.UNLOGGED).add(query)
            for statement, more in rest:
                query.add(self._bind(statement, more))
        return self._send(first.call, query)

    def _send(self, call: Call, query: Any) -> Any:  # noqa: ANN401 - statements and futures of the driver
        self._check_usable()
        left_s = seconds_left(self._clock, self._timeout_s)
        if left_s >= self._timeout_s:
            return self._driver.execute_async(query, execution_profile=call.value)
        return self._driver.execute_async(query, execution_profile=call.value, timeout=max(left_s, _CALL_S))

    def _result_of(self, future: Any) -> Any:  # noqa: ANN401 - the driver's
        try:
            return future.result()
        except DRIVER_ERRORS as error:
            # A caller in a hurry says nothing about the node.
            if not isinstance(error, OperationTimedOut) or future.timeout >= self._timeout_s:
                self._sick.note(error, future)
            raise

    def _is_denied(self, flying: tuple[Statement, Any]) -> bool:
        try:
            self.finish(*flying)
        except CassqError as error:
            return isinstance(error, AccessDeniedError)
        return False

    def _bind(self, statement: Statement, values: Sequence[Any]) -> BoundStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepare(statement)
        return prepared.bind(values)

    def _prepare(self, statement: Statement) -> PreparedStatement:
        self._check_usable()
        # A statement that could not even be prepared was certainly not carried out: so it fails like a read.
        with mapped(Call.READ, self._place):
            left_s = max(seconds_left(self._clock, self._timeout_s), _CALL_S)
            try:
                return self._in_preparation(statement).result(left_s)
            except TimeoutError as error:
                raise OperationTimedOut(f"a statement was not prepared within {left_s:.2g} s") from error

    def _in_preparation(self, statement: Statement) -> Future[PreparedStatement]:
        """Have a statement prepared by a thread of its own: the driver hears of no deadline there."""
        with self._lock:
            future = self._preparing.get(statement)
            if future is None:
                beside = BackgroundThread("cassq-prepare")
                future = beside.submit(self._prepare_now, statement)
                beside.shutdown(wait=False)
                if not future.done():  # as the interpreter ends, this thread has done it
                    self._preparing[statement] = future
        return future

    def _prepare_now(self, statement: Statement) -> PreparedStatement:
        try:
            prepared = self._driver.prepare(statement.cql.replace("{ks}", self.keyspace))
            prepared.is_idempotent = statement.is_idempotent
            prepared.fetch_size = statement.page_rows
            self._prepared[statement] = prepared
            return prepared
        finally:
            with self._lock:
                self._preparing.pop(statement, None)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("a store cannot be used after a fork: connect again in the child process")
        if self._is_closed:
            raise ClosedError("the store was closed; connect again")
