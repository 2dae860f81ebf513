"""The queue that first comes to mind on Cassandra: a row for each message, deleted when it is popped.

Owns its table, its statements and what one process does with them, through cassandra-driver. Nothing keeps
two poppers from the same message, and a pop reads past every row that was deleted and is not yet compacted
away; Cassandra refuses to at 100 000 of them.
"""

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import UUID, uuid1

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy
from cassandra.query import tuple_factory

from _bench.clients.cassq_clients import CassqOnCassandra
from _bench.servers import CassandraServer

_KEYSPACE = "bench_naive"
_PARTITION = "bench"
_TABLE = """
CREATE TABLE IF NOT EXISTS queue (name text, id timeuuid, body blob, PRIMARY KEY (name, id))
"""
_PUSH = "INSERT INTO queue (name, id, body) VALUES (?, ?, ?)"
_READ = "SELECT id, body FROM queue WHERE name = ? LIMIT ?"
_DELETE = "DELETE FROM queue WHERE name = ? AND id = ?"

_PATIENCE_S = 5.0
_LOOK_S = 0.001


class NaiveCassandra:
    """A table in a keyspace of its own.

    Args:
        server: the one that cassq uses too.
    """

    name = "naive queue on Cassandra"

    def __init__(self, server: CassandraServer) -> None:
        self._server = server
        self.durability = CassqOnCassandra(server).durability  # of the same server

    def start(self, folder: Path) -> None:
        """Make the table, empty; the server is up, or comes up."""
        self._server.start(folder)
        factor = 3 if self._server.is_ring else 1
        with _cluster(self._server.target.hosts) as cluster:
            session = cluster.connect()
            session.execute(f"DROP KEYSPACE IF EXISTS {_KEYSPACE}")
            replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
            session.execute(f"CREATE KEYSPACE {_KEYSPACE} WITH replication = {replication}")
            session.set_keyspace(_KEYSPACE)
            session.execute(_TABLE)

    def stop(self) -> None:
        """Leave the server to cassq, which uses it too."""

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        server = self._server.versions()["Cassandra"]
        return {"Cassandra": server, "cassandra-driver": metadata.version("cassandra-driver")}

    def opener(self) -> "Callable[[], NaiveClient]":
        """Return what opens a session."""
        return partial(NaiveClient, self._server.target.hosts)


class NaiveClient:
    """One session; a batch is as many statements side by side."""

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._cluster = _cluster(hosts)
        self._session = self._cluster.connect(_KEYSPACE)
        self._push = self._session.prepare(_PUSH)
        self._read = self._session.prepare(_READ)
        self._delete = self._session.prepare(_DELETE)

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Insert each by a statement of its own, `batch` of them under way at once."""
        self._all(self._push, ((_PARTITION, uuid1(), body) for body in bodies), batch)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Insert one by one."""
        for body in bodies:
            self._session.execute(self._push, (_PARTITION, uuid1(), body))

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Insert each when it is due, whatever is not answered yet."""
        answers = [self._session.execute_async(self._push, (_PARTITION, uuid1(), body)) for body in bodies]
        for answer in answers:
            answer.result()

    def pop_batches(self, count: int, batch: int) -> int:
        """Read the first `batch` rows and delete each, again and again."""
        popped, last_at = 0, time.monotonic()
        while popped < count:
            rows = self._session.execute(self._read, (_PARTITION, min(batch, count - popped))).all()
            if rows:
                self._forget([message_id for message_id, _ in rows], batch)
                popped, last_at = popped + len(rows), time.monotonic()
            elif time.monotonic() - last_at > _PATIENCE_S:
                break
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Read again and again, and delete what was seen."""
        while not until():
            rows = self._session.execute(self._read, (_PARTITION, 100)).all()
            for _, body in rows:
                seen(body)
            if rows:
                self._forget([message_id for message_id, _ in rows], 100)
            else:
                time.sleep(_LOOK_S)

    def _forget(self, ids: Iterable[UUID], at_once: int) -> None:
        self._all(self._delete, ((_PARTITION, message_id) for message_id in ids), at_once)

    def _all(self, statement: object, values: Iterable[tuple[Any, ...]], at_once: int) -> None:
        execute_concurrent_with_args(self._session, statement, values, concurrency=at_once)

    def close(self) -> None:
        """Close the session."""
        self._cluster.shutdown()


def _cluster(hosts: Sequence[tuple[str, int]]) -> Cluster:
    profile = ExecutionProfile(
        RoundRobinPolicy(), consistency_level=ConsistencyLevel.QUORUM, row_factory=tuple_factory
    )
    return Cluster(
        [host for host, _ in hosts],
        port=hosts[0][1],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        protocol_version=5,
        # Else a small request waits for the answer to the one before.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    )
