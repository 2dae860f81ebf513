"""The ZooKeeper coordinator while its server is down, comes back, is silent, or swallows a reply."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid1

import pytest
from kazoo.exceptions import ConnectionDropped

from cassq.coordination.zookeeper.client import Timeouts
from cassq.coordination.zookeeper.coordinator import ZooKeeperCoordinator
from cassq.errors import AccessDeniedError, CoordinationUnavailableError, InvalidOptionError
from cassq.runtime.clock import SystemClock

pytestmark = [pytest.mark.service, pytest.mark.slow]

SERVICES = Path(__file__).parents[2] / "tools" / "services"
PATIENCE = 30.0
ANSWER_SECONDS = 1.0
PIPE = uuid1()


class Clock(SystemClock):
    """The machine's clock, which a test may set forward as if this process had been suspended."""

    def __init__(self):
        self.offset = 0.0

    def now(self):
        return super().now() + self.offset


class Server:
    """A ZooKeeper of our own, to do to it what nobody may do to the shared one."""

    def __init__(self, directory):
        self._directory = directory
        self.run("start")
        self.hosts = json.loads(self.run("env", "--json"))["CASSQ_TEST_ZOOKEEPER"]

    def run(self, verb, *options):
        only = [] if verb in ("env", "remove") else ["--only", "zookeeper"]
        command = [sys.executable, str(SERVICES), verb, *only, "--dir", str(self._directory), *options]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("zookeeper"))
    yield started
    started.run("remove")


@pytest.fixture
def running(server):
    """The server, which runs again after the test whatever became of it."""
    yield server
    server.run("thaw")
    server.run("start")


@pytest.fixture
def seat(running, request):
    """Make coordinators of one namespace, and close them."""
    made = []

    def make(session_timeout=10.0):
        coordinator = ZooKeeperCoordinator(
            running.hosts,
            request.node.name.replace("[", "-").replace("]", ""),
            clock=Clock(),
            timeouts=Timeouts(session_timeout, ANSWER_SECONDS),
        )
        made.append(coordinator)
        return coordinator

    yield make
    running.run("thaw")
    running.run("start")
    for coordinator in made:
        coordinator.close()


def eventually(condition):
    clock, pause = SystemClock(), threading.Condition()
    end = clock.now() + PATIENCE
    while not condition():
        if clock.now() > end:
            return False
        with pause:
            clock.wait(pause, 0.01)
    return True


def answered(call):
    """Call until the server answers in time, which one that has just started may not."""
    answers = []

    def is_answered():
        try:
            answers.append(call())
        except CoordinationUnavailableError:
            return False
        return True

    assert eventually(is_answered)
    return answers[0]


def within(seconds, call):
    """Call, and tell whether it came back in time."""
    clock = SystemClock()
    begin = clock.now()
    try:
        call()
    finally:
        passed = clock.now() - begin
        assert passed < seconds, f"took {passed:.1f} s"


def test_a_server_that_stops_and_comes_back_needs_no_new_coordinator(running, seat):
    # A busy machine takes its time for a restart.
    session_s = 120.0  # the most that this server grants
    a, b = seat(session_timeout=session_s), seat(session_timeout=session_s)
    assert a.wait_connected(PATIENCE)
    assert a.claim("orders", PIPE, "A")
    woken = threading.Event()
    a.announce_hunger("orders", "A", woken.set)
    assert eventually(lambda: b.hungry("orders") == 1)

    running.run("stop")

    # The connection broke, which is known at once; nobody has to time out first.
    assert eventually(lambda: not a.may_take())
    assert eventually(lambda: not b.may_take())
    for refused in (
        lambda: b.claim("orders", PIPE, "B"),
        lambda: b.announce_hunger("orders", "B", woken.set),
        lambda: b.holders("orders"),
    ):
        with pytest.raises(CoordinationUnavailableError, match=running.hosts):
            within(2 * ANSWER_SECONDS, lambda refused=refused: refused())
    within(0.5, lambda: b.hungry("orders"))
    assert b.hungry("orders") == 0
    assert b.wake("orders", 1) == 0
    within(0.5, lambda: a.release("orders", uuid1(), "A"))

    running.run("start")

    # A server that starts may take a connection and never answer: kazoo waits for it as long as a session.
    assert a.wait_connected(session_s + PATIENCE)
    assert b.wait_connected(session_s + PATIENCE)
    # Sessions outlive a restart of the server: the claim stands, and the announcement can be woken.
    assert a.is_held("orders", PIPE, "A")
    assert not answered(lambda: b.claim("orders", PIPE, "B"))
    assert eventually(lambda: b.hungry("orders") == 1)
    assert eventually(lambda: b.wake("orders", 1) == 1)
    assert woken.wait(PATIENCE)


def test_a_claim_given_up_while_the_server_is_away_is_free_afterwards(running, seat):
    a, b = seat(), seat()
    assert a.claim("orders", PIPE, "A")
    running.run("stop")
    assert eventually(lambda: not a.may_take())
    a.release("orders", PIPE, "A")
    assert not a.is_held("orders", PIPE, "A")
    running.run("start")
    assert b.wait_connected(PATIENCE)
    assert eventually(lambda: b.claim("orders", PIPE, "B"))


def test_who_is_woken_while_away_learns_of_it_afterwards(running, seat):
    a, b = seat(), seat()
    woken = threading.Event()
    a.announce_hunger("orders", "A", woken.set)
    assert eventually(lambda: b.hungry("orders") == 1)
    drop_connection_behind(a._session.client, "exists_async")
    a._session.call_soon(a._session._beat)
    assert b.wake("orders", 1) == 1
    assert woken.wait(PATIENCE)


def test_a_coordinator_that_is_built_while_the_server_is_down_connects_later(running, seat):
    running.run("stop")
    a = seat()
    assert not a.wait_connected(0.2)
    within(0.5, lambda: a.hungry("orders"))
    with pytest.raises(CoordinationUnavailableError, match=running.hosts):
        within(2 * ANSWER_SECONDS, lambda: a.claim("orders", PIPE, "A"))
    running.run("start")
    assert a.wait_connected(PATIENCE)
    assert a.claim("orders", PIPE, "A")
    a.announce_hunger("orders", "A", lambda: None)
    assert eventually(lambda: a.hungry("orders") == 1)


def test_a_server_that_never_was_there_can_be_closed_at_once(running, seat):
    running.run("stop")
    a = seat()
    within(3.0, a.close)


def drop_connection_behind(client, method):
    """Let the next request of a kind reach the server, and the connection break before the reply."""
    send, connection = getattr(client, method), client._connection
    read = connection._read_socket

    def drop(_timeout):
        connection._read_socket = read
        raise ConnectionDropped("before the reply was read")

    def send_and_drop(*arguments, **options):
        setattr(client, method, send)
        connection._read_socket = drop
        return send(*arguments, **options)

    setattr(client, method, send_and_drop)


def test_a_claim_whose_reply_was_lost_is_held_when_it_is_claimed_again(seat):
    a, b = seat(), seat()
    assert a.wait_connected(PATIENCE)
    a.claim("orders", uuid1(), "A")  # the parents are there
    drop_connection_behind(a._session.client, "create_async")
    with pytest.raises(CoordinationUnavailableError):
        a.claim("orders", PIPE, "A")
    assert not a.is_held("orders", PIPE, "A")
    assert a.wait_connected(PATIENCE)
    assert a.claim("orders", PIPE, "A")
    assert a.is_held("orders", PIPE, "A")
    assert not b.claim("orders", PIPE, "B")


def test_a_claim_whose_reply_was_lost_does_not_stay_with_nobody(seat):
    a, b = seat(), seat()
    a.claim("orders", uuid1(), "A")
    drop_connection_behind(a._session.client, "create_async")
    with pytest.raises(CoordinationUnavailableError):
        a.claim("orders", PIPE, "A")
    assert eventually(lambda: b.claim("orders", PIPE, "B"))


def test_a_claim_that_nobody_waited_for_behind_a_release_does_not_stay_with_nobody(running, seat):
    a, b = seat(), seat()
    assert a.wait_connected(PATIENCE)
    assert b.wait_connected(PATIENCE)
    assert a.claim("orders", PIPE, "A")
    running.run("freeze")
    a.release("orders", PIPE, "A")
    with pytest.raises(CoordinationUnavailableError):
        a.claim("orders", PIPE, "A")
    running.run("thaw")
    assert eventually(lambda: b.claim("orders", PIPE, "B"))


def test_an_announcement_whose_reply_was_lost_does_not_stay_in_the_line(seat):
    a, b = seat(), seat()
    a.announce_hunger("orders", "other", lambda: None)
    assert eventually(lambda: b.hungry("orders") == 1)
    drop_connection_behind(a._session.client, "create_async")
    with pytest.raises(CoordinationUnavailableError):
        a.announce_hunger("orders", "A", lambda: None)
    assert a.wait_connected(PATIENCE)
    a._session.call_soon(a._session._beat)
    client, line = a._session.client, f"{a._root}/hungry/orders"
    assert eventually(lambda: [node[:-11] for node in client.get_children(line)] == ["other"])
    woken = threading.Event()
    a.announce_hunger("orders", "A", woken.set)
    assert eventually(lambda: b.hungry("orders", besides="other") == 1)
    assert b.wake("orders", 2) == 2
    assert woken.wait(PATIENCE)


def test_a_silent_server_delays_nobody_for_longer_than_one_answer(running, seat):
    a, b = seat(session_timeout=20.0), seat(session_timeout=20.0)
    a.claim("orders", uuid1(), "A")
    assert b.wait_connected(PATIENCE)
    running.run("freeze")
    with pytest.raises(CoordinationUnavailableError, match="did not answer"):
        within(2 * ANSWER_SECONDS, lambda: a.claim("orders", PIPE, "A"))
    within(0.5, lambda: a.hungry("orders"))
    within(2 * ANSWER_SECONDS, lambda: a.wake("orders", 1))
    running.run("thaw")
    # The claim was granted after all, and nobody waited for it any more: it is given back.
    assert eventually(lambda: b.claim("orders", PIPE, "B"))


def test_a_process_that_slept_longer_than_its_session_does_not_trust_it(running, seat):
    a = seat()
    assert a.claim("orders", PIPE, "A")
    assert a.may_take()
    running.run("freeze")
    a._session._clock.offset += 10.0
    assert not a.may_take()
    assert not a.is_held("orders", PIPE, "A")
    running.run("thaw")
    assert eventually(a.may_take)
    assert a.is_held("orders", PIPE, "A")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_whose_thread_died_is_started_again(seat):
    a, b = seat(session_timeout=4.0), seat()
    assert a.claim("orders", PIPE, "A")
    woken = threading.Event()
    a.announce_hunger("orders", "A", woken.set)
    client = a._session.client
    client._queue.append((object(), None))
    client._connection._write_sock.send(b"\0")
    assert woken.wait(PATIENCE)
    assert not a.is_held("orders", PIPE, "A")
    assert eventually(lambda: a.claim("orders", PIPE, "A"))
    assert not b.claim("orders", PIPE, "B")


def test_parents_that_were_deleted_are_made_again(seat):
    a, b = seat(), seat()
    a.claim("orders", PIPE, "A")
    a.release("orders", PIPE, "A")
    a.announce_hunger("orders", "A", lambda: None)
    a.withdraw_hunger("orders", "A")
    root = a._root
    assert eventually(lambda: not a._session.client.get_children(f"{root}/hungry/orders"))
    a._session.client.delete(root, recursive=True)
    assert a.claim("orders", PIPE, "A")
    a.announce_hunger("orders", "A", lambda: None)
    assert eventually(lambda: b.hungry("orders") == 1)
    assert eventually(lambda: a.hungry("orders") == 1)


def test_credentials_keep_strangers_out(running, seat):
    clock = SystemClock()
    options = {"clock": clock, "timeouts": Timeouts(answer=5.0)}
    # The first process of all makes /cassq for everybody, as the operator would.
    assert seat().claim("orders", PIPE, "anybody")
    a = ZooKeeperCoordinator(running.hosts, "guarded", auth=("user", "secret"), **options)
    b = ZooKeeperCoordinator(running.hosts, "guarded", auth=("user", "secret"), **options)
    stranger = ZooKeeperCoordinator(running.hosts, "guarded", **options)
    try:
        assert a.claim("orders", PIPE, "A")
        assert not b.claim("orders", PIPE, "B")
        a.release("orders", PIPE, "A")
        assert b.claim("orders", PIPE, "B")
        with pytest.raises(AccessDeniedError, match="NoAuth"):
            stranger.claim("orders", uuid1(), "S")
    finally:
        for coordinator in (a, b, stranger):
            coordinator.close()


def test_hosts_that_cannot_be_read_are_the_callers_mistake():
    with pytest.raises(InvalidOptionError, match="not ZooKeeper hosts"):
        ZooKeeperCoordinator("z1:port", "orders", clock=SystemClock())


def test_a_claim_that_was_given_up_while_the_server_was_silent_is_free_afterwards(running, seat):
    a, b = seat(), seat()
    assert a.claim("orders", PIPE, "A")
    running.run("freeze")
    a._session._clock.offset += 10.0  # silent for longer than it is trusted; the connection stays
    assert not a.may_take()
    a.release("orders", PIPE, "A")
    running.run("thaw")
    assert eventually(a.may_take)
    assert eventually(lambda: b.claim("orders", PIPE, "B"))
