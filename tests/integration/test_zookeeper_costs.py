"""What claims and announcements cost, counted at the client: many processes share one ZooKeeper."""

from collections import Counter
from contextlib import ExitStack
from uuid import uuid1

import pytest

from cassq.coordination.zookeeper.coordinator import ZooKeeperCoordinator
from cassq.runtime.clock import SystemClock

pytestmark = pytest.mark.service

PATIENCE = 30.0


@pytest.fixture
def seats(zookeeper_address, name):
    """Two coordinators of one namespace, connected."""
    with ExitStack() as closing:
        made = []
        for _ in range(2):
            seat = ZooKeeperCoordinator(zookeeper_address, name, clock=SystemClock())
            closing.callback(seat.close)
            assert seat.wait_connected(PATIENCE)
            made.append(seat)
        yield made


@pytest.fixture
def requests(monkeypatch):
    """Count what a coordinator asks about the queues, by the kind of request."""

    def count(coordinator):
        counted, send = Counter(), coordinator._session.client._call

        def call(request, reply):
            if "/cassq/" in getattr(request, "path", ""):
                counted[type(request).__name__] += 1
            return send(request, reply)

        monkeypatch.setattr(coordinator._session.client, "_call", call)
        return counted

    return count


def test_a_pipe_that_somebody_else_holds_is_refused_in_one_request(seats, requests):
    a, b = seats
    pipe = uuid1()
    assert a.claim("orders", pipe, "A")
    assert not b.claim("orders", pipe, "B")  # the parents are there
    counted = requests(b)

    assert not b.claim("orders", pipe, "B")

    assert counted == {"Create": 1}


def test_a_claim_that_is_granted_and_given_up_takes_two_requests(seats, requests):
    _, b = seats
    assert b.claim("orders", uuid1(), "B")
    counted, pipe = requests(b), uuid1()

    assert b.claim("orders", pipe, "B")
    b.release("orders", pipe, "B")

    assert counted == {"Create": 1, "Delete": 1}


def test_who_joins_a_line_asks_once_and_watches_only_its_own_place(seats, requests):
    a, b = seats
    a.announce_hunger("orders", "A", lambda: None, on_crowded=lambda: None)
    b.announce_hunger("orders", "B", lambda: None, on_crowded=lambda: None)
    b.withdraw_hunger("orders", "B")
    counted = requests(b)

    b.announce_hunger("orders", "B", lambda: None, on_crowded=lambda: None)
    asked = dict(counted)

    assert b.hungry("orders", besides="B") == 1
    assert asked == {"Create": 1, "Exists": 1, "GetChildren": 1}
