"""Three Cassandra nodes and three ZooKeeper servers of one's own, and what may be done to them.

Owns the servers, through `tools/services`, and what can be asked of them: addresses, versions, who leads.
Refuses to judge. What must not break: whatever was stopped or frozen can be brought back by `mend`.
"""

import contextlib
import json
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from support.patience import patiently

from cassq.storage.cassandra import (
    Address,
    CassandraSchema,
    CassandraSession,
    CassandraStorage,
    open_session,
)

TOOL = Path(__file__).parents[2] / "tools" / "services"
CASSANDRA = "cassandra"
ZOOKEEPER = "zookeeper"
REPLICAS = 3

# Longer than the tool itself waits, which has the better words for what does not come.
_ORDER_S = 900.0
_ASK_S = 5.0

# The tables of which no repair can be counted on before deletions are forgotten.
_LISTS = ("pipes", "staged")


class RingError(Exception):
    """Raised when the servers do not do what they were told."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server listens."""

    service: str
    number: int
    address: str
    port: int


class Ring:
    """The servers of one directory.

    Args:
        folder: where their data are; gone after `remove`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: dict[int, int] = {}
        self._places: list[Place] = []
        self._contacts: dict[str, str] = {}
        self.keyspace = ""
        self._first: dict[str, int] = {}

    def start(self, *options: str) -> None:
        """Start all of them, with further words for the tool, and wait until every one answers."""
        told = json.loads(self._order("start", "--ring", "--json", *options))
        for each in told["servers"]:
            address, _, port = each["address"].rpartition(":")
            self._places.append(Place(each["service"], each["node"], address, int(port)))
        self._contacts = {
            CASSANDRA: told["CASSQ_TEST_CASSANDRA"],
            ZOOKEEPER: told["CASSQ_TEST_ZOOKEEPER"],
        }

    def remove(self) -> None:
        """End them and delete their data."""
        self._order("remove")

    def mend(self) -> None:
        """Bring back whatever is frozen or down."""
        self._order("thaw")
        self._order("start")

    def _order(self, command: str, *options: str, group: int | None = None) -> str:
        words = [sys.executable, str(TOOL), command, "--dir", str(self._folder), *options]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_ORDER_S, check=False, group=group
        )
        if done.returncode != 0:
            raise RingError(f"tools/services {command} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    # -- one server ------------------------------------------------------------------------------------

    def stop(self, service: str, number: int, *, kill: bool) -> None:
        """End one server, in order or by SIGKILL."""
        self._order("stop", "--only", service, "--node", str(number), *(["--kill"] if kill else []))

    def go_on(self, service: str, number: int) -> None:
        """Start one server over its data and wait until it answers."""
        group = self._groups.get(number) if service == CASSANDRA else None
        self._order("start", "--only", service, "--node", str(number), group=group)

    def wipe(self, number: int) -> None:
        """Crash one Cassandra node and delete its data; `go_on` has it replace itself from the others."""
        self._order("stop", "--only", CASSANDRA, "--node", str(number), "--wipe")

    def freeze(self, service: str, number: int) -> None:
        """Halt one server where it is."""
        self._order("freeze", "--only", service, "--node", str(number))

    def thaw(self, service: str, number: int) -> None:
        """Let one server go on."""
        self._order("thaw", "--only", service, "--node", str(number))

    def regroup(self, number: int, group: int) -> None:
        """Start one Cassandra node anew in a group of its own, by which a firewall knows its packets."""
        if self._groups.get(number) != group:
            self._groups[number] = group
            self.stop(CASSANDRA, number, kill=False)
            self.go_on(CASSANDRA, number)

    # -- questions -------------------------------------------------------------------------------------

    def place(self, service: str, number: int) -> Place:
        """Return where one server listens."""
        return next(each for each in self._places if (each.service, each.number) == (service, number))

    def storage_port(self) -> int:
        """Return the port at which the Cassandra nodes talk to each other."""
        return int(json.loads((self._folder / "state.json").read_text())["ports"]["cassandra_storage"])

    def leader(self) -> int:
        """Return the number of the ZooKeeper server that leads.

        Raises: RingError: none does just now.
        """
        for number in (1, 2, 3):
            if "Mode: leader" in self._ask_zookeeper(number):
                return number
        raise RingError("no ZooKeeper server leads")

    def _ask_zookeeper(self, number: int) -> str:
        place = self.place(ZOOKEEPER, number)
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((place.address, place.port), _ASK_S) as connection,
        ):
            connection.sendall(b"srvr")
            while part := connection.recv(4096):
                answer += part
        return answer.decode(errors="replace")

    def versions(self) -> dict[str, str]:
        """Return the servers' versions."""
        session = self._open("system")
        release = session.nodes()[0].release_version
        session.close()
        found = re.search(r"version: ([\d.]+)", self._ask_zookeeper(1))
        return {CASSANDRA: str(release), ZOOKEEPER: found[1] if found else "unknown"}

    def make_keyspace(self) -> None:
        """Make a keyspace with the schema, three replicas of everything."""
        self.keyspace = f"cassq_chaos_{secrets.token_hex(4)}"
        session = self._open(self.keyspace)
        replication = {"class": "SimpleStrategy", "replication_factor": REPLICAS}
        patiently(partial(CassandraSchema(session).apply, replication))
        session.close()

    @contextlib.contextmanager
    def forgetting(self, seconds: int) -> Iterator[None]:
        """Have the lists' deletions, and the hints that tell of them, be kept for so long only."""
        session = self._open(self.keyspace)
        kept = {table: grace for table, grace in self._tables(session).items() if table in _LISTS}
        change = f"ALTER TABLE {self.keyspace}.{{}} WITH gc_grace_seconds = {{}}"
        try:
            for table in kept:
                patiently(partial(session.define, change.format(table, seconds)))
            yield
        finally:
            for table, grace in kept.items():
                patiently(partial(session.define, change.format(table, grace)))
            session.close()

    def _tables(self, session: CassandraSession) -> dict[str, int]:
        """Return for how many seconds each table keeps deletions."""
        asked = (
            "SELECT table_name, gc_grace_seconds FROM system_schema.tables "
            f"WHERE keyspace_name = '{self.keyspace}'"
        )
        return dict(patiently(partial(session.ask, asked)))  # type: ignore[arg-type]

    def listed(self, queue: str) -> set[UUID]:
        """Return the pipes that a queue's list has."""
        storage = CassandraStorage(self._open(self.keyspace))
        try:
            return {entry.pipe for entry in patiently(partial(storage.list_pipes, queue)).entries}
        finally:
            storage.close()

    def repair(self) -> None:
        """Make the two nodes equal that are left of three: a quorum is both, and a read repairs it."""
        session = self._open(self.keyspace)
        for table in self._tables(session):
            patiently(partial(session.ask, f"SELECT * FROM {self.keyspace}.{table}"))
        session.close()

    def first_node(self, queue: str) -> int:
        """Return the number of the Cassandra node that clients ask first for a queue's record and pipes."""
        if queue not in self._first:
            self._first[queue] = self._find_first(queue)
        return self._first[queue]

    def _find_first(self, queue: str) -> int:
        session = self._open(self.keyspace)
        cluster = session._driver.cluster
        asked = session._driver.prepare(
            f"SELECT op FROM {self.keyspace}.queues WHERE queue = ? AND shard = ?"
        )
        key = asked.bind([queue, 0]).routing_key
        address = cluster.metadata.get_replicas(self.keyspace, key)[0].endpoint.address
        session.close()
        return next(
            each.number for each in self._places if (each.service, each.address) == (CASSANDRA, address)
        )

    def _open(self, keyspace: str) -> Any:
        hosts = [(each.address, each.port) for each in self._places if each.service == CASSANDRA]
        return patiently(partial(open_session, Address(hosts), keyspace))

    def url(self, *, session_s: float, timeout_s: float) -> str:
        """Return the URL of the store on these servers."""
        return (
            f"cassandra://{self._contacts[CASSANDRA]}/{self.keyspace}?zookeeper={self._contacts[ZOOKEEPER]}"
            f"&zookeeper_session={session_s:g}&timeout={timeout_s:g}"
        )
