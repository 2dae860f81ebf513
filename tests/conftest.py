"""The stores and services that tests run on.

A service that is not there is a failure with clear words, never a skip: `tools/test` brings it.
"""

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.patience import patiently
from support.servers import Servers
from xdist.scheduler import LoadScopeScheduling

import cassq
from cassq.storage.cassandra import Address, CassandraSchema, CassandraSession, open_session

HERE = Path(__file__).parent

# How fast a machine is says nothing about what is right.
settings.register_profile("cassq", deadline=None)
settings.load_profile("cassq")

# What a shell starts in the background ignores Ctrl-C, what nohup starts ignores SIGHUP; so would programs
# that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(_number, signal.SIG_DFL)

#: What takes longest goes first, so that nothing long is left when all the rest is through.
LONGEST = (
    "spark",
    "fault/test_faults_cluster.py",
    "simulation/test_simulation.py",
)

#: Whose tests keep a processor busy: most others wait for servers meanwhile, so that each goes beside those.
BUSY = "simulation/test_mutants.py"

#: Whose tests share nothing with each other: each may go to another worker.
SINGLE = (
    "fault/test_one_failure.py",
    "fault/test_two_failures.py",
    "simulation/test_simulation.py",
    BUSY,
    "unit/runtime/test_reentry.py",
)


def pytest_configure() -> None:
    """Draw the first seed of the histories of this run, before its workers start."""
    os.environ.setdefault("CASSQ_SIMULATE_FROM", str(secrets.randbelow(10**9)))


def pytest_report_header() -> str:
    """Tell the seed: a run that fails can be passed again."""
    return f"histories from seed {os.environ['CASSQ_SIMULATE_FROM']} on (CASSQ_SIMULATE_FROM)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes longest go first, then what keeps a processor busy and what waits side by side."""
    busy = [item for item in items if _place(item) == BUSY]
    others = [item for item in items if _place(item) != BUSY]
    share = {item: nth / len(kind) for kind in (busy, others) for nth, item in enumerate(kind)}

    def rank(item: pytest.Item) -> tuple[int, float]:
        place = _place(item)
        long = next((rank for rank, each in enumerate(LONGEST) if place.startswith(each)), len(LONGEST))
        return long, share[item]

    items.sort(key=rank)


def _place(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let tests that share servers or a session run on one worker, file by file."""
    return _ByFile(config, log)


class _ByFile(LoadScopeScheduling):
    """Goes by names: the group marks of xdist 3.8 are lost on pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].removeprefix("tests/")
        if file in SINGLE:
            return nodeid
        return "spark" if file.startswith("spark/") else file


def service(variable: str) -> str:
    """Return the address in an environment variable, as HOST:PORT[,HOST:PORT…]."""
    address = os.environ.get(variable)
    if not address:
        pytest.fail(
            f"{variable} is not set, so there is no service to test with: run tools/test, or "
            '`eval "$(tools/services env)"` first (pytest -m "not service" leaves these tests out)'
        )
    return address


@pytest.fixture(scope="session")
def cassandra_address() -> str:
    """The Cassandra nodes under test, as a URL has them."""
    return service("CASSQ_TEST_CASSANDRA")


@pytest.fixture(scope="session")
def zookeeper_address() -> str:
    """The ZooKeeper servers under test, as a URL has them."""
    return service("CASSQ_TEST_ZOOKEEPER")


@pytest.fixture(scope="session")
def cassandra_hosts(cassandra_address) -> list[tuple[str, int]]:
    """The Cassandra nodes under test, as (host, port)."""
    hosts = (part.rpartition(":") for part in cassandra_address.split(","))
    return [(host, int(port)) for host, _, port in hosts]


@pytest.fixture(scope="session")
def cassandra_session(cassandra_hosts) -> Iterator[CassandraSession]:
    """A session on a keyspace of this run, with the schema applied."""
    keyspace = f"cassq_test_{secrets.token_hex(6)}"
    session = patiently(lambda: open_session(Address(cassandra_hosts), keyspace))
    replication = {"class": "SimpleStrategy", "replication_factor": min(3, len(cassandra_hosts))}
    patiently(lambda: CassandraSchema(session).apply(replication))
    yield session
    session.define(f"DROP KEYSPACE {session.keyspace}")
    session.close()


@pytest.fixture
def cluster_url(cassandra_address, cassandra_session, zookeeper_address) -> str:
    """The URL of the keyspace of this run."""
    return f"cassandra://{cassandra_address}/{cassandra_session.keyspace}?zookeeper={zookeeper_address}"


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[Servers]:
    """Servers of the module's own, which it may stop."""
    made = Servers(tmp_path_factory.mktemp("services"))
    yield made
    made.order("remove")


@pytest.fixture(params=["memory", "file", pytest.param("cassandra", marks=pytest.mark.service)])
def url(request, tmp_path) -> str:
    """The URL of an empty store, of each kind in turn."""
    if request.param == "memory":
        return "memory:"
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("cluster_url")


@pytest.fixture
def store(url) -> Iterator[cassq.Store]:
    """An open store."""
    with patiently(lambda: cassq.connect(url)) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """A queue name that no other test uses."""
    return f"q-{secrets.token_hex(6)}"
