"""Real processes over servers of their own, which are killed, frozen and restarted like the processes.

The servers are started here, so that no other test meets an outage; where they cannot be started these tests
fail. CASSQ_FAULT_SEED as in `test_faults_embedded`.
"""

import pytest
import scenarios
from crew import PAST_LEASE_S, crew, now, wait_for_clock

from cassq.verification.ledger import Kind

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: What one request may take; an outage outlasts it, and the ZooKeeper session.
TIMEOUT_S = 2.0
SESSION_S = 2.0
PAST_TIMEOUT_S = 2.5 * TIMEOUT_S
PAST_SESSION_S = 6.0  # servers grant no session shorter than two of their ticks, 4 s by default


@pytest.fixture
def team(servers, tmp_path):
    url = (
        f"cassandra://{servers.cassandra}/{servers.make_keyspace()}"
        f"?zookeeper={servers.zookeeper}&zookeeper_session={SESSION_S:g}&timeout={TIMEOUT_S:g}"
    )
    with crew(url, tmp_path) as made:
        yield made
        # A failed test leaves the servers to the next one as it found them.
    servers.order("thaw")
    servers.order("start")


def test_nothing_is_lost_or_delivered_twice_when_poppers_are_killed(team):
    scenarios.poppers_are_killed(team, rounds=5)


def test_nothing_is_lost_or_delivered_twice_when_poppers_are_frozen_past_their_leases(team):
    scenarios.poppers_are_frozen(team, rounds=2)


def test_nothing_is_lost_or_delivered_twice_when_reapers_seal_the_pipes_of_frozen_pushers(team):
    scenarios.pushers_are_frozen(team, rounds=1)


def test_nothing_is_lost_or_delivered_twice_when_pushers_are_killed(team):
    scenarios.pushers_are_killed(team, rounds=3)


def test_nothing_is_lost_or_delivered_twice_when_reapers_are_killed(team):
    scenarios.reapers_are_killed(team, rounds=4)


def test_nothing_is_lost_or_delivered_twice_when_everything_happens_at_once(team):
    scenarios.everything_happens_at_once(team, rounds=12)


def test_nothing_is_lost_or_delivered_twice_when_zookeeper_is_restarted(servers, team):
    team.start_all(reapers=1)
    servers.order("restart", "--only", "zookeeper")
    team.await_more(Kind.COMMITTED, "popper")
    team.finish()


def test_nothing_is_lost_or_delivered_twice_when_zookeeper_is_silent_past_its_sessions(servers, team):
    team.start_all(reapers=1)
    servers.order("freeze", "--only", "zookeeper")
    wait_for_clock(now() + PAST_SESSION_S)
    team.await_more(Kind.ACKNOWLEDGED, "pusher")  # pushes do not need it
    servers.order("thaw", "--only", "zookeeper")
    team.await_more(Kind.COMMITTED, "popper")
    team.finish()


def test_nothing_is_lost_or_delivered_twice_when_cassandra_is_restarted(servers, team):
    team.start_all(reapers=1)
    servers.order("stop", "--only", "cassandra")
    wait_for_clock(now() + PAST_LEASE_S)
    servers.order("start", "--only", "cassandra")
    team.await_more(Kind.ACKNOWLEDGED, "pusher")
    team.await_more(Kind.COMMITTED, "popper")
    team.finish()


def test_nothing_is_lost_or_delivered_twice_when_cassandra_is_silent_past_the_time_out(servers, team):
    # Pushes are given up while it is silent: some end unknown, some are settled by a seal
    team.timeout_s = PAST_TIMEOUT_S
    team.start_all(reapers=1)
    for _ in range(2):
        servers.order("freeze", "--only", "cassandra")
        wait_for_clock(now() + PAST_TIMEOUT_S)
        servers.order("thaw", "--only", "cassandra")
        team.await_more(Kind.ACKNOWLEDGED, "pusher")
        team.await_more(Kind.COMMITTED, "popper")
    team.finish()
