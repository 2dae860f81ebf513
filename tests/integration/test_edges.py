"""What happens at the edges: errors that nobody expects, calls at the wrong moment, names used twice."""

import os
import sqlite3
import threading
import uuid
from datetime import timedelta

import pytest

import cassq
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.ids import new_pipe_id
from cassq.runtime.clock import SystemClock
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store


class Tripwire:
    """A storage whose named methods raise what the test wants, as long as it wants."""

    def __init__(self, storage):
        self._storage = storage
        self.errors = {}
        self.calls = []

    def __getattr__(self, name):
        method = getattr(self._storage, name)

        def call(*values, **named):
            self.calls.append(name)
            error = self.errors.get(name)
            if error is not None:
                raise error
            return method(*values, **named)

        return call


@pytest.fixture
def tripwire():
    return Tripwire(SqliteStorage(None))


@pytest.fixture
def tripped(tripwire):
    coordinator = LocalCoordinator(None, SystemClock())

    def close_all():
        coordinator.close()
        tripwire._storage.close()

    with Store("memory:", Adapters(tripwire, coordinator, close_all), clock=SystemClock()) as store:
        yield store


@pytest.mark.parametrize("method", ["append", "create_pipe", "transact"])
def test_a_push_hears_of_an_error_that_nobody_expected_and_the_next_one_goes_on(tripped, tripwire, method):
    queue = tripped.queue("q", pipe_messages_max=2)
    tripwire.errors[method] = RuntimeError("boom")
    try:
        queue.push_many([b"x"] * 5, timeout=1)
    except cassq.CassqError as error:
        assert "boom" in str(error)
    tripwire.errors.clear()

    queue.push(b"after", timeout=10)

    with queue.popper() as popper:
        bodies = set()
        while b"after" not in bodies:
            bodies |= {delivery.body for delivery in popper.pop_many(10, timeout=10)}


def test_a_popper_outlives_an_error_that_nobody_expected(tripped, tripwire):
    queue = tripped.queue("q")
    queue.push(b"x")
    tripwire.errors["load_pipe"] = RuntimeError("boom")
    with queue.popper() as popper:
        with pytest.raises(cassq.UnavailableError, match="boom"):
            popper.pop(timeout=0.2)
        tripwire.errors.clear()

        assert popper.pop(timeout=10).body == b"x"


def test_a_popper_does_not_spin_through_an_outage(tripped, tripwire):
    queue = tripped.queue("q")
    with queue.popper() as popper:
        assert popper.pop(timeout=0) is None
        tripwire.errors["list_pipes"] = cassq.StorageUnavailableError("away")
        tripwire.calls.clear()
        with pytest.raises(cassq.StorageUnavailableError):
            popper.pop(timeout=2)

        assert tripwire.calls.count("list_pipes") < 20


def test_a_commit_that_fails_by_surprise_does_not_take_the_next_group_with_it(tripped, tripwire):
    queue = tripped.queue("q", lease=timedelta(seconds=2), clock_skew_max=timedelta(0))
    queue.push_many([b"1", b"2"])
    with queue.popper(commit="grouped") as popper:
        first, second = popper.pop_many(2, timeout=10)
        tripwire.errors["mark"] = RuntimeError("boom")
        first.commit()
        popper._intake.committer.flush()
        tripwire.errors.clear()
        second.commit()
    assert queue.stats().committed >= 1


def test_one_damaged_pipe_does_not_hold_up_the_others(tripped, tripwire):
    queue = tripped.queue("q", pipe_messages_max=1)
    queue.push(b"damaged")
    queue.push(b"sound")
    with tripwire._storage._file.writing() as db:
        first = db.execute("SELECT pipe FROM pipes ORDER BY pipe LIMIT 1").fetchone()[0]
        db.execute("UPDATE heads SET phase = 'melted' WHERE pipe = ?", (first,))
    with queue.popper() as popper:
        popped = None
        for _ in range(20):
            try:
                popped = popped or popper.pop(timeout=1)
            except cassq.CorruptError as error:
                assert "heads" in str(error)
            if popped:
                break
        assert popped.body == b"sound"


def test_a_push_inside_a_callback_of_a_push_is_refused_instead_of_waiting_for_itself(store, name):
    queue = store.queue(name)
    told = []
    is_done = threading.Event()

    def push_again(_):
        try:
            queue.push(b"next")
        except cassq.InvalidOptionError as error:
            told.append(str(error))
        queue.push_soon(b"soon").add_done_callback(lambda _: is_done.set())

    queue.push_soon(b"first").add_done_callback(push_again)

    assert is_done.wait(20)
    assert told == [] or "push_soon() there" in told[0]
    assert queue.stats().waiting in {2, 3}


def test_closing_under_a_push_many_ends_it_with_an_error_that_says_what_is_stored(tripped):
    queue = tripped.queue("q")
    closed_after = threading.Event()

    def bodies():
        for number in range(1_000_000):
            if number == 5000:
                queue.close()
                closed_after.set()
            yield b"x"

    with pytest.raises(cassq.ClosedError) as raised:
        queue.push_many(bodies())

    assert closed_after.is_set()
    (note,) = raised.value.__notes__
    assert note == f"{tripped.queue('q').stats().pushed} of the messages are stored"


def test_push_many_never_says_unavailable_when_something_may_be_stored(tripped, tripwire):
    queue = tripped.queue("q")
    queue.push(b"opened")
    tripwire.errors["append"] = cassq.OutcomeUnknownError("lost")
    tripwire.errors["transact"] = cassq.OutcomeUnknownError("lost")

    with pytest.raises(cassq.OutcomeUnknownError):
        queue.push_many([b"x"] * 3000, timeout=1)
    tripwire.errors.clear()


@pytest.mark.parametrize("timeout", [5, 5.0, timedelta(seconds=5)])
def test_every_timeout_may_be_seconds_or_a_timedelta(store, name, timeout):
    queue = store.queue(name)
    queue.push(b"1", timeout=timeout)
    queue.push_soon(b"2", timeout=timeout).result(timeout=10)
    queue.push_many([b"3"], timeout=timeout)
    with queue.popper() as popper:
        assert popper.pop(timeout=timeout) is not None
        assert popper.pop(timeout=1e11) is not None


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), None, True])
def test_a_bad_push_timeout_is_refused(store, name, timeout):
    queue = store.queue(name)
    for push in (lambda: queue.push(b"x", timeout=timeout), lambda: queue.push_many([b"x"], timeout=timeout)):
        with pytest.raises(cassq.InvalidOptionError, match="timeout="):
            push()


def test_headers_count_for_the_size_of_a_batch(tripped, tripwire):
    queue = tripped.queue("q")

    queue.push_many([(b"x", {"h": "v" * 60_000})] * 100)

    assert tripwire.calls.count("append") >= 5


def test_a_message_id_of_another_kind_is_refused(store, name):
    queue = store.queue(name)
    for bad in (f"{uuid.uuid4()}:1", f"{uuid.uuid1()}:{10**30}", "x", 7):
        with pytest.raises(cassq.InvalidOptionError, match="is not a message id"):
            queue.status(bad)
        with pytest.raises(cassq.InvalidOptionError, match="is not a message id"):
            queue.dead.put_back([bad])
        with pytest.raises(cassq.InvalidOptionError, match="is not a message id"):
            queue.dead.discard([bad])


def test_a_deletion_never_touches_a_later_queue_of_the_same_name(tmp_path):
    with cassq.connect(f"sqlite:///{tmp_path}/one.db") as mine, cassq.connect(mine.url) as theirs:
        mine.queue("q").push(b"old")
        mine.queue("q").record.change(lambda record: record)
        deleted = mine.storage.read_queues("q")[0]
        mine.delete_queue("q")
        queue = theirs.queue("q")
        queue.push(b"new")

        mine._catalog.clear(deleted)
        assert mine.reap().failed == []

        assert [message.body for message in queue.peek()] == [b"new"]


def test_nobody_seals_the_pipes_of_a_later_queue_by_the_settings_of_an_earlier_one(tmp_path):
    short = {"push_age_max": timedelta(milliseconds=100), "push_grace": timedelta(milliseconds=100)}
    with cassq.connect(f"sqlite:///{tmp_path}/one.db") as mine, cassq.connect(mine.url) as theirs:
        stale = mine.queue("q", clock_skew_max=timedelta(0), **short)
        stale_popper = stale.popper()
        theirs.delete_queue("q")
        fresh = theirs.queue("q", lease=timedelta(seconds=3))
        fresh.push(b"1")
        with fresh.popper() as popper:
            popper.pop(timeout=10).commit()
        for _ in range(3):
            with pytest.raises((cassq.QueueNotFoundError, cassq.ClosedError)):
                stale_popper.pop(timeout=None)
        fresh.push(b"2")

        with fresh.popper() as popper:
            assert popper.pop(timeout=10).body == b"2"
        assert fresh.stats().pushed == 2


@pytest.mark.parametrize("commit", ["each", "grouped"])
def test_a_delivery_cannot_be_ended_in_a_forked_child(store, name, commit):
    queue = store.queue(name)
    queue.push(b"x")
    with queue.popper(commit=commit) as popper:
        delivery = popper.pop(timeout=10)
        child = os.fork()
        if child == 0:
            refused = 0
            for end in (delivery.extend, delivery.commit):
                try:
                    end()
                except cassq.ClosedError:
                    refused += 1
            os._exit(0 if refused == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        delivery.commit()
    assert queue.stats().committed == 1


def test_a_letter_whose_headers_break_a_younger_rule_is_read_and_put_back():
    headers = {"two": "li\nnes", "n\0l": "\r"}
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        letter = DeadLetter(cassq.MessageId(new_pipe_id(), 1), b"x", headers, 0, 5, "failed")
        store.storage.change_dead("q", added=[letter])

        assert [each.headers for each in queue.dead] == [headers]
        assert queue.dead.put_back() == 1
        with queue.popper() as popper:
            assert popper.pop(timeout=20).headers == headers


def test_a_purge_steps_over_messages_that_the_database_lost(tmp_path):
    with cassq.connect(f"sqlite:///{tmp_path}/one.db") as store:
        queue = store.queue("q")
        queue.push_many([b"x"] * 3)
        queue.close()
        with sqlite3.connect(tmp_path / "one.db") as db:
            db.execute("DELETE FROM waiting")
        db.close()
        queue = store.queue("q")
        with queue.popper() as popper, pytest.raises(cassq.CorruptError, match="messages 1 to 3 wait"):
            popper.pop(timeout=0)
        assert queue.stats().waiting == 3

        assert queue.purge() == 3
        assert store.reap().retired == 1

        assert (queue.stats().waiting, queue.stats().purged) == (0, 3)
