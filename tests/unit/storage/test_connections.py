"""Connections to one SQLite file: lent, given back, and closed while the process forks."""

import sqlite3
import threading
import time

import pytest

from cassq.errors import ClosedError
from cassq.runtime.files import FILE_MODE, make_file
from cassq.storage.sqlite.connections import Connections


@pytest.fixture
def connections(tmp_path):
    path = str(tmp_path / "jobs.db")
    make_file(path, FILE_MODE)
    made = Connections(
        path, "it", lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    )
    yield made
    made.go_on()
    made.close()


def _in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_nothing_is_open_once_all_has_fallen_quiet(connections):
    with connections.borrowed() as first, connections.borrowed() as second:
        assert first is not second
    assert connections.opened()
    connections.fall_quiet(time.monotonic() + 60)
    assert not connections.opened()
    connections.go_on()
    with connections.borrowed() as again:
        assert again not in (first, second)


def test_falling_quiet_waits_for_the_transaction_of_another_thread(connections):
    has_begun, may_end = threading.Event(), threading.Event()

    def work():
        with connections.borrowed():
            has_begun.set()
            may_end.wait()

    thread = _in_thread(work)
    has_begun.wait()
    quiet = _in_thread(lambda: connections.fall_quiet(time.monotonic() + 60))
    while not connections._forker:
        time.sleep(0)
    assert connections.opened()
    may_end.set()
    quiet.join()
    thread.join()
    assert not connections.opened()


def test_it_gives_up_on_a_transaction_that_does_not_end(connections):
    with connections.borrowed():
        thread = _in_thread(lambda: connections.fall_quiet(time.monotonic()))
        thread.join()
        assert connections.opened()


def test_it_does_not_wait_for_its_own_thread(connections):
    with connections.borrowed():
        connections.fall_quiet(float("inf"))
        assert connections.opened()


def test_who_comes_meanwhile_waits(connections):
    connections.fall_quiet(time.monotonic() + 60)
    borrowed = threading.Event()

    def work():
        with connections.borrowed():
            borrowed.set()

    thread = _in_thread(work)
    assert not borrowed.wait(0.05)
    connections.go_on()
    thread.join()
    assert borrowed.is_set()


def test_a_connection_that_never_came_back_is_closed_all_the_same(connections):
    with connections.borrowed():
        pass
    torn = connections._idle.pop()
    connections.fall_quiet(time.monotonic() + 60)
    assert not connections.opened()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        torn.execute("SELECT 1")


def test_nothing_is_lent_once_it_is_closed(connections):
    connections.close()
    with pytest.raises(ClosedError, match="it is closed"), connections.borrowed():
        pass
