"""cassq's own Cassandra session, over the simulated cluster.

Owns the seam: binding and sending go to the simulation instead of the driver. Everything above it is the
library's code: which statements are sent, in which order, and what each failure means.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from cluster import Cluster, Flight
from cql import parse
from execution import Bound
from scheduler import Process

from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra.session import CassandraSession, Work
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.statement import Call, Statement


class SimulatedSession(CassandraSession):
    """A session of one simulated process."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.keyspace = "cassq"
        self._cluster = cluster
        self._process = process
        self._place = "the simulated cluster"
        self._sick = SickNodes(SystemClock())
        self._timeout_s = 0.0  # whatever runs out of time in the world tells of its node

    def close(self) -> None:
        """Nothing is open."""

    def _send_together(self, work: Sequence[Work]) -> Flight:
        bound = [self._bind(statement, values) for statement, values in work]
        return self._cluster.send(self._process, work[0][0].call, bound)

    def _send(self, call: Call, query: Any) -> Flight:
        return self._cluster.send(self._process, call, [query])

    def _bind(self, statement: Statement, values: Sequence[Any]) -> Bound:  # type: ignore[override]
        return parse(statement.cql), values


class _Answered:
    """An answer that is there already; the driver's future."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self) -> Any:
        return self._answer


class DirectSession(SimulatedSession):
    """Answers at once, without a scheduler: real threads may ask.

    Args:
        now: seconds since the world began.
    """

    def __init__(self, cluster: Cluster, now: Callable[[], float]) -> None:
        super().__init__(cluster, Process("direct"))
        self._one_at_a_time = threading.Lock()
        self._now = now

    def _send_together(self, work: Sequence[Work]) -> Any:
        return self._answer(work[0][0].call, [self._bind(*each) for each in work])

    def _send(self, call: Call, query: Any) -> Any:
        return self._answer(call, [query])

    def _answer(self, call: Call, work: Sequence[Bound]) -> _Answered:
        with self._one_at_a_time:
            self._cluster.world.now = self._now()
            return _Answered(self._cluster.execute(call, work))
