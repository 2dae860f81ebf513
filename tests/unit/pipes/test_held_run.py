"""What a commit is told to have come to, where its attempts end in different ways."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.errors import AccessDeniedError, DeliveryExpiredError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.pipes import held_run
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.commits import commit_run
from cassq.storage.sqlite.storage import SqliteStorage


def failing(error):
    """Make a call that fails."""

    def fail(*_, **__):
        raise error("planted")

    return fail


class Answers:
    """A storage whose marks end as they are told to, one after the other."""

    def __init__(self, storage, *errors):
        self._storage = storage
        self._errors = list(errors)

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def mark(self, pipe, marks):
        if self._errors:
            raise self._errors.pop(0)
        self._storage.mark(pipe, marks)


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q")


@pytest.fixture
def delivery(queue):
    queue.push(b"once")
    with queue.popper() as popper:
        yield popper.pop(timeout=60)


def test_a_commit_that_may_have_happened_is_not_told_as_refused(delivery):
    delivery.run._storage = Answers(
        delivery.run._storage, OutcomeUnknownError("no answer"), AccessDeniedError("no permission")
    )

    with pytest.raises(OutcomeUnknownError):
        delivery.commit()

    with pytest.raises(cassq.ClosedError):
        delivery.rollback()


def test_a_commit_that_was_refused_can_be_made_again(queue, delivery):
    delivery.run._storage = Answers(delivery.run._storage, AccessDeniedError("no permission"))

    with pytest.raises(AccessDeniedError):
        delivery.commit()
    delivery.commit()

    assert queue.stats().committed == 1


class Interrupted:
    """A storage whose next transaction is applied, and then a signal comes."""

    def __init__(self, storage):
        self._storage = storage
        self._is_next = True

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def transact(self, pipe, transaction):
        answer = self._storage.transact(pipe, transaction)
        if self._is_next:
            self._is_next = False
            raise KeyboardInterrupt
        return answer


@pytest.mark.parametrize("end", [lambda each: each.rollback(), lambda each: each.reject("bad")])
def test_nothing_more_is_done_under_a_lease_whose_rollback_was_interrupted(end):
    with cassq.connect("memory:") as store:
        queue = store.queue("q", lease=timedelta(hours=1))
        queue.push_many([b"%d" % number for number in range(9)])
        with queue.popper() as popper:
            found = []
            while len(found) < 9:
                found += popper.pop_many(9 - len(found), timeout=60)
            middle = found[4]
            middle.run._storage = Interrupted(middle.run._storage)
            with pytest.raises(KeyboardInterrupt):
                end(middle)
            together = [each for each in found if each.run is middle.run and each is not middle]
            assert not any(each.rollback() for each in together)
        # What is there can be read: no two rows of it overlap
        stats = queue.stats()
        assert stats.waiting + stats.pending + stats.delayed + stats.dead == stats.pushed


class TestALeaseThatAWitnessDoubts:
    """The time of day was set, and the database tells until when the lease runs."""

    SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))
    LEASE_S = 8.0
    SET_S = 60.0

    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def own(self, clock):
        """Make an owner of one pipe with ten messages, as it stands now."""
        storage = SqliteStorage(None, is_synced=False, clock=clock)
        entry = PipeEntry(new_pipe_id(), "a pusher")
        storage.create_pipe("q", entry, Head(new_token()))
        storage.append(entry.pipe, Batch(1, (b"body",) * 10, None, 10))

        def owner(holder):
            state = storage.load_pipe(entry.pipe)
            return OwnedPipe(context_of(storage, self.SETTINGS, clock), entry, state, Taker(holder))

        yield owner
        storage.close()

    @pytest.fixture
    def held(self, clock, own):
        """A run of all ten, of which one was given back, and two seconds later another."""
        owned = own("a popper")
        result = owned.take(10)
        (taken,) = result.runs
        made = HeldRun(
            context_of(owned.storage, self.SETTINGS, clock),
            owned.entry,
            taken,
            result.sent_at + self.LEASE_S,
            on_row_changed=owned.note,
        )
        for seq in (5, 7):
            clock.seconds += 2.0
            assert made.give_back(Ranges(((seq, seq),)), Return())
        return made

    def test_runs_on_for_as_long_as_the_row_that_ends_first(self, clock, own, held):
        # Given rows that were leased anew by the one rollback, and by the other
        clock.missed += self.SET_S
        assert held.still_runs()
        # When the first of them has run out for others
        clock.seconds += self.LEASE_S - 2.0 + 0.6
        (taken, *_) = own("another").take(10).runs
        assert (taken.run.first, taken.run.last) == (1, 4)
        # Then its holder is told so
        with pytest.raises(DeliveryExpiredError):
            commit_run(held, Ranges(((1, 1),)))

    @pytest.mark.parametrize("error", [StorageUnavailableError, AccessDeniedError])
    def test_a_rollback_that_wrote_nothing_leaves_the_lease_as_it_is(self, own, held, monkeypatch, error):
        with monkeypatch.context() as patch:
            patch.setattr(held._storage, "transact", failing(error))
            if error is AccessDeniedError:  # waiting does not help: the caller has to know
                with pytest.raises(error):
                    held.give_back(Ranges(((2, 2),)), Return())
            else:
                assert not held.give_back(Ranges(((2, 2),)), Return())
        # The others may be ended as before
        commit_run(held, Ranges(((1, 1),)))
        assert held.give_back(Ranges(((3, 3),)), Return())
        assert own("another").progress.is_ended(1)

    def test_nothing_more_is_done_under_a_lease_whose_rows_nobody_knows(self, own, held, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(held._storage, "transact", failing(OutcomeUnknownError))
            assert not held.give_back(Ranges(((2, 2),)), Return())
        assert not held.give_back(Ranges(((3, 3),)), Return())
        with pytest.raises(DeliveryExpiredError):
            held.extend()
        with pytest.raises(DeliveryExpiredError):
            commit_run(held, Ranges(((1, 1),)))
        assert not own("another").progress.is_ended(1)

    def test_a_rollback_that_others_forestalled_ends_the_lease(self, clock, own, held):
        clock.seconds += self.LEASE_S + 1.0
        assert own("another").take(10).runs
        clock.seconds -= self.LEASE_S  # as for a process whose clock stood still meanwhile
        assert not held.give_back(Ranges(((2, 2),)), Return())
        assert not held.is_live

    def test_what_rests_does_so_by_the_databases_clock(self, clock, own, held):
        assert held.give_back(Ranges(((9, 9),)), Return(delay_ms=2500))
        other = own("another")
        assert {taken.run.first for taken in other.take(10).runs} == {5, 7}
        clock.seconds += 2.5
        assert [taken.run.first for taken in other.take(10).runs] == [9]

    def test_commits_what_it_has_until_then(self, clock, own, held):
        clock.missed += self.SET_S
        assert held.still_runs()
        clock.seconds += self.LEASE_S - 2.0 - 0.1
        commit_run(held, Ranges(((1, 1),)))
        assert own("another").progress.is_ended(1)

    def test_is_not_extended_for_the_rest_where_others_took_a_part(self, clock, own, held, monkeypatch):
        # Given an extension that is held up on its way until the lease has run out for others
        load = held._storage.load_pipe

        def load_late(pipe):
            monkeypatch.undo()
            clock.seconds += self.LEASE_S + 0.6
            (taken, *_) = own("another").take(4).runs
            assert (taken.run.first, taken.run.last) == (1, 4)
            return load(pipe)

        monkeypatch.setattr(held._storage, "load_pipe", load_late)
        # When it goes on, then the holder is told that the lease is over, for all of the run
        with pytest.raises(DeliveryExpiredError):
            held.extend()
        assert not held.is_live

    def test_is_extended_by_transactions_that_cassandra_takes(self, clock, own, held, monkeypatch):
        # Given a run of which three rows are left
        transact, sizes = held._storage.transact, []

        def count(pipe, transaction):
            sizes.append(len(transaction.runs))
            return transact(pipe, transaction)

        monkeypatch.setattr(held._storage, "transact", count)
        monkeypatch.setattr(held_run, "RETURN_PARTS_MAX", 2)
        clock.seconds += held.left_s - 1.0
        # When it is extended, then all of them are, two at a time
        held.extend()
        assert sizes == [2, 1]
        clock.seconds += self.LEASE_S - 1.0
        assert {taken.run.first for taken in own("another").take(10).runs} == {5, 7}

    def test_is_not_extended_where_one_of_its_rows_is_not(self, clock, held, monkeypatch):
        transact, calls = held._storage.transact, []

        def fail_once(pipe, transaction):
            calls.append(transaction)
            if len(calls) == 2:
                raise StorageUnavailableError("planted")
            return transact(pipe, transaction)

        monkeypatch.setattr(held._storage, "transact", fail_once)
        monkeypatch.setattr(held_run, "RETURN_PARTS_MAX", 1)
        clock.seconds += held.left_s - 1.0
        with pytest.raises(StorageUnavailableError):
            held.extend()
        assert held.left_s == pytest.approx(1.0)
        held.extend()
        assert held.left_s == pytest.approx(self.LEASE_S)
