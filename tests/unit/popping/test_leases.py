"""Leases that a token names, in the embedded store: what a client is told at home and away."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.patience import until

import cassq
from cassq.errors import ClosedError, DeliveryExpiredError, InvalidOptionError, OutcomeUnknownError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.lease import Extension, Lease, Rollback, Settled
from cassq.model.pipe import RunState
from cassq.popping.leases import Leases

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
    return Leases(queue._context, lambda: None)


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


class TestACommit:
    def test_ends_a_lease_at_home_and_away(self, queue, lessor, away):
        pushed(queue, 4)
        home, other = lease_one(lessor, 2), lease_one(lessor, 2)

        assert queue.leases.commit([home.lease]) == [Settled.COMMITTED]
        assert away.commit([Lease.parse(other.lease.to_text())]) == [Settled.COMMITTED]

        assert queue.stats().committed == 4

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

    def test_of_many_stretches_takes_as_many_transactions(self, queue, lessor, away):
        pushed(queue, 200)
        leased = lease_one(lessor, 200)
        every_other = {each.seq: Rollback(timedelta(0)) for each in leased.messages[1::2]}

        assert away.settle(leased.lease, rolled_back=every_other) is Settled.COMMITTED

        again = [each.body for leased in _all(lessor, 100) for each in leased.messages]
        assert sorted(again, key=int) == [b"%d" % number for number in range(1, 200, 2)]

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

        assert told is Settled.ENDED
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

    def test_what_is_no_lease_is_refused(self, away):
        with pytest.raises(InvalidOptionError, match=r"Lease\.parse"):
            away.commit(["text"])


class TestAClosedQueue:
    def test_refuses(self, queue, lessor):
        pushed(queue, 1)
        lease = lease_one(lessor, 1).lease
        queue.close()

        with pytest.raises(ClosedError):
            queue.leases.commit([lease])


def _all(lessor, count):
    found = []
    while sum(len(each.messages) for each in found) < count:
        found += lessor.lease(count, WAIT_S)
    return found
