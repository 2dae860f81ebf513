"""The simulated cluster keeps the storage contract, as a real one does; and it can be as bad as it should be.

Every sentence of the port is asked of it, through the same tests that ask Cassandra. Its replicas fall behind
all the while: that is no excuse.
"""

import secrets
import threading
import time

import pytest
import test_storage_contract as contract
from cluster import Cluster, Odds
from scheduler import Process, World
from session import SimulatedSession
from test_storage_contract import pipe  # noqa: F401 - a fixture of theirs

from cassq.storage.cassandra.storage import CassandraStorage


class _Answered:
    def __init__(self, answer):
        self._answer = answer

    def result(self):
        return self._answer


class DirectSession(SimulatedSession):
    """Answers at once, without a scheduler: real threads may ask."""

    def __init__(self, cluster):
        super().__init__(cluster, Process("test"))
        self._one_at_a_time = threading.Lock()
        self._began = time.monotonic()

    def _send_together(self, work):
        return self._answer(work[0][0].call, [self._bind(*each) for each in work])

    def _send(self, call, query):
        return self._answer(call, [query])

    def _answer(self, call, work):
        with self._one_at_a_time:
            self._cluster.world.now = time.monotonic() - self._began
            return _Answered(self._cluster.execute(call, work))


@pytest.fixture
def storage():
    """A storage on a cluster without faults, but for replicas that miss what need not reach all."""
    odds = Odds(slow_replica=0.7, missed=1.0)
    return CassandraStorage(DirectSession(Cluster(World(1), odds=odds, skews_ms=(0, 0, 0), timeout_s=1)))


@pytest.fixture
def queue():
    """A queue name that no other test uses."""
    return f"q-{secrets.token_hex(6)}"


for _name in dir(contract):
    if _name.startswith("Test") and _name not in {"TestRowsThatAreNotOurs", "TestEnds"}:
        globals()[_name] = getattr(contract, _name)
