"""An outage in the log: one line when it begins, one a minute, one when it is over."""

import logging
import threading
from contextlib import ExitStack
from queue import SimpleQueue

import pytest
from support.clocks import HandClock

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import (
    CoordinationUnavailableError,
    DecodeError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.popping.timing import IDLE_S
from cassq.runtime.clock import SystemClock
from cassq.runtime.outage_log import (
    COORDINATION,
    DATABASE,
    DOUBT_S,
    QUIET_S,
    OncePerMinute,
    OutageLog,
    log_trouble,
    spare,
)
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

QUEUES = 200
GONE = StorageUnavailableError("no node answers")
KEPT_WAITING = OutcomeUnknownError("others were first", is_contended=True)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def outages(clock):
    return OutageLog("memory:", clock)


@pytest.fixture
def told(caplog):
    """Return what was logged so far."""
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_many_failures_are_one_line_a_minute(outages, clock, told):
    for _ in range(130):
        for _ in range(QUEUES):
            outages.note_failure(DATABASE, GONE)
        clock.seconds += 1

    assert told() == [
        "memory:: the database is out of reach: no node answers",
        *(
            f"memory:: the database is out of reach for {second} s, {second * QUEUES + 1} calls failed; "
            "the last: no node answers"
            for second in (60, 120)
        ),
    ]


def test_the_end_is_told_with_the_length_once_it_is_sure(outages, clock, told):
    outages.note_failure(DATABASE, GONE)
    clock.seconds += 30
    outages.note_answer(DATABASE)  # one node of some answers
    outages.note_failure(DATABASE, GONE)
    clock.seconds += 2
    outages.note_answer(DATABASE)
    assert len(told()) == 1

    clock.seconds += QUIET_S
    outages.note_answer(DATABASE)
    outages.note_answer(DATABASE)

    assert told()[1:] == ["memory:: the database is back after 32.0 s; 2 calls failed"]


def test_an_outage_lasts_until_a_call_that_failed_is_answered(outages, clock, told):
    outages.note_failure(DATABASE, GONE, "append")
    outages.note_failure(DATABASE, GONE, "transact")
    outages.note_answer(DATABASE, "load_pipe")  # a locked file is read all the time
    clock.seconds += QUIET_S - 1
    outages.note_answer(DATABASE, "append")
    clock.seconds += QUIET_S - 1
    outages.note_answer(DATABASE, "append")
    assert len(told()) == 1

    clock.seconds += 1
    outages.note_answer(DATABASE, "load_pipe")

    assert told()[1:] == [f"memory:: the database is back after {QUIET_S - 1:.1f} s; 2 calls failed"]


def test_each_service_has_its_own_outage(outages, clock, told):
    outages.note_failure(DATABASE, GONE)
    outages.note_failure(COORDINATION, CoordinationUnavailableError("suspended"))
    clock.seconds += 1
    outages.note_answer(COORDINATION)
    clock.seconds += QUIET_S
    outages.note_answer(COORDINATION)

    assert [line.split(": ")[1] for line in told()] == [
        "the database is out of reach",
        "the coordination service is out of reach",
        "the coordination service is back after 1.0 s; 1 calls failed",
    ]


def test_a_transaction_that_others_kept_waiting_is_no_outage(outages, clock, told):
    for _ in range(50):
        outages.note_failure(DATABASE, KEPT_WAITING)
        outages.note_failure(DATABASE, KEPT_WAITING)
        clock.seconds += 2 * DOUBT_S
        outages.note_answer(DATABASE)

    assert told() == []


@pytest.mark.parametrize(("error", "seconds"), [(GONE, 0), (KEPT_WAITING, DOUBT_S)])
def test_an_outage_that_a_transaction_met_first_is_told_once(outages, clock, told, error, seconds):
    outages.note_failure(DATABASE, KEPT_WAITING)
    clock.seconds += seconds
    for _ in range(3):
        outages.note_failure(DATABASE, error)
        outages.note_failure(DATABASE, KEPT_WAITING)
    clock.seconds += 1
    outages.note_answer(DATABASE)
    clock.seconds += QUIET_S
    outages.note_answer(DATABASE)

    assert told() == [
        f"memory:: the database is out of reach: {error}",
        f"memory:: the database is back after {seconds + 1:.1f} s; 7 calls failed",
    ]


def test_an_outage_goes_on_where_a_transaction_is_kept_waiting(outages, clock, told):
    outages.note_failure(DATABASE, GONE)
    clock.seconds += 1
    outages.note_answer(DATABASE)
    outages.note_failure(DATABASE, KEPT_WAITING)
    clock.seconds += QUIET_S
    outages.note_answer(DATABASE)

    assert len(told()) == 1


def test_what_is_no_outage_is_a_warning_as_ever(told):
    log = logging.getLogger("cassq.popper")
    log_trouble(log, GONE, "queue %s: %s", "q", GONE)
    log_trouble(log, DecodeError("damaged"), "queue %s: %s", "q", "damaged")

    assert told() == ["queue q: damaged"]


class AheadClock(SystemClock):
    """The machine's clock, which a test may put ahead."""

    ahead_s = 0.0

    def now(self):
        return super().now() + self.ahead_s


class Failing:
    """A storage that can be taken out of reach; counts what it is asked meanwhile, by queue or pipe."""

    def __init__(self, storage):
        self._storage = storage
        self.is_gone = False
        self.changed = threading.Condition()
        self.calls = 0

    def __getattr__(self, name):
        method = getattr(self._storage, name)

        def call(*values, **named):
            with self.changed:
                self.calls += 1
                self.changed.notify_all()
            if self.is_gone:
                raise GONE
            return method(*values, **named)

        return call

    def wait_calls(self, count):
        """Wait for so many calls more."""
        with self.changed:
            until = self.calls + count
            assert self.changed.wait_for(lambda: self.calls >= until, timeout=120)


@pytest.mark.slow
def test_an_outage_under_many_queues_is_three_lines(caplog):
    caplog.set_level(logging.WARNING)
    clock = AheadClock()
    storage = Failing(SqliteStorage(None, is_synced=False, clock=clock))
    coordinator = LocalCoordinator(None, clock)

    def lines():
        return [record.getMessage() for record in caplog.records]

    with ExitStack() as closing:
        store = Store("memory:", Adapters(storage, coordinator, coordinator.close), clock=clock)
        closing.callback(store.close)
        queues = [store.queue(f"q{number}") for number in range(QUEUES)]
        poppers = [closing.enter_context(queue.popper()) for queue in queues]
        assert len(poppers) == QUEUES
        began_at = clock.now()

        storage.is_gone = True
        soon = [queue.push_soon(b"x", timeout=30) for queue in queues]
        storage.wait_calls(3 * QUEUES)
        clock.ahead_s += 61
        storage.wait_calls(QUEUES)
        storage.is_gone = False
        storage.wait_calls(QUEUES)
        clock.ahead_s += 2 * QUIET_S
        storage.wait_calls(QUEUES)
        lasted_s = clock.now() - began_at
        assert all(future.exception(60) is None or future.exception() for future in soon)

        assert "the database is out of reach: no node answers" in lines()[0]
        assert any("the database is back after" in line for line in lines())
        # Where the machine is slow the outage lasts longer, and that is a line a minute.
        assert 3 <= len(lines()) <= 3 + lasted_s // 60, lines()


class Suspended(LocalCoordinator):
    """A coordinator whose service can be taken out of reach; tells of each look at that."""

    is_gone = False

    def __init__(self, clock):
        super().__init__(None, clock)
        self.looks = SimpleQueue()

    def may_take(self):
        self.looks.put(self.is_gone)
        return not self.is_gone and super().may_take()


def test_an_outage_of_the_coordination_service_is_told_while_nobody_pops(told):
    clock = AheadClock()
    coordinator = Suspended(clock)
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    store = Store("memory:", Adapters(storage, coordinator, coordinator.close), clock=clock)
    with store, store.queue("q").popper() as popper:
        popper.pop(timeout=0)
        clock.ahead_s += 2 * IDLE_S
        for is_gone in (True, False):
            coordinator.is_gone = is_gone
            while coordinator.looks.get() is not is_gone:
                pass  # a look from before
        coordinator.looks.get()  # the one before it was told by now
        clock.ahead_s += QUIET_S
        for _ in range(2):
            coordinator.looks.get()

    assert len(told()) == 2, told()
    assert "the coordination service is out of reach" in told()[0]
    assert "the coordination service is back after" in told()[1]


@pytest.fixture
def library(clock):
    """Return a logger of a library that is held to a line a minute."""
    logger = logging.getLogger("cassq.kazoo.test")
    held = OncePerMinute(clock.now)
    logger.addFilter(held)
    yield logger
    logger.removeFilter(held)
    logger.setLevel(logging.NOTSET)


def test_a_library_repeats_itself_once_a_minute_and_says_how_often_it_would_have(library, clock, told):
    for second in range(90):
        library.warning("host %s is down", f"h{second % 3}")
        if second == 40:
            library.error("host %s speaks another protocol", "h1")
        clock.seconds += 1

    assert told() == [
        "host h0 is down",
        "host h1 speaks another protocol",
        "host h0 is down (59 more like this were left out)",
    ]


def test_a_library_that_is_set_to_debug_says_everything(library, told):
    library.setLevel(logging.DEBUG)
    for _ in range(3):
        library.warning("host is down")

    assert told() == ["host is down"] * 3


def test_a_logger_is_held_once_however_often_a_store_is_opened():
    logging.getLogger("cassq.kazoo.child")
    for _ in range(3):
        spare("cassq.kazoo")

    for name in ("cassq.kazoo", "cassq.kazoo.child"):
        held = [each for each in logging.getLogger(name).filters if isinstance(each, OncePerMinute)]
        assert len(held) == 1
        for each in held:
            logging.getLogger(name).removeFilter(each)
