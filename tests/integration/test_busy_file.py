"""What callers hear, and by when, while another program keeps the store's file locked.

The lock is let go only after a call has ended, so each call here ended by its own deadline.
"""

import logging
import re
import sqlite3

import pytest

import cassq
from cassq.storage.sqlite.file import BUSY_TIMEOUT_S


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def queue(path):
    with cassq.connect(f"sqlite:///{path}") as store:
        yield store.queue("orders")


@pytest.fixture
def busy(path):
    """A function that locks the file; it stays locked until the test is over."""
    other = sqlite3.connect(path, isolation_level=None)
    yield lambda: other.execute("BEGIN EXCLUSIVE")
    other.close()


def waited(error):
    """Return the seconds that an error, or a line of the log, tells."""
    return float(re.search(r"busy for ([\d.]+) s|within ([\d.]+) s", str(error)).group(0).split()[-2])


@pytest.mark.parametrize("was_used", [True, False], ids=["open pipe", "first push"])
def test_a_push_ends_by_its_deadline_and_tells_how_long_it_waited(queue, busy, was_used):
    if was_used:
        queue.push(b"before")
    busy()
    with pytest.raises(cassq.StorageUnavailableError) as raised:
        queue.push(b"now", timeout=0.5)
    assert waited(raised.value) < BUSY_TIMEOUT_S / 2


def test_a_push_of_many_ends_by_its_deadline(queue, busy):
    queue.push(b"before")
    busy()
    with pytest.raises(cassq.StorageUnavailableError):
        queue.push_many([b"x"] * 3000, timeout=0.5)


def test_a_push_with_little_time_does_not_wait_behind_one_with_much(queue, busy):
    queue.push(b"before")
    busy()
    patient = queue.push_soon(b"patient", timeout=60)
    with pytest.raises(cassq.StorageUnavailableError):
        queue.push(b"hurried", timeout=0.2)
    assert not patient.done()


def test_a_pop_that_could_not_take_says_so_and_not_that_there_is_nothing(queue, busy):
    queue.push_many([b"x"] * 10)
    with queue.popper() as popper:
        other = busy().connection
        with pytest.raises(cassq.StorageUnavailableError) as raised:
            popper.pop(timeout=3)
        other.close()
    assert waited(raised.value) < BUSY_TIMEOUT_S / 2


def test_a_close_waits_for_the_file_neither_in_a_take_nor_in_a_sample(queue, busy, caplog):
    caplog.set_level(logging.DEBUG)
    with cassq.connect(queue._workers._services.owner.url) as other:
        other.queue("orders").push(b"x")
    busy()
    # Given two threads that wait for the file
    popper = queue.popper()
    queue._workers._housekeeping._loop.poke()
    with pytest.raises(cassq.StorageUnavailableError):
        popper.pop(timeout=3)
    # When they are to end
    queue.close()
    # Then neither had the file's own patience
    told = [line for line in caplog.messages if "kept it busy" in line]
    assert told
    assert max(map(waited, told)) < BUSY_TIMEOUT_S / 2


def test_a_push_that_failed_tells_its_last_try_from_the_time_that_it_had(queue, busy):
    busy()
    with pytest.raises(cassq.StorageUnavailableError, match="in the time that was given; the last"):
        queue.push(b"now", timeout=0.5)


def test_what_was_refused_while_the_file_was_busy_is_not_stored_and_the_rest_goes_on(queue, path):
    queue.push(b"before")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(cassq.StorageUnavailableError):
        queue.push(b"refused", timeout=0.2)
    other.close()
    queue.push(b"after")
    with queue.popper() as popper:
        bodies = []
        while delivery := popper.pop(timeout=5 if len(bodies) < 2 else 0):
            bodies.append(delivery.body)
            delivery.commit()
    assert bodies == [b"before", b"after"]
