"""cassq's own Cassandra session, over the simulated cluster.

Owns the seam: binding and sending go to the simulation instead of the driver. Everything above it is the
library's code: which statements are sent, in which order, and what each failure means.
"""

from collections.abc import Sequence
from typing import Any

from cluster import Cluster, Flight
from cql import parse
from execution import Bound
from scheduler import Process

from cassq.clock import SystemClock
from cassq.storage.cassandra.session import CassandraSession, Work
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.statements import Call, Statement


class SimulatedSession(CassandraSession):
    """A session of one simulated process."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.keyspace = "cassq"
        self._cluster = cluster
        self._process = process
        self._place = "the simulated cluster"
        self._sick = SickNodes(SystemClock())

    def close(self) -> None:
        """Nothing is open."""

    def _send_together(self, work: Sequence[Work]) -> Flight:
        bound = [self._bind(statement, values) for statement, values in work]
        return self._cluster.send(self._process, work[0][0].call, bound)

    def _send(self, call: Call, query: Any) -> Flight:
        return self._cluster.send(self._process, call, [query])

    def _bind(self, statement: Statement, values: Sequence[Any]) -> Bound:  # type: ignore[override]
        return parse(statement.cql), values
