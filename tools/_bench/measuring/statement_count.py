"""Counting what a process of cassq's sends to Cassandra, at the driver's session.

Owns the kinds under which statements are told, and the listener that counts them. Refuses to change what is
sent. What must not break: every request is counted, also one whose kind nobody named.
"""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from cassandra.cluster import Cluster
from cassandra.query import BatchStatement, BoundStatement

import cassq
from _bench.clients.cassq_clients import CassqClient
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.statement import Call, Statement

_KINDS: tuple[tuple[str, tuple[Statement, ...]], ...] = (
    ("push: INSERT of a batch", (cql.APPEND,)),
    ("pop: read of waiting batches", tuple(cql.READ_BATCHES.values())),
    ("pop: LWT of a take", (cql.ADVANCE,)),
    ("commit: INSERT of marks", (cql.MARK,)),
    ("lease extended or given back: LWT", tuple(cql.WRITE_RUN.values())),
    ("pipe opened: INSERT of head, of entry", (cql.INSERT_HEAD, cql.INSERT_ENTRY)),
    ("pipe sealed: LWT", (cql.SEAL,)),
    ("pipe drained, retired, or sealed by force: LWT", (cql.SET_PHASE, cql.DRAIN)),
    ("pipe deleted: DELETE of three", (cql.DELETE_WAITING, cql.DELETE_PENDING, cql.DELETE_ENTRY)),
    ("list of pipes: read", tuple(cql.READ_ENTRIES.values())),
    (
        "head, runs and marks: SERIAL read",
        (cql.READ_HEAD, cql.READ_STATE, cql.READ_STATE_ABOVE, cql.READ_STATE_BEGINNING),
    ),
    ("queue's record: read", (cql.GLANCE_QUEUE, cql.READ_QUEUE, cql.READ_QUEUES)),
    ("queue's record: LWT", (cql.CHANGE_QUEUE, cql.INSERT_QUEUE, cql.REPLACE_QUEUE)),
    ("one node's clock: read", (cql.READ_CLOCK,)),
)
KINDS = tuple(kind for kind, _ in _KINDS)
_KIND_OF = {statement.cql: kind for kind, statements in _KINDS for statement in statements}
_WRITES = {
    statement.cql
    for _, statements in _KINDS
    for statement in statements
    if statement.call in (Call.WRITE, Call.TRANSACTION)
}
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Tally:
    """What was sent.

    Attributes:
        requests: by kind; a batch is one, under the kind of its first statement.
        bytes_written: of all values bound to statements that write.
    """

    requests: Counter[str]
    bytes_written: int


class StatementCounter:
    """Counts the requests of every session that this process opens from now on."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._bytes = 0
        self._prepared: dict[bytes, str] = {}

    def watch(self, session: Any) -> None:  # noqa: ANN401 - the driver's
        """Count what this session sends."""
        prepare = session.prepare

        def noted(text: str, *values: object, **named: object) -> object:
            prepared = prepare(text, *values, **named)
            self._prepared[prepared.query_id] = text
            return prepared

        session.prepare = noted
        session.add_request_init_listener(self._note)

    def take(self) -> Tally:
        """Return what was counted since the last call."""
        with self._counting:
            taken = Tally(self._requests, self._bytes)
            self._requests, self._bytes = Counter(), 0
        return taken

    def _note(self, future: Any) -> None:  # noqa: ANN401 - the driver's
        query = future.query
        parts: list[tuple[str, Any]] = []
        if isinstance(query, BoundStatement):
            parts = [(query.prepared_statement.query_string, query.values)]
        elif isinstance(query, BatchStatement):
            # The driver keeps the statements of a batch by the ids under which they were prepared.
            parts = [(self._prepared[name], values) for _, name, values in query._statements_and_parameters]  # noqa: SLF001
        told = [(_without_keyspace(text), values) for text, values in parts]
        size = sum(_size(values) for text, values in told if text in _WRITES)
        with self._counting:
            self._requests[_KIND_OF.get(told[0][0], _OTHER) if told else _OTHER] += 1
            self._bytes += size


def _without_keyspace(text: str) -> str:
    words = [f"{{ks}}.{word.partition('.')[2]}" if _is_table(word) else word for word in text.split(" ")]
    return " ".join(words)


def _is_table(word: str) -> bool:
    return word.partition(".")[2] in {"queues", "pipes", "waiting", "pending", "dead"}


def _size(values: Any) -> int:  # noqa: ANN401 - bytes, None, or the driver's mark for what is unset
    return sum(len(value) for value in values if isinstance(value, bytes))


class CountedClient(CassqClient):
    """A client whose statements are counted."""

    def __init__(self, store: cassq.Store, counter: StatementCounter) -> None:
        super().__init__(store)
        self.counter = counter


@dataclass(frozen=True, slots=True)
class CountedOpener:
    """Opens a counted client in whichever process calls it."""

    url: str

    def __call__(self) -> CountedClient:
        """Connect; every session of this process is watched from its beginning."""
        counter, connect = StatementCounter(), Cluster.connect

        def watched(cluster: Cluster, *values: object, **named: object) -> Any:  # noqa: ANN401 - the driver's
            session = connect(cluster, *values, **named)
            counter.watch(session)
            return session

        Cluster.connect = watched
        return CountedClient(cassq.connect(self.url), counter)
