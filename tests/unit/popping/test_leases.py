"""Leases that a token names, in the embedded store: what a client is told at home and away."""

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from support.patience import until

import cassq
from cassq.errors import (
    AccessDeniedError,
    ClosedError,
    DeliveryExpiredError,
    InvalidOptionError,
    OutcomeUnknownError,
    QueueNotFoundError,
    StorageUnavailableError,
)
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.lease import Extension, Lease, Rollback, Settled
from cassq.model.pipe import End, Mark, RunState
from cassq.model.transaction import RunChange, Transaction
from cassq.popping.leases import Leases
from cassq.storage.sqlite.storage import SqliteStorage

WAIT_S = 60.0


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


@pytest.fixture
def queue(store):
    return store.queue("orders", lease=timedelta(minutes=5), max_attempts=3)


@pytest.fixture
def lessor(queue):
    with queue.lessor() as opened:
        yield opened


@pytest.fixture
def away(queue):
    """The leases as another process has them, which knows none."""
    return Leases(queue._context, lambda: None, lambda: None)


def pushed(queue, count):
    queue.push_many([b"%d" % number for number in range(count)])


def lease_one(lessor, count):
    (leased,) = lessor.lease(count, WAIT_S)
    return leased


def bodies(leased):
    return [each.body for each in leased.messages]


def rows(queue, leased):
    return queue._context.storage.load_pipe(leased.lease.pipe).runs


def letters_of(queue):
    """Return the dead letters once whoever takes from the pipe next, or reaps, has written them."""
    until(lambda: queue.reap() and list(queue.dead.peek(10)))
    return queue.dead.peek(10)


def clock_moves(storage, pipe):
    """Wait until the database's clock shows another millisecond, as between two extensions it does."""
    before_ms = storage.load_pipe(pipe).now_ms
    until(lambda: storage.load_pipe(pipe).now_ms > before_ms)


def with_a_gap(queue, lessor):
    """Return a lease of three numbers, of which the second had ended before it was leased."""
    pushed(queue, 3)
    storage = queue._context.storage
    pipe = until(lambda: storage.list_pipes("orders").entries)[0].pipe
    storage.mark(pipe, [Mark(2, 2, End.PURGED)])
    leased = lease_one(lessor, 3)
    assert [each.seq for each in leased.messages] == [1, 3]
    return leased


def file_of(storage):
    """Return the file behind what a queue calls."""
    while not isinstance(storage, SqliteStorage):
        storage = vars(storage)["_storage"]
    return storage._file


@contextmanager
def the_clock_standing(storage, now_ms):
    """Have the database's clock show one millisecond."""
    file = file_of(storage)
    now = file.now_ms
    file.now_ms = lambda: now_ms
    try:
        yield
    finally:
        file.now_ms = now


def never_arrives(storage, name, error):
    """Have the next call of a method fail without being carried out."""
    method = getattr(storage, name)

    def call(*_):
        setattr(storage, name, method)
        raise error

    setattr(storage, name, call)


@contextmanager
def held(storage, name):
    """Have calls of a method wait until the event is set."""
    method, goes_on = getattr(storage, name), threading.Event()
    setattr(storage, name, lambda *values: (goes_on.wait(WAIT_S), method(*values))[1])
    try:
        yield goes_on
    finally:
        goes_on.set()
        setattr(storage, name, method)


def fails_once(storage, name, error):
    """Have the next call of a method be carried out and fail, as if its answer were lost."""
    method = getattr(storage, name)

    def call(*values, **named):
        setattr(storage, name, method)
        method(*values, **named)
        raise error

    setattr(storage, name, call)


class TestALease:
    def test_has_as_many_messages_as_were_asked_for(self, queue, lessor):
        pushed(queue, 7)

        first, second = lease_one(lessor, 5), lease_one(lessor, 2)

        assert bodies(first) == [b"0", b"1", b"2", b"3", b"4"]
        assert bodies(second) == [b"5", b"6"]

    def test_of_more_numbers_than_a_token_names_is_two(self, queue, lessor):
        pushed(queue, 12_000)
        storage = queue._context.storage
        pipe = until(lambda: storage.list_pipes("orders").entries)[0].pipe
        storage.mark(pipe, [Mark(2, 3000, End.PURGED)])

        leased = lessor.lease(10_000, WAIT_S)

        for each in leased:
            assert Lease.parse(each.lease.to_text()) == each.lease

    def test_is_one_row_for_each_client_that_waits(self, queue, lessor):
        futures = [lessor.lease_soon(count) for count in (3, 1, 2)]
        pushed(queue, 6)

        leased = [each for future in futures for each in future.result(WAIT_S)]

        assert sorted(len(each.messages) for each in leased) == [1, 2, 3]
        assert {(row.first, row.last) for row in rows(queue, leased[0])} == {
            (each.lease.first, each.lease.last) for each in leased
        }
        assert {row.holder for row in rows(queue, leased[0])} == {"lease orders"}

    def test_that_was_not_heard_of_is_given_back_and_counts_as_no_attempt(self, queue, lessor):
        pushed(queue, 2)
        lease_one(lessor, 2).give_back()

        again = lease_one(lessor, 2)

        assert [each.attempt for each in again.messages] == [1, 1]

    def test_future_that_is_cancelled_is_given_nothing(self, queue, lessor):
        future = lessor.lease_soon(1)

        assert future.cancel()
        pushed(queue, 1)

        assert bodies(lease_one(lessor, 1)) == [b"0"]

    def test_larger_than_what_the_next_one_asks_for_goes_back_uncounted(self, queue, lessor):
        pushed(queue, 4)
        future = lessor.lease_soon(4)
        future.result(WAIT_S)
        future.give_back()

        assert [bodies(lease_one(lessor, 1)) for _ in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]

    def test_is_not_to_be_had_where_messages_have_keys(self, queue):
        queue.push(b"keyed", key="a")

        with pytest.raises(InvalidOptionError, match="keys, which no token can name"):
            queue.lessor()

    def test_of_a_future_that_was_looked_at_is_not_the_next_client_s(self, queue, lessor, away):
        pushed(queue, 1)
        future = lessor.lease_soon(1)
        (seen,) = future.result(WAIT_S)
        future.give_back()

        again = lease_one(lessor, 1)

        assert again.lease.lease_id != seen.lease.lease_id
        assert queue.leases.commit([seen.lease]) == away.commit([seen.lease]) == [Settled.EXPIRED]
        assert queue.leases.commit([again.lease]) == [Settled.COMMITTED]

    def test_of_a_future_that_is_given_back_while_it_ends_is_one_client_s(self, queue, lessor):
        """Given back when its messages are on their way: it tells nobody of a lease that the next one has."""
        reached, goes_on, seen = threading.Event(), threading.Event(), []
        lessor._thread.submit(lambda: (reached.set(), goes_on.wait(WAIT_S)))
        assert reached.wait(WAIT_S)
        future = lessor.lease_soon(1)
        future.add_done_callback(lambda ended: seen.extend([] if ended.cancelled() else ended.result()))
        pushed(queue, 1)
        until(lambda: not lessor._popper._intake.buffer._line)

        future.give_back()
        following = lessor.lease_soon(1)
        goes_on.set()
        (leased,) = following.result(WAIT_S)

        assert [each.lease for each in seen] == []
        assert future.cancelled()
        assert [each.attempt for each in leased.messages] == [1]

    def test_of_a_future_that_is_given_back_once_it_is_lent_goes_back_under_another_id(self, queue, lessor):
        pushed(queue, 1)
        future, seen = lessor.lease_soon(1), []
        lend = lessor.lend

        def give_back_then(deliveries):
            leased = lend(deliveries)
            future.give_back()
            return leased

        future.add_done_callback(lambda ended: seen.extend(ended.result()))
        lessor.lend = give_back_then
        (first,) = future.result(WAIT_S) if not future.done() else seen
        lessor.lend = lend
        again = lease_one(lessor, 1)

        assert again.lease.lease_id != first.lease.lease_id

    def test_that_is_given_back_twice_was_given_back(self, queue, lessor):
        pushed(queue, 1)
        leased = lease_one(lessor, 1)
        leased.give_back()

        with pytest.raises(ClosedError):
            leased.give_back()

    def test_that_is_given_back_leaves_nothing_under_its_id(self, queue, lessor, away):
        """One that has a gap, while another process extends it by what it read before, in one millisecond."""
        leased = with_a_gap(queue, lessor)
        storage, (row,) = queue._context.storage, rows(queue, leased)
        extension = Transaction(runs=(RunChange(row, row.lease_id, row.leased_at_ms, is_leased_now=True),))
        with the_clock_standing(storage, row.leased_at_ms):
            leased.give_back()
            assert not storage.transact(leased.lease.pipe, extension).is_applied

        assert leased.lease.lease_id not in {each.lease_id for each in rows(queue, leased)}
        assert [each.attempt for leased in _all(lessor, 2) for each in leased.messages] == [1, 1]


class TestPipesOfSeveralRanks:
    @pytest.fixture
    def ranked(self, queue):
        for priority in (1, 0):
            for _ in range(5):
                queue.push(b"ranked", priority=priority)
        return queue

    def test_a_client_gets_leases_of_several_together(self, ranked, lessor):
        assert sorted(len(each.messages) for each in lessor.lease(10, WAIT_S)) == [5, 5]

    def test_a_popper_gets_what_one_look_found_in_the_first(self, ranked):
        with ranked.popper() as popper:
            assert len(popper.pop_many(10, WAIT_S)) == 5


class TestACommit:
    def test_ends_a_lease_at_home_and_away(self, queue, lessor, away):
        pushed(queue, 4)
        home, other = lease_one(lessor, 2), lease_one(lessor, 2)

        assert queue.leases.commit([home.lease]) == [Settled.COMMITTED]
        assert away.commit([Lease.parse(other.lease.to_text())]) == [Settled.COMMITTED]

        assert queue.stats().committed == 4

    def test_tells_the_journal_when_it_was(self, store):
        queue = store.queue("told", journal="outline")
        with queue.lessor() as lessor:
            pushed(queue, 1)
            lease = lease_one(lessor, 1).lease
            queue.leases.commit([lease])

            (mark,) = queue._context.storage.load_pipe(lease.pipe).marks
            assert mark.ended_at_ms

    def test_of_leases_far_apart_reads_what_is_between_them_of_neighbours_alone(self, queue, lessor, away):
        pushed(queue, 200)
        first, second, _, last = (lease_one(lessor, count).lease for count in (1, 1, 150, 1))
        storage, asked = queue._context.storage, []
        read = storage.read_stretch
        storage.read_stretch = lambda *values: (asked.append(values[1:]), read(*values))[1]
        try:
            away.commit([last, second, first])
        finally:
            storage.read_stretch = read

        assert asked == [(first.first, second.last), (last.first, last.last)]

    def test_is_observed_by_how_many_messages_it_ended(self, queue, lessor, away):
        leased = with_a_gap(queue, lessor)
        noted = []

        class Events:
            now = staticmethod(lambda: 0.0)
            note_committed = staticmethod(lambda _, count: noted.append(count))

        for leases in (queue.leases, away):
            leases._context = replace(leases._context, events=Events())
            leases.commit([leased.lease])

        assert noted == [2, 0]

    def test_that_is_repeated_anywhere_says_that_it_has_ended(self, queue, lessor, away):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        away.commit([lease])

        assert away.commit([lease]) == [Settled.ENDED]

    def test_of_a_lease_that_others_have_by_now_says_so(self, queue, lessor, away):
        pushed(queue, 1)
        leased = lease_one(lessor, 1)
        leased.give_back()
        lease_one(lessor, 1)

        assert away.commit([leased.lease]) == [Settled.EXPIRED]

    def test_of_many_tells_of_each(self, queue, lessor, away):
        pushed(queue, 3)
        leases = [lease_one(lessor, 1).lease for _ in range(3)]
        away.commit(leases[:1])
        unknown = replace(leases[2], lease_id=new_token())

        told = away.commit([*leases[:2], unknown, leases[1]])

        assert told == [Settled.ENDED, Settled.COMMITTED, Settled.EXPIRED, Settled.COMMITTED]

    def test_begins_a_lease_anew_of_which_little_is_left(self, queue, lessor, away):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        storage, sent = queue._context.storage, []
        read, transact = storage.read_stretch, storage.transact

        def read_late(*values):
            stretch = read(*values)
            return replace(stretch, now_ms=stretch.runs[0].leased_at_ms + stretch.runs[0].lease_ms - 900)

        storage.read_stretch = read_late
        storage.transact = lambda *values: (sent.append(values), transact(*values))[1]
        try:
            assert away.commit([lease]) == [Settled.COMMITTED]
        finally:
            storage.read_stretch, storage.transact = read, transact

        assert len(sent) == 1

    def test_whose_answer_is_lost_is_sent_again(self, queue, lessor, away):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        fails_once(queue._context.storage, "mark", OutcomeUnknownError("no answer"))

        assert away.commit([lease]) == [Settled.COMMITTED]

    def test_that_nobody_waits_for_is_told_by_its_future(self, queue, lessor, away):
        pushed(queue, 2)
        leases = [lease_one(lessor, 1).lease for _ in range(2)]

        futures = [away.commit_soon(lease) for lease in leases]

        assert [future.result(WAIT_S) for future in futures] == [Settled.COMMITTED] * 2


class TestManyLeasesAtOnce:
    def test_each_has_a_mark_of_its_own(self, queue, lessor):
        pushed(queue, 3)
        futures = [lessor.lease_soon(1) for _ in range(3)]
        leases = [each.lease for future in futures for each in future.result(WAIT_S)]
        marked, storage = [], queue._context.storage
        mark = storage.mark
        storage.mark = lambda pipe, marks: (marked.append(marks), mark(pipe, marks))[1]
        try:
            queue.leases.commit(leases)
        finally:
            storage.mark = mark

        (together,) = marked
        assert {(each.first, each.last) for each in together} == {
            (lease.first, lease.last) for lease in leases
        }


class TestASettlement:
    def test_commits_rolls_back_and_rejects_in_one(self, queue, lessor, away):
        pushed(queue, 4)
        leased = lease_one(lessor, 4)
        _, second, third, fourth = (each.seq for each in leased.messages)

        told = away.settle(
            leased.lease,
            rolled_back={second: Rollback(timedelta(0), "later"), third: Rollback(timedelta(hours=1))},
            rejected={fourth: "never"},
        )

        assert told is Settled.COMMITTED
        again = lease_one(lessor, 4)
        assert [(each.body, each.attempt) for each in again.messages] == [(b"1", 2)]
        assert [(each.body, each.reason, each.attempts) for each in letters_of(queue)] == [(b"3", "never", 1)]
        stats = queue.stats()
        assert (stats.committed, stats.delayed, stats.dead) == (1, 1, 1)

    def test_leaves_nothing_under_the_lease(self, queue, lessor, away):
        pushed(queue, 3)
        leased = lease_one(lessor, 3)
        second = leased.messages[1].seq

        away.settle(leased.lease, rolled_back={second: Rollback(timedelta(hours=1))})

        left = rows(queue, leased)
        assert [(row.first, row.last, row.state) for row in left] == [
            (seq, seq, RunState.RETURNED) for seq in range(leased.lease.first, leased.lease.last + 1)
        ]
        assert leased.lease.lease_id not in {row.lease_id for row in left}

    def test_after_the_last_attempt_makes_dead_letters(self, queue, lessor, away):
        pushed(queue, 1)
        for _ in range(3):
            leased = lease_one(lessor, 1)
            away.settle(leased.lease, rolled_back={leased.lease.first: Rollback(timedelta(0), "broken")})

        assert lessor.lease(1, 0) == []
        assert [(each.reason, each.attempts) for each in letters_of(queue)] == [("broken", 3)]

    def test_of_many_stretches_takes_one_transaction(self, queue, lessor, away):
        pushed(queue, 200)
        leased = lease_one(lessor, 200)
        every_other = {each.seq: Rollback(timedelta(0)) for each in leased.messages[1::2]}
        storage, sent = queue._context.storage, []
        transact = storage.transact
        storage.transact = lambda *values: (sent.append(values[1].runs), transact(*values))[1]
        try:
            assert away.settle(leased.lease, rolled_back=every_other) is Settled.COMMITTED
        finally:
            storage.transact = transact

        assert [len(changes) for changes in sent if changes[0].if_lease_id == leased.lease.lease_id] == [1]
        again = [each.body for leased in _all(lessor, 100) for each in leased.messages]
        assert sorted(again, key=int) == [b"%d" % number for number in range(1, 200, 2)]

    @pytest.mark.parametrize("fails", [fails_once, never_arrives])
    @pytest.mark.parametrize("error", [OutcomeUnknownError, StorageUnavailableError])
    def test_whose_answer_is_lost_rejects_all_of_many_stretches(self, queue, lessor, away, fails, error):
        pushed(queue, 100)
        leased = lease_one(lessor, 100)
        every_other = {each.seq: "bad" for each in leased.messages[1::2]}
        fails(queue._context.storage, "transact", error("no answer"))

        if error is StorageUnavailableError:
            with pytest.raises(error):
                away.settle(leased.lease, rejected=every_other)
        assert away.settle(leased.lease, rejected=every_other) in {Settled.COMMITTED, Settled.ENDED}

        assert all(row.is_burial for row in rows(queue, leased) if row.state is RunState.RETURNED)
        assert leased.lease.lease_id not in {row.lease_id for row in rows(queue, leased)}
        assert until(lambda: queue.reap() and queue.stats().dead == 50)
        assert queue.stats().committed == 50

    def test_that_goes_back_in_too_many_ways_writes_nothing(self, queue, lessor, away):
        pushed(queue, 40)
        leased = lease_one(lessor, 40)
        ways = {each.seq: Rollback(timedelta(0), f"error {each.seq}") for each in leased.messages}

        with pytest.raises(InvalidOptionError, match="in 40 stretches"):
            away.settle(leased.lease, rolled_back=ways)

        assert away.commit([leased.lease]) == [Settled.COMMITTED]

    def test_whose_rejection_never_arrived_before_others_took_it_raises(self, queue, lessor, away):
        pushed(queue, 1)
        leased = lease_one(lessor, 1)
        storage = queue._context.storage

        def lose(*_):
            storage.transact = transact
            leased.give_back()
            lease_one(lessor, 1)
            raise OutcomeUnknownError("no answer")

        transact, storage.transact = storage.transact, lose

        with pytest.raises(DeliveryExpiredError):
            away.settle(leased.lease, rejected={leased.lease.first: "poison"})

    def test_of_what_was_committed_before_ended_before(self, queue, lessor, away):
        pushed(queue, 2)
        lease = lease_one(lessor, 2).lease
        away.commit([lease])

        assert away.settle(lease, rolled_back={lease.first: Rollback()}) is Settled.ENDED

    def test_away_wakes_somebody_also_where_a_part_was_committed(self, queue, lessor, away):
        pushed(queue, 2)
        lease, coordinator, asked = lease_one(lessor, 2).lease, queue._context.coordinator, []
        hungry = coordinator.hungry

        def ask(*values, **named):
            asked.extend(values if threading.current_thread() is threading.main_thread() else ())
            return hungry(*values, **named)

        coordinator.hungry = ask
        try:
            away.settle(lease, rolled_back={lease.first: Rollback(timedelta(0))})
        finally:
            coordinator.hungry = hungry

        assert asked == ["orders"]

    def test_that_is_repeated_has_ended(self, queue, lessor, away):
        pushed(queue, 2)
        leased = lease_one(lessor, 2)
        back = {leased.lease.last: Rollback(timedelta(hours=1))}
        away.settle(leased.lease, rolled_back=back)

        assert queue.leases.settle(leased.lease, rolled_back=back) is Settled.ENDED

    def test_whose_answer_is_lost_is_found_to_have_happened(self, queue, lessor, away):
        pushed(queue, 2)
        leased = lease_one(lessor, 2)
        fails_once(queue._context.storage, "transact", OutcomeUnknownError("no answer"))

        told = away.settle(leased.lease, rolled_back={leased.lease.last: Rollback(timedelta(0))})

        assert told is Settled.COMMITTED
        assert bodies(lease_one(lessor, 2)) == [b"1"]

    def test_of_a_lease_that_nobody_knows_raises(self, queue, lessor, away):
        pushed(queue, 1)
        lease = replace(lease_one(lessor, 1).lease, lease_id=new_token())

        with pytest.raises(DeliveryExpiredError, match="is not known"):
            away.settle(lease, rolled_back={lease.first: Rollback()})

    @pytest.mark.parametrize(
        ("rolled_back", "rejected", "words"),
        [
            ({99: Rollback()}, {}, "message 99 is not of lease"),
            ({}, {0: "x"}, "message 0 is not of lease"),
            ({1: Rollback()}, {1: "x"}, "name it once"),
            ({1: timedelta(0)}, {}, "not by a Rollback"),
            ({1: Rollback(timedelta(days=8))}, {}, "from 0 to 604800s"),
            ({}, {1: b"x"}, "must be a text"),
            ([1], {}, "must be a dict"),
            ({}, [1], "must be a dict"),
            ({True: Rollback()}, {}, "message True is not of lease"),
        ],
    )
    def test_that_breaks_a_rule_writes_nothing(self, queue, lessor, away, rolled_back, rejected, words):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease

        with pytest.raises(InvalidOptionError, match=words):
            away.settle(lease, rolled_back=rolled_back, rejected=rejected)

        assert away.commit([lease]) == [Settled.COMMITTED]


class TestAnExtension:
    def test_begins_the_lease_anew_and_the_process_is_at_home_in_it(self, queue, lessor, away):
        pushed(queue, 1)
        leased = lease_one(lessor, 1)
        (before,) = rows(queue, leased)

        assert away.extend([leased.lease]) == [Extension.EXTENDED]

        (after,) = rows(queue, leased)
        assert after.leased_at_ms >= before.leased_at_ms
        assert replace(after, leased_at_ms=0) == replace(before, leased_at_ms=0)

    def test_tells_of_each(self, queue, lessor, away):
        pushed(queue, 2)
        ended, lasting = lease_one(lessor, 1).lease, lease_one(lessor, 1).lease
        away.commit([ended])
        unknown = replace(lasting, lease_id=new_token())

        told = away.extend([ended, lasting, unknown])

        assert told == [Extension.ENDED, Extension.EXTENDED, Extension.EXPIRED]

    def test_whose_answer_is_lost_is_sent_again_on_what_stands_then(self, queue, lessor, away):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        fails_once(queue._context.storage, "transact", OutcomeUnknownError("no answer"))

        assert away.extend([lease]) == [Extension.EXTENDED]

    def test_is_conditional_on_the_beginning_that_was_read(self, queue, lessor, away):
        """Of two that were sent on one reading the one that lands late is refused, and sets nothing back."""
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        storage, held = queue._context.storage, []
        transact = storage.transact

        def lose(pipe, transaction):
            storage.transact = transact
            held.append((pipe, transaction))
            clock_moves(storage, pipe)
            raise OutcomeUnknownError("no answer")

        storage.transact = lose
        assert away.extend([lease]) == [Extension.EXTENDED]

        assert not storage.transact(*held[0]).is_applied


class TestWhoInventsATokenOrLearnsALease:
    def test_of_another_queue_or_an_earlier_one_is_refused(self, store, queue, lessor):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease

        with pytest.raises(InvalidOptionError, match="is of another queue than 'others'"):
            store.queue("others").leases.commit([lease])

    def test_what_a_popper_has_no_token_names(self, queue, away):
        pushed(queue, 1)
        with queue.popper() as popper:
            delivery = popper.pop(WAIT_S)
            row = delivery.run.taken
            lease = Lease(away.incarnation, delivery.run.pipe, row.first, row.last, row.lease_id, row.attempt)

            assert away.commit([lease]) == [Settled.EXPIRED]
            with pytest.raises(DeliveryExpiredError):
                away.settle(lease, rolled_back={row.first: Rollback()})

            delivery.commit()

    def test_names_a_pipe_that_is_gone_and_is_told_that_all_in_it_has_ended(self, queue, away):
        lease = Lease(away.incarnation, new_pipe_id(), 1, 1, new_token(), 1)

        assert away.commit([lease]) == [Settled.ENDED]

    def test_one_lease_is_not_a_list_of_them(self, queue, lessor, away):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease

        for call in (away.commit, away.extend):
            for one in (lease, lease.to_text()):
                with pytest.raises(InvalidOptionError, match=r"call it with \[lease\]"):
                    call(one)

    def test_what_is_no_lease_is_refused(self, away):
        with pytest.raises(InvalidOptionError, match=r"Lease\.parse"):
            away.commit(["text"])


class TestCommitsThatNobodyWaitsFor:
    def test_go_on_after_one_was_interrupted(self, queue, lessor, away, monkeypatch):
        pushed(queue, 2)
        first, second = (lease_one(lessor, 1).lease for _ in range(2))

        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(away._futures._thread, "submit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                away.commit_soon(first)

        assert away.commit_soon(second).result(WAIT_S) is Settled.COMMITTED
        assert away.commit([first]) == [Settled.ENDED]

    def test_are_told_whatever_the_callback_of_another_one_does(self, queue, lessor, away):
        pushed(queue, 3)
        leases = [lease_one(lessor, 1).lease for _ in range(3)]
        with held(queue._context.storage, "mark") as goes_on:
            futures = [away.commit_soon(lease) for lease in leases]
            futures[0].add_done_callback(lambda _: sys.exit(1))
            futures[1].add_done_callback(lambda _: sys.exit(1))
            goes_on.set()

        assert [future.result(WAIT_S) for future in futures] == [Settled.COMMITTED] * 3

    def test_are_written_while_a_callback_runs(self, queue, lessor, away):
        pushed(queue, 2)
        first, second = (lease_one(lessor, 1).lease for _ in range(2))
        is_over = threading.Event()
        with held(queue._context.storage, "mark") as goes_on:
            future = away.commit_soon(first)
            future.add_done_callback(lambda _: is_over.wait(WAIT_S))
            goes_on.set()
        future.result(WAIT_S)

        away.commit_soon(second)

        until(lambda: queue.stats().committed == 2)
        is_over.set()

    def test_do_not_wait_for_a_look_at_the_queue_and_hear_that_it_was_deleted(self, queue, lessor):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        looks, may_look = [], threading.Event()

        def look():
            looks.append(threading.current_thread())
            may_look.wait(WAIT_S)
            raise QueueNotFoundError("it was deleted")

        leases = Leases(queue._context, look, lambda: None)
        future = leases.commit_soon(lease)
        assert not future.done()
        may_look.set()

        assert isinstance(future.exception(WAIT_S), QueueNotFoundError)
        assert threading.current_thread() not in looks
        assert queue.stats().committed == 0

    def test_are_told_what_each_came_to_where_one_is_refused(self, queue, lessor, away):
        pushed(queue, 2)
        known, unknown = (lease_one(lessor, 1).lease for _ in range(2))
        assert away.extend([known]) == [Extension.EXTENDED]
        storage = queue._context.storage

        def refuse(*_):
            storage.read_stretch = read
            raise AccessDeniedError("the role may not read")

        read, storage.read_stretch = storage.read_stretch, refuse
        with held(away._futures, "_commit_waiting") as goes_on:
            futures = [away.commit_soon(lease) for lease in (known, unknown)]
            goes_on.set()

        assert futures[0].result(WAIT_S) is Settled.COMMITTED
        assert isinstance(futures[1].exception(WAIT_S), AccessDeniedError)

    def test_are_written_before_the_queue_is_closed(self, queue, lessor):
        pushed(queue, 3)
        leases = [lease_one(lessor, 1).lease for _ in range(3)]
        with held(queue._context.storage, "mark") as goes_on:
            futures = [queue.leases.commit_soon(lease) for lease in leases]
            closing = threading.Thread(target=queue.close)
            closing.start()
            goes_on.set()
        closing.join(WAIT_S)

        assert [future.result(WAIT_S) for future in futures] == [Settled.COMMITTED] * 3

    def test_may_close_the_queue_in_a_callback(self, queue, lessor):
        pushed(queue, 1)
        lease, told = lease_one(lessor, 1).lease, []

        def close(_):
            queue.close()
            told.append("closed")

        with held(queue._context.storage, "mark") as goes_on:
            future = queue.leases.commit_soon(lease)
            future.add_done_callback(close)
            goes_on.set()

        assert future.result(WAIT_S) is Settled.COMMITTED
        until(lambda: told == ["closed"] and queue.has_closed)

    def test_do_not_hold_up_a_close_that_interrupted_another_commit(self, tmp_path):
        """A signal handler closes the queue while its thread has the file that they wait for."""
        with cassq.connect(f"sqlite:///{tmp_path}/q.db") as store:
            queue = store.queue("orders", lease=timedelta(minutes=5))
            with queue.lessor() as lessor:
                pushed(queue, 2)
                first, second = (lease_one(lessor, 1).lease for _ in range(2))
                file, futures = file_of(queue._context.storage), []
                commit = file._commit

                def interrupted(*values):
                    if not futures and threading.current_thread() is threading.main_thread():
                        futures.append(queue.leases.commit_soon(second))
                        queue.close()
                    return commit(*values)

                file._commit = interrupted
                try:
                    assert queue.leases.commit([first]) == [Settled.COMMITTED]
                finally:
                    file._commit = commit
                assert futures[0].result(WAIT_S) is Settled.COMMITTED
            until(lambda: queue.has_closed)


class TestAClosedQueue:
    def test_refuses(self, queue, lessor):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        queue.close()

        with pytest.raises(ClosedError):
            queue.leases.commit([lease])
        with pytest.raises(ClosedError):
            queue.leases.commit_soon(lease)


def _all(lessor, count):
    found = []
    while sum(len(each.messages) for each in found) < count:
        found += lessor.lease(count, WAIT_S)
    return found
