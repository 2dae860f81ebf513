"""What the adapter costs the server, as the server itself traces it."""

import os
import re
import secrets
from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.lease import Extension, Lease, Rollback, Settled, holder_of
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry, Run, RunState
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Advance, Cancel, RunChange, Seal, Transaction
from cassq.pipes.lent_rows import LentRow
from cassq.pipes.pipe_list import PipeList
from cassq.popping.leases import Leases
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra import (
    Address,
    CassandraSchema,
    CassandraSession,
    CassandraStorage,
    open_session,
)
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.statement import Call
from cassq.storage.forms import BatchQuery

pytestmark = pytest.mark.service

#: The pipes of a test are made within this, however slow the machine is.
PUSHED_WITHIN_S = 60

_ROWS_READ = re.compile(r"Read (\d+) live rows and (\d+) tombstone cells")


class TracedDriver:
    """The driver's session, with every request traced."""

    def __init__(self, driver):
        self._driver = driver
        self.requests = []

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def execute_async(self, query, execution_profile):
        future = self._driver.execute_async(query, trace=True, execution_profile=execution_profile)
        self.requests.append((Call(execution_profile), future))
        return future

    def calls(self):
        return [call for call, _ in self.requests]

    def events(self):
        return [
            event.description
            for _, future in self.requests
            for trace in future.get_all_query_traces(max_wait_per=20)
            for event in trace.events
        ]


@pytest.fixture(scope="module")
def plain_session():
    address = os.environ.get("CASSQ_TEST_CASSANDRA")
    if not address:
        pytest.fail("CASSQ_TEST_CASSANDRA is not set: run tools/test, or `tools/services env` first")
    host, _, port = address.split(",")[0].rpartition(":")
    session = open_session(Address([(host, int(port))]), f"cassq_test_{secrets.token_hex(6)}")
    CassandraSchema(session).apply()
    yield session
    session.define(f"DROP KEYSPACE {session.keyspace}")
    session.close()


@pytest.fixture
def driver(plain_session):
    return TracedDriver(plain_session._driver)


@pytest.fixture
def storage(driver, plain_session):
    return CassandraStorage(CassandraSession(driver, plain_session.keyspace, SickNodes(SystemClock()), 10.0))


def run(first, last, **changes):
    values = (first, RunState.LEASED, 1, new_token(), 0, 30_000, 0, "a popper")
    return replace(Run(first, last, *values), **changes)


def rows_and_tombstones(events):
    found = [match for event in events if (match := _ROWS_READ.search(event))]
    return sum(int(match[1]) for match in found), sum(int(match[2]) for match in found)


def lived_in(storage, queue):
    """Make a pipe with some life behind it: every kind of write that a live pipe sees."""
    pipe = new_pipe_id()
    head = Head(new_token())
    storage.create_pipe(queue, PipeEntry(pipe, "a pusher"), head)
    for first in range(1, 21):
        storage.append(pipe, Batch(first, (b"x",), None if first % 2 else ({"a": "b"},), 1))
    for last in (5, 10):
        taken = run(last - 4, last)
        wanted = replace(head, op=new_token(), cursor=last)
        assert storage.transact(
            pipe, Transaction(Advance(head.op, wanted), (RunChange(taken, is_leased_now=True),))
        ).is_applied
        head = wanted
        extended = RunChange(taken, taken.lease_id, is_leased_now=True)
        assert storage.transact(pipe, Transaction(runs=(extended,))).is_applied
    storage.mark(pipe, [Mark(1, 5, End.COMMITTED), Mark(6, 8, End.COMMITTED)])
    cancel = Transaction(Cancel(new_token(), 12), marks=(Mark(12, 12, End.PURGED),))
    assert storage.transact(pipe, cancel).is_applied
    return pipe


def test_no_read_of_a_live_pipe_crosses_a_tombstone(storage, driver):
    pipe = lived_in(storage, "live")
    driver.requests.clear()

    storage.load_pipe(pipe)
    storage.read_batches(pipe, BatchQuery(limit=100))
    storage.read_batches(pipe, BatchQuery(limit=100, is_newest_first=True, is_outline=True))
    storage.list_pipes("live")
    storage.transact(pipe, Transaction(Seal(20)))

    rows, tombstones = rows_and_tombstones(driver.events())
    assert rows >= 20 + 20 + 6 + 1
    assert tombstones == 0


def test_a_listing_from_a_later_id_does_not_cross_the_retired_pipes(storage, driver):
    pipes = sorted((lived_in(storage, "listed") for _ in range(4)), key=lambda pipe: pipe.time)
    for pipe in pipes[:3]:
        storage.delete_pipe("listed", pipe)

    def tombstones_of(since):
        driver.requests.clear()
        assert [entry.pipe for entry in storage.list_pipes("listed", since).entries] == [pipes[3]]
        return rows_and_tombstones(driver.events())[1]

    assert tombstones_of(None) >= 3  # so the traces do show them
    assert tombstones_of(pipes[3]) == 0


def test_a_look_crosses_the_retired_pipes_once_and_not_again_while_no_time_passes(storage, driver):
    clock = HandClock()
    settings = QueueSettings(clock_skew_max=timedelta(0))
    pipes = [lived_in(storage, "looked at") for _ in range(4)]
    for pipe in pipes[:3]:
        storage.delete_pipe("looked at", pipe)
    seen = PipeList(context_of(storage, settings, clock, queue="looked at"))

    def tombstones_of_a_look(after_s):
        clock.seconds += after_s
        driver.requests.clear()
        assert [entry.pipe for entry in seen.refresh(0).entries] == [pipes[3]]
        return rows_and_tombstones(driver.events())[1]

    assert tombstones_of_a_look(0) >= 3  # all of the list is read at first
    assert tombstones_of_a_look(0) == 0
    assert tombstones_of_a_look(PUSHED_WITHIN_S) >= 3
    assert tombstones_of_a_look(0) == 0


def test_a_take_is_one_lightweight_transaction(storage, driver):
    pipe = new_pipe_id()
    head = Head(new_token())
    old = run(1, 10)
    storage.create_pipe("taken", PipeEntry(pipe, "a pusher"), head)
    seen = replace(head, op=new_token(), cursor=10)
    storage.transact(pipe, Transaction(Advance(head.op, seen), (RunChange(old),)))
    driver.requests.clear()

    again = RunChange(replace(old, attempt=2, lease_id=new_token()), old.lease_id, 0, is_leased_now=True)
    take = Transaction(
        Advance(seen.op, replace(seen, op=new_token(), cursor=20)),
        (again, RunChange(run(11, 20), is_leased_now=True)),
        (Mark(21, 22, End.PURGED),),
    )
    assert storage.transact(pipe, take).is_applied

    assert driver.calls() == [Call.TRANSACTION]
    proposals = [event for event in driver.events() if event.startswith("Reading existing values for CAS")]
    assert len(proposals) == 1


def test_each_other_step_is_as_few_requests_as_the_protocol_says(storage, driver):
    pipe = lived_in(storage, "counted")

    def calls_of(step):
        driver.requests.clear()
        step()
        return driver.calls()

    many = [Mark(first, first, End.COMMITTED) for first in range(30, 230, 2)]
    assert calls_of(lambda: storage.append(pipe, Batch(21, (b"x",) * 500, None, 500))) == [Call.WRITE]
    assert calls_of(lambda: storage.load_pipe(pipe)) == [Call.LOCAL, Call.SERIAL_READ]
    assert calls_of(lambda: storage.mark(pipe, many)) == [Call.WRITE]
    assert calls_of(lambda: storage.read_batches(pipe, BatchQuery(limit=50))) == [Call.READ]
    assert calls_of(lambda: storage.delete_pipe("counted", pipe)) == [Call.WRITE] * 3
    assert calls_of(lambda: storage.glance_queue("counted")) == [Call.READ]
    assert calls_of(lambda: storage.read_queues("counted")) == [Call.SERIAL_READ]


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_what_an_owner_did_between_two_reads_of_a_large_pipe_is_seen_as_a_whole(storage, driver, reads):
    pipe = new_pipe_id()
    head = Head(new_token())
    storage.create_pipe("torn", PipeEntry(pipe, "a pusher"), head)
    before, began = run(1, 299), replace(head, op=new_token(), cursor=299)
    assert storage.transact(pipe, Transaction(Advance(head.op, began), (RunChange(before),))).is_applied
    storage.mark(pipe, [Mark(first, first, End.COMMITTED) for first in range(1, 300)])
    taken = run(300, 410)
    take = Transaction(Advance(began.op, replace(began, op=new_token(), cursor=410)), (RunChange(taken),))
    send = driver.execute_async
    driver.requests.clear()

    def take_after_so_many_reads(query, execution_profile):
        future = send(query, execution_profile)
        if driver.calls() == [Call.LOCAL, *[Call.SERIAL_READ] * reads]:
            future.result()
            assert storage.transact(pipe, take).is_applied
        return future

    driver.execute_async = take_after_so_many_reads

    state = storage.load_pipe(pipe)

    # Taken after the last read, it was not there yet.
    assert (state.head.cursor, state.runs) == ((299, (before,)) if reads == 3 else (410, (before, taken)))
    assert len(state.marks) == 299


class TestLeasesThatATokenNames:
    """A commit at home is one insert, away one slice and one insert; the others a slice and a transaction."""

    @pytest.fixture
    def leases(self, storage):
        settings = QueueSettings(lease=timedelta(minutes=5))
        return Leases(context_of(storage, settings, SystemClock(), queue="lent"), lambda: None, lambda: None)

    @pytest.fixture
    def lent(self, storage, leases):
        """Return what makes a pipe of many leases, and gives one of them with its row."""
        pipe, head = new_pipe_id(), Head(new_token())
        storage.create_pipe("lent", PipeEntry(pipe, "a pusher"), head)
        rows = [run(first, first + 2, holder=holder_of("lent")) for first in range(1, 301, 3)]
        for begin in range(0, len(rows), 20):
            own = rows[begin : begin + 20]
            wanted = replace(head, op=new_token(), cursor=own[-1].last)
            changes = tuple(RunChange(each, is_leased_now=True) for each in own)
            assert storage.transact(pipe, Transaction(Advance(head.op, wanted), changes)).is_applied
            head = wanted

        def lend(place):
            row = rows[place]
            return Lease(leases.incarnation, pipe, row.first, row.last, row.lease_id, row.attempt), row

        return lend

    def test_at_home(self, driver, leases, lent):
        lease, row = lent(50)
        leases.note(lease, LentRow(row, Ranges(((row.first, row.last),)), SystemClock().latest() + 100))
        driver.requests.clear()

        assert leases.commit([lease]) == [Settled.COMMITTED]

        assert driver.calls() == [Call.WRITE]

    def test_away(self, driver, leases, lent):
        lease, _ = lent(50)
        driver.requests.clear()

        assert leases.commit([lease]) == [Settled.COMMITTED]

        assert driver.calls() == [Call.READ, Call.WRITE]
        assert rows_and_tombstones(driver.events())[0] <= 2  # its own row, however many the pipe has

    def test_away_many_of_a_pipe_at_once(self, driver, leases, lent):
        wanted = [lent(place)[0] for place in range(40, 60)]
        driver.requests.clear()

        assert leases.commit(wanted) == [Settled.COMMITTED] * 20

        assert driver.calls() == [Call.READ, Call.WRITE]

    def test_extended(self, driver, leases, lent):
        lease, _ = lent(50)
        driver.requests.clear()

        assert leases.extend([lease]) == [Extension.EXTENDED]

        assert driver.calls() == [Call.READ, Call.TRANSACTION]

    def test_rolled_back(self, driver, leases, lent):
        lease, row = lent(50)
        driver.requests.clear()

        back = {seq: Rollback() for seq in range(row.first, row.last + 1)}
        assert leases.settle(lease, rolled_back=back) is Settled.COMMITTED

        assert driver.calls() == [Call.READ, Call.TRANSACTION]
