"""One storage for each adapter, empty of what a test looks at, and a way to plant rows that are not ours."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from stored import created

from cassq.model.ids import time_key
from cassq.storage.cassandra import Address, CassandraStorage, open_storage
from cassq.storage.port import Storage
from cassq.storage.sqlite.storage import SqliteStorage

#: What can be planted: of a pipe (by its id) or of a queue (by its name).
SQLITE_GARBAGE = {
    "phase": "UPDATE heads SET phase = 'melted' WHERE pipe = ?",
    "cursor": "UPDATE heads SET cursor = 7 WHERE pipe = ?",
    "run": "UPDATE runs SET state = 'melted' WHERE pipe = ?",
    "mark": "UPDATE marks SET ending = 'melted' WHERE pipe = ?",
    "batch": "UPDATE waiting SET count = count + 1 WHERE pipe = ?",
    "record": "UPDATE queues SET state = 'melted' WHERE name = ?",
    "letter": "UPDATE dead SET headers = '[' WHERE queue = ?",
    "document": "UPDATE documents SET op = 'melted' WHERE kind = ?",
    "slot": "UPDATE slots SET op = 'melted' WHERE slot = 7 AND incarnation <> ?",  # bound as a pipe's key
}
CASSANDRA_GARBAGE = {
    "phase": "UPDATE {ks}.pending SET phase = 'melted' WHERE pipe = %s AND seq = -1 AND kind = 0",
    "cursor": "UPDATE {ks}.pending SET cursor = 7 WHERE pipe = %s AND seq = -1 AND kind = 0",
    "run": "UPDATE {ks}.pending SET state = 'melted' WHERE pipe = %s AND seq = 1 AND kind = 1",
    "mark": "INSERT INTO {ks}.pending (pipe, seq, kind, ending) VALUES (%s, 1, 2, 'melted')",
    "batch": "INSERT INTO {ks}.waiting (pipe, first, count) VALUES (%s, 1, 7)",
    "record": "UPDATE {ks}.queues SET state = 'melted' WHERE queue = %s AND shard = 0",
    "letter": (
        "INSERT INTO {ks}.dead (queue, shard, pipe, seq) "
        "VALUES (%s, 0, 5b0e4a1e-c6b5-11f0-8de9-0242ac120002, 1)"
    ),
    "document": "UPDATE {ks}.documents SET op = null WHERE kind = %s AND name = 'a'",
    "slot": "UPDATE {ks}.slots SET op = null WHERE incarnation = %s AND slot = 7",
}


@dataclass(frozen=True)
class Adapter:
    """How the tests get at one adapter beside the port."""

    open: Callable[[], Any]  # a further storage over the same rows, which the test closes
    plant: Callable[[Storage, str, UUID | str], None]


@pytest.fixture(
    params=["memory", "file", pytest.param("cassandra", marks=pytest.mark.service)],
)
def adapter(request, tmp_path) -> Adapter:
    """The adapter under test."""
    if request.param == "cassandra":
        session = request.getfixturevalue("cassandra_session")
        hosts = request.getfixturevalue("cassandra_hosts")

        def plant_row(storage, what, key):
            session._driver.execute(CASSANDRA_GARBAGE[what].format(ks=session.keyspace), (key,))

        return Adapter(lambda: open_storage(Address(hosts), session.keyspace), plant_row)

    def plant(storage, what, key):
        value = key if isinstance(key, str) else time_key(key)
        with storage._file.writing() as db:
            assert db.execute(SQLITE_GARBAGE[what], (value,)).rowcount > 0

    path = None if request.param == "memory" else str(tmp_path / "store.db")
    return Adapter(lambda: SqliteStorage(path), plant)


@pytest.fixture
def storage(adapter, request) -> Iterator[Storage]:
    """An open storage."""
    if "cassandra_session" in request.fixturenames or "cassandra" in request.node.name:
        yield CassandraStorage(request.getfixturevalue("cassandra_session"))
        return
    opened = adapter.open()
    yield opened
    opened.close()


@pytest.fixture
def queue() -> str:
    """A queue name that no other test uses."""
    return f"q-{secrets.token_hex(6)}"


@pytest.fixture
def pipe(storage, queue):
    """A fresh pipe of `queue`."""
    return created(storage, queue)
