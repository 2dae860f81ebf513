"""The embedded store's clock, where the system does not tell one boot from the next, and where it does."""

import pytest

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite import store_clock
from cassq.storage.sqlite.storage import SqliteStorage


class Machine(SystemClock):
    """A machine that may be started anew, and whose time of day anybody may set."""

    def __init__(self) -> None:
        self.elapsed = 5000.0
        self.day = 1_700_000_000.0
        self.boot = "the first"

    def now(self) -> float:
        return self.elapsed

    def run(self, seconds: float) -> None:
        self.elapsed += seconds
        self.day += seconds

    def restart(self, up: float) -> None:
        """Start anew; the store is opened when it has been up for so long."""
        self.boot = "the second"
        self.day += 60 + up
        self.elapsed = up


@pytest.fixture(params=["a boot id", "none"])
def machine(request, monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(store_clock.time, "time", lambda: made.day)
    monkeypatch.setattr(store_clock, "_boot_id", lambda: made.boot if request.param == "a boot id" else "")
    return made


@pytest.fixture
def open_store(machine, tmp_path):
    opened = []

    def open_another() -> SqliteStorage:
        opened.append(SqliteStorage(str(tmp_path / "store.db"), is_synced=False, clock=machine))
        return opened[-1]

    yield open_another
    for store in opened:
        store.close()


def now_ms(store: SqliteStorage) -> int:
    return store.list_pipes("q").now_ms


def write(store: SqliteStorage) -> None:
    store.create_pipe("q", PipeEntry(new_pipe_id(), "a pusher"), Head(new_token()))


@pytest.mark.parametrize("step", [3600, -3600])
def test_nobody_can_set_the_clock_of_a_store_that_is_open(machine, open_store, step):
    store = open_store()
    write(store)
    begun = now_ms(store)
    machine.run(10)
    machine.day += step
    assert now_ms(store) - begun == 10_000


@pytest.mark.parametrize("step", [3600, -3600])
def test_processes_of_one_boot_have_one_clock_whatever_was_set_between(machine, open_store, step):
    first = open_store()
    write(first)
    machine.day += step
    assert now_ms(open_store()) == now_ms(first)


@pytest.mark.parametrize("up", [30, 4000, 6000, 90_000])
@pytest.mark.parametrize("step", [0, 3600, -3600])
def test_after_a_restart_the_clock_shows_no_less_than_the_file_knows(machine, open_store, up, step):
    # Given a store that was in use for an hour
    store = open_store()
    machine.run(3600)
    write(store)
    newest = now_ms(store)
    store.close()
    # When the machine starts anew, and its time of day is off
    machine.restart(up)
    machine.day += step
    # Then no lease is longer than it was, nor ends before its time
    begun = now_ms(open_store())
    assert begun >= newest
    machine.run(10)
    assert now_ms(open_store()) - begun == 10_000
