"""The coordinators under test: how seats are made, and how a session is lost, for each adapter.

Owns what the contract suite must know of an adapter beside the port. Decides nothing about right or wrong.
"""

import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from kazoo.client import KazooClient

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.coordination.port import Coordinator
from cassq.coordination.zookeeper.client import Timeouts
from cassq.coordination.zookeeper.coordinator import ZooKeeperCoordinator
from cassq.runtime.clock import SystemClock

PATIENCE = 20.0
SESSION_SECONDS = 4.0
CLAIM_TTL = 5.0


class ShiftedClock(SystemClock):
    """The machine's clock, which a test may set forward as if all were suspended for a while."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        return super().now() + self.offset


class Seats(Protocol):
    """A coordination service, and seats at it."""

    def take(self) -> Coordinator:
        """Return a seat; the same one each time where the adapter serves threads."""
        ...

    def lose(self, seat: Coordinator) -> None:
        """End the seat's session behind its back."""
        ...

    def close(self) -> None:
        """Close all seats."""
        ...


class LocalSeats:
    def __init__(self, path: Path | None, *, is_one: bool) -> None:
        self._path = str(path) if path else None
        self._is_one = is_one
        self._clock = ShiftedClock()
        self._taken: list[Coordinator] = []

    def take(self) -> Coordinator:
        if not (self._taken and self._is_one):
            self._taken.append(LocalCoordinator(self._path, self._clock, claim_ttl=CLAIM_TTL))
        return self._taken[-1]

    def lose(self, seat: Coordinator) -> None:
        self._clock.offset += CLAIM_TTL + 1

    def close(self) -> None:
        for seat in self._taken:
            seat.close()


class ZooKeeperSeats:
    def __init__(self) -> None:
        hosts = os.environ.get("CASSQ_TEST_ZOOKEEPER")
        if not hosts:
            pytest.fail(
                "CASSQ_TEST_ZOOKEEPER is not set, so there is no ZooKeeper to test with: run tools/test, or "
                '`eval "$(tools/services env)"` first (pytest -m "not service" leaves these tests out)'
            )
        self._hosts = hosts
        self._namespace = f"test-{secrets.token_hex(6)}"
        self._taken: list[ZooKeeperCoordinator] = []

    def take(self) -> Coordinator:
        seat = ZooKeeperCoordinator(
            self._hosts, self._namespace, clock=SystemClock(), timeouts=Timeouts(session=SESSION_SECONDS)
        )
        self._taken.append(seat)
        return seat

    def lose(self, seat: Coordinator) -> None:
        # A second client takes the session over and closes it: for the first one it has expired.
        assert isinstance(seat, ZooKeeperCoordinator)
        assert seat.wait_connected(PATIENCE)
        thief = KazooClient(self._hosts, client_id=seat._session.client.client_id, timeout=SESSION_SECONDS)
        thief.start()
        thief.stop()
        thief.close()

    def close(self) -> None:
        for seat in self._taken:
            seat.close()
        client = KazooClient(self._hosts)
        client.start()
        client.delete(f"/cassq/{self._namespace}", recursive=True)
        client.stop()
        client.close()


class Calls:
    """A callback that counts, and can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def arrive(self, count: int = 1) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, PATIENCE)


def eventually(condition: Callable[[], bool]) -> bool:
    """Look again and again for what the service tells "a moment later", at most `PATIENCE` seconds."""
    clock = SystemClock()
    end = clock.now() + PATIENCE
    pause = threading.Condition()
    while not condition():
        if clock.now() > end:
            return False
        with pause:
            clock.wait(pause, 0.002)
    return True
