"""A queue in a PostgreSQL table, through psycopg: lease, then delete, in the manner of pgmq.

Owns its table, its statements and what one process does with them. A message is visible from `vt` on; a pop
puts that off for the ones it takes and skips what others have locked; an acknowledgement deletes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

import psycopg

from _bench.rivals.ahead import due_together
from _bench.rivals.postgres_server import PostgresServer

_TABLE = """
CREATE TABLE bench (
    msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    read_ct int NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    vt timestamptz NOT NULL,
    message bytea NOT NULL
);
CREATE INDEX bench_vt ON bench (vt);
"""
_PUSH = "INSERT INTO bench (vt, message) SELECT clock_timestamp(), unnest(%b::bytea[])"
_PUSH_ONE = "INSERT INTO bench (vt, message) VALUES (clock_timestamp(), %b)"
_LEASE = """
WITH due AS (
    SELECT msg_id FROM bench WHERE vt <= clock_timestamp()
    ORDER BY msg_id LIMIT %b FOR UPDATE SKIP LOCKED
)
UPDATE bench SET vt = clock_timestamp() + interval '30 seconds', read_ct = read_ct + 1
FROM due WHERE bench.msg_id = due.msg_id
RETURNING bench.msg_id, bench.message
"""
_ACKNOWLEDGE = "DELETE FROM bench WHERE msg_id = ANY(%b::bigint[])"

_PATIENCE_S = 5.0
# PostgreSQL has nothing that wakes a query; so a popper asks again.
_LOOK_S = 0.001


class PostgresQueue:
    """A table on a server of its own."""

    name = "PostgreSQL, lease and delete"
    durability = "power cuts"

    def __init__(self) -> None:
        self._server = PostgresServer()

    def start(self, folder: Path) -> None:
        """Start the server and make the table."""
        self._server.start(folder)
        with psycopg.connect(self._server.address, autocommit=True) as connection:
            connection.execute(_TABLE)

    def stop(self) -> None:
        """End the server."""
        self._server.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        client = f"{metadata.version('psycopg')} ({psycopg.pq.__impl__})"
        return {"PostgreSQL": self._server.version, "psycopg": client}

    def opener(self) -> "Callable[[], PostgresClient]":
        """Return what opens a connection."""
        return partial(PostgresClient, self._server.address)


class PostgresClient:
    """One connection; each statement is a transaction, prepared on the server from its first use."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True, prepare_threshold=0)
        self._cursor = self._connection.cursor(binary=True)

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Insert `batch` rows by one statement, one transaction after the other."""
        for first in range(0, len(bodies), batch):
            self._cursor.execute(_PUSH, (list(bodies[first : first + batch]),))

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Insert one by one."""
        for body in bodies:
            self._cursor.execute(_PUSH_ONE, (body,))

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Insert what is due by one statement, one after the other."""
        for together in due_together(bodies):
            self.push_batches(together, len(together))

    def pop_batches(self, count: int, batch: int) -> int:
        """Lease and delete `batch` rows at a time."""
        popped, last_at = 0, time.monotonic()
        ids: list[int] = []
        while popped < count:
            rows = self._acknowledge_and_lease(ids, min(batch, count - popped))
            ids = [msg_id for msg_id, _ in rows]
            popped += len(ids)
            if ids:
                last_at = time.monotonic()
            elif time.monotonic() - last_at > _PATIENCE_S:
                return popped
        self._cursor.execute(_ACKNOWLEDGE, (ids,))
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Ask again and again; delete what was seen before asking the next time."""
        ids: list[int] = []
        while not until():
            rows = self._acknowledge_and_lease(ids, 100)
            for _, body in rows:
                seen(body)
            ids = [msg_id for msg_id, _ in rows]
            if not ids:
                time.sleep(_LOOK_S)
        if ids:
            self._cursor.execute(_ACKNOWLEDGE, (ids,))

    def _acknowledge_and_lease(self, ids: Sequence[int], count: int) -> Sequence[tuple[int, bytes]]:
        """Delete the last ones and lease the next: one round trip, and one commit for both."""
        if not ids:
            rows: Sequence[tuple[int, bytes]] = self._cursor.execute(_LEASE, (count,)).fetchall()
            return rows
        with self._connection.pipeline():
            self._connection.execute(_ACKNOWLEDGE, (ids,))
            self._cursor.execute(_LEASE, (count,))
        leased: Sequence[tuple[int, bytes]] = self._cursor.fetchall()
        return leased

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
