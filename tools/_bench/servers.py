"""The servers that cassq's own contestants need: Cassandra and ZooKeeper, or a folder for a file.

Owns finding or starting them, and what they say of themselves. Refuses to know who uses them: several
contestants may share one, so starting what runs and stopping what does not are no errors.

What must not break: a server that was named by a URL is never stopped, and one that was started here always
is.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import cassandra
import kazoo.version

import cassq
from _bench.errors import BenchError
from cassq.installation import apply_schema, read_zookeeper, target_of
from cassq.storage.cassandra import Address, open_session
from cassq.urls import CassandraTarget

_SERVICES = Path(__file__).parents[1] / "services"
_START_S = 300.0

#: Where cassq keeps its queues, and where the raw driver does.
KEYSPACE = "bench"
RAW_KEYSPACE = "bench_raw"


class CassandraServer:
    """One node or a ring of three, with ZooKeeper; started by `tools/services`, or named by a URL.

    Args:
        url: of a store that is up; None to start servers.
        is_ring: three of each, and replication 3.
        commitlog_sync: "periodic" or "group".
    """

    def __init__(
        self, url: str | None = None, *, is_ring: bool = False, commitlog_sync: str = "periodic"
    ) -> None:
        self._given = url
        self._url = url
        self.is_ring = is_ring
        self.commitlog_sync = commitlog_sync
        self._folder: Path | None = None

    def start(self, folder: Path) -> None:
        """Start the servers in `folder`, unless they run."""
        if self._url is not None:
            return
        self._folder = folder / "services"
        words = ["start", "--dir", str(self._folder), "--with", "java", "--json"]
        words += ["--commitlog-sync", self.commitlog_sync, "--timeout", str(_START_S)]
        words += ["--ring"] if self.is_ring else []
        found = json.loads(_services(*words))
        hosts, keepers = found["CASSQ_TEST_CASSANDRA"], found["CASSQ_TEST_ZOOKEEPER"]
        self._url = f"cassandra://{hosts}/{KEYSPACE}?zookeeper={keepers}"

    def stop(self) -> None:
        """End what was started here, and delete its data."""
        if self._folder is not None:
            folder, self._folder, self._url = self._folder, None, self._given
            _services("remove", "--dir", str(folder))

    def store_url(self, *, is_raw: bool = False) -> str:
        """Return the URL of the store, or of the keyspace beside it that the raw driver uses."""
        if self._url is None:
            raise BenchError("the servers were not started")
        if not is_raw:
            return self._url
        keyspace = RAW_KEYSPACE if self._given is None else f"{self.target.keyspace}_raw"
        return urlsplit(self._url)._replace(path=f"/{keyspace}").geturl()

    def prepare(self, *, is_raw: bool = False) -> None:
        """Make the keyspace and its tables."""
        replication = {"class": "SimpleStrategy", "replication_factor": 3 if self.is_ring else 1}
        apply_schema(self.store_url(is_raw=is_raw), replication)

    @property
    def target(self) -> CassandraTarget:
        """The URL, taken apart."""
        if self._url is None:
            raise BenchError("the servers were not started")
        return _as_cassandra(self._url)

    def pids(self) -> list[int]:
        """Return the processes of Cassandra that were started here; none of those named by a URL."""
        if self._folder is None:
            return []
        status = json.loads(_services("status", "--dir", str(self._folder), "--json"))
        return [each["pid"] for each in status["servers"] if each["service"] == "cassandra" and each["pid"]]

    def versions(self) -> Mapping[str, str]:
        """Return the versions of servers and clients."""
        told = read_zookeeper(self.target)
        keepers = {each.version or "unknown" for each in told.servers} if told else set()
        return {
            "cassq": cassq.__version__,
            "Cassandra": self.settings()["Cassandra"],
            "ZooKeeper": ", ".join(sorted(keepers)) or "none",
            "cassandra-driver": cassandra.__version__,
            "kazoo": kazoo.version.__version__,
        }

    def settings(self) -> dict[str, str]:
        """Return what of the cluster's settings decides about speed and durability."""
        target = self.target
        with closing(open_session(address_of(target), target.keyspace)) as session:
            names = "'commitlog_sync', 'commitlog_sync_period', 'commitlog_sync_group_window'"
            found: dict[str, str] = dict(
                session.ask(f"SELECT name, value FROM system_views.settings WHERE name IN ({names})")  # noqa: S608
            )
            replication = session.ask(
                f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{target.keyspace}'"  # noqa: S608
            )
            nodes = session.nodes()
        sync = found.get("commitlog_sync", "unknown")
        window = found.get(f"commitlog_sync_{'period' if sync == 'periodic' else 'group_window'}")
        factor = (
            dict(replication[0][0]).get("replication_factor", "per datacenter") if replication else "none"
        )
        return {
            "Cassandra": ", ".join(sorted({node.release_version or "unknown" for node in nodes})),
            "nodes": str(len(nodes)),
            "replication": str(factor),
            "consistency": "QUORUM and SERIAL"
            if target.datacenter is None
            else "LOCAL_QUORUM and LOCAL_SERIAL",
            "commitlog_sync": f"{sync} ({window})" if window else sync,
        }


def address_of(target: CassandraTarget) -> Address:
    """Return where the cluster is and how to get in."""
    return Address(
        target.hosts, target.username, target.password, target.datacenter, target.tls, target.timeout_s
    )


def _as_cassandra(url: str) -> CassandraTarget:
    target = target_of(url)
    if not isinstance(target, CassandraTarget):
        raise BenchError(f"{url!r} is not the URL of a store on Cassandra")
    return target


def _services(*words: str) -> str:
    """Run tools/services; its words for people go to stderr, as this command's do."""
    done = subprocess.run(
        [sys.executable, str(_SERVICES), *words], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"tools/services {words[0]} ended with exit code {done.returncode}")
    return done.stdout
