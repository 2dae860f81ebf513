"""A machine that its hypervisor pauses: no clock of elapsed time shows it, and others go on meanwhile."""

import logging
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from test_planted_faults import Planted

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import DeliveryExpiredError, OutcomeUnknownError
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

PATIENCE = 10
#: Longer than a lease, and than a pipe may be pushed into, with the margins of both.
PAUSE_S = 200.0


class Truth(SystemClock):
    """The database's clock, and that of machines which nobody pauses."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Guest(SystemClock):
    """The clock of a machine that is paused, and whose time of day somebody may set."""

    told = 0.0
    ran = 0.0

    def now(self) -> float:
        return super().now() + self.ran

    def _read_day(self) -> float:
        return time.time() + self.told + self.ran


class Scene:
    """One database; a store on the machine that is paused, and one elsewhere."""

    def __init__(self) -> None:
        self.truth, self.clock = Truth(), Guest()
        self.kept = SqliteStorage(None, is_synced=False, clock=self.truth)
        self.storage = Planted(self.kept)
        self.guest = self._open("the guest", self.clock)
        self.others = self._open("others", self.truth)
        self.queue = self.guest.queue("q", lease=timedelta(seconds=30), retry_delay=timedelta(0))

    def _open(self, name: str, clock: SystemClock) -> Store:
        coordinator = LocalCoordinator(None, clock)
        return Store(name, Adapters(self.storage, coordinator, coordinator.close), clock=clock)

    def pause(self, *, is_told: bool) -> None:
        """Pause the guest; the others heal what they take for dead."""
        self.truth.ahead += PAUSE_S
        for _ in range(3):
            self.others.reap()
        self.clock.told += PAUSE_S if is_told else 0

    def hand_out(self) -> None:
        """Hand everything out elsewhere, so that a pipe which is closed by force ends behind it."""
        with self.others.queue("q").popper() as popper:
            assert popper.pop_many(9, timeout=PATIENCE)

    def run(self, seconds: float) -> None:
        """Let everybody's time go on."""
        self.truth.ahead += seconds
        self.clock.ran += seconds

    def pause_in(self, method: str, *, is_told: bool) -> None:
        """Pause the guest while its next call of the storage is under way."""

        def paused(*values: object) -> object:
            del self.storage.plants[method]
            self.pause(is_told=is_told)
            return self.storage.real(method)(*values)

        self.storage.plants[method] = paused

    def pop_all(self) -> list[bytes]:
        with self.others.queue("q").popper() as popper:
            found = []
            while delivery := popper.pop(timeout=0 if found else PATIENCE):
                found.append(delivery.body)
                delivery.commit()
            return found


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.guest.close()
    made.others.close()
    made.kept.close()


def test_a_push_that_a_pause_made_late_is_not_lost_where_the_time_of_day_tells(scene):
    scene.queue.push(b"1")
    scene.hand_out()
    scene.pause_in("append", is_told=True)

    first = scene.queue.push(b"2")

    assert first.seq == 1  # in a new pipe: the old one ends behind the first message
    assert scene.pop_all() == [b"1", b"2"]


def test_a_pipe_whose_opening_was_paused_is_as_old_as_others_see_it(scene):
    # Given a pusher that is paused when its new pipe is there, before it hears so
    def paused(*values: object) -> object:
        del scene.storage.plants["create_pipe"]
        created = scene.storage.real("create_pipe")(*values)
        scene.pause(is_told=True)
        return created

    scene.storage.plants["create_pipe"] = paused
    # When it pushes into that pipe, which others have closed by force and cleared away
    with pytest.raises(OutcomeUnknownError):
        scene.queue.push(b"1")
    # Then it goes on in another one
    scene.queue.push(b"2")
    assert scene.pop_all() == [b"2"]


def test_a_push_after_a_pause_is_not_lost_where_only_the_database_tells(scene):
    # Given a pusher that has heard the database's clock
    scene.queue.push(b"1")
    scene.run(2)
    scene.queue.push(b"2")
    scene.hand_out()
    # When its machine was paused, and its next look at the record is due
    scene.pause(is_told=False)
    scene.run(2)
    scene.queue.push(b"3")
    # Then that goes to a pipe which nobody has closed
    assert scene.pop_all() == [b"1", b"2", b"3"]


def test_a_loss_that_no_witness_told_in_time_is_said_aloud_by_the_next_seal(scene, caplog):
    scene.queue.push(b"1")
    scene.hand_out()
    scene.pause_in("append", is_told=False)
    lost = scene.queue.push(b"2")

    with caplog.at_level(logging.ERROR, "cassq.pusher"):
        scene.guest.close()

    (record,) = caplog.records
    assert f"messages 2 to 2 of pipe {lost.pipe} were acknowledged and are lost" in record.getMessage()


def test_a_holder_that_was_paused_past_its_lease_cannot_commit(scene):
    scene.queue.push(b"1")
    delivery = scene.queue.popper().pop(timeout=PATIENCE)
    scene.pause(is_told=True)
    with pytest.raises(DeliveryExpiredError):
        delivery.commit()
    assert scene.pop_all() == [b"1"]


def test_a_commit_that_a_pause_made_late_is_not_believed(scene):
    scene.queue.push(b"1")
    delivery = scene.queue.popper().pop(timeout=PATIENCE)
    scene.pause_in("mark", is_told=True)
    with pytest.raises(OutcomeUnknownError):
        delivery.commit()


def test_a_holder_hears_of_its_pause_from_the_database(scene):
    scene.queue.push(b"1")
    delivery = scene.queue.popper().pop(timeout=PATIENCE)
    scene.pause(is_told=False)
    scene.queue.peek()  # reads the pipes, and with them the database's clock
    with pytest.raises(DeliveryExpiredError):
        delivery.commit()


@pytest.mark.parametrize("how", ["commit", "extend", "rollback"])
def test_a_time_of_day_that_is_set_ahead_costs_a_healthy_holder_a_look(scene, how):
    scene.queue.push(b"1")
    popper = scene.queue.popper()
    delivery = popper.pop(timeout=PATIENCE)
    scene.clock.told += 3600

    getattr(delivery, how)()

    popper.close()
    stats = scene.queue.stats()
    assert (stats.committed, stats.waiting, stats.pending) == {
        "commit": (1, 0, 0),
        "extend": (0, 0, 1),
        "rollback": (0, 1, 0),
    }[how]


def test_a_time_of_day_that_is_set_ahead_takes_nothing_from_others(scene):
    # Given a pipe that somebody elsewhere pushes into
    scene.others.queue("q").push(b"1")
    # When the clock of a machine that reaps is set a day ahead
    scene.guest.reap()
    scene.clock.told += 86400
    scene.guest.reap()
    # Then the pipe is as good as before
    (entry,) = scene.kept.list_pipes("q").entries
    assert scene.kept.load_pipe(entry.pipe).head.phase.name == "OPEN"
