"""One message is ended by hand: what is told of it holds, whatever becomes of the requests."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Advance, Cancel
from cassq.observing.purging import Purging
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.reaping.rescheduling import Place, Rescheduling
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(
    lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500), max_attempts=2
)


class LossyStorage(SqliteStorage):
    """Loses the answers to cancellations, or the requests, and does what a test asks for in between.

    Attributes:
        is_applied: a transaction that is lost was applied.
        then: is called after it.
    """

    is_applied = True
    is_losing = False
    then = staticmethod(lambda: None)

    def transact(self, pipe, transaction):
        if not (self.is_losing and transaction.marks):
            return super().transact(pipe, transaction)
        self.is_losing = False
        if self.is_applied:
            super().transact(pipe, transaction)
        self.then()
        raise OutcomeUnknownError("lost")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def storage(clock):
    made = LossyStorage(None, is_synced=False, clock=clock)
    yield made
    made.close()


@pytest.fixture
def entry(storage):
    """The entry of a pipe with three messages."""
    made = PipeEntry(new_pipe_id(), "a pusher")
    storage.create_pipe("q", made, Head(new_token()))
    storage.append(made.pipe, Batch(1, (b"one", b"two", b"three"), None, 3))
    return made


@pytest.fixture
def own(storage, clock, entry):
    """Make an owner of the pipe, as it stands now."""

    def owner():
        state = storage.load_pipe(entry.pipe)
        return OwnedPipe(context_of(storage, SETTINGS, clock), entry, state, Taker("a popper"))

    return owner


@pytest.fixture
def cancel(storage, clock, entry):
    """Cancel one of the messages."""
    purging = Purging(context_of(storage, SETTINGS, clock))

    def call(seq, *, running=False):
        return purging.cancel(MessageId(entry.pipe, seq), is_running_meant=running)

    return call


def take(owner, wanted):
    return [message[1] for run in owner.take(wanted).runs for message in run.messages]


def test_what_is_cancelled_is_not_handed_out(own, cancel):
    planned = own()
    assert cancel(2)

    assert take(planned, 3) == [b"one", b"three"]  # though it had read before
    assert cancel(2)


def test_what_somebody_has_is_cancelled_only_by_who_means_it(storage, clock, entry, own, cancel):
    assert take(own(), 2) == [b"one", b"two"]

    assert not cancel(1)
    assert cancel(1, running=True)

    clock.seconds += 60.0
    assert take(own(), 3) == [b"two", b"three"]
    assert Mark(1, 1, End.PURGED) in storage.load_pipe(entry.pipe).marks or own().head.floor >= 1


def test_a_lease_that_has_ended_is_taken_from_its_holder_first(storage, clock, entry, own, cancel):
    assert take(own(), 2) == [b"one", b"two"]
    (leased,) = storage.load_pipe(entry.pipe).runs
    clock.seconds += 60.0

    assert cancel(2)

    (run,) = storage.load_pipe(entry.pipe).runs
    assert (run.state, run.lease_id != leased.lease_id) == (RunState.RETURNED, True)
    assert take(own(), 3) == [b"one", b"three"]


def test_what_came_back_from_its_last_attempt_is_to_be_a_dead_letter_and_not_cancelled(clock, own, cancel):
    for _ in range(SETTINGS.max_attempts):
        assert take(own(), 1) == [b"one"]
        clock.seconds += 60.0

    assert not cancel(1)
    assert not cancel(1, running=True)


def test_what_came_back_from_its_last_attempt_is_not_moved_either(clock, entry, storage, own):
    for _ in range(SETTINGS.max_attempts):
        assert take(own(), 1) == [b"one"]
        clock.seconds += 60.0
    rescheduling = Rescheduling(context_of(storage, clock=clock, settings=SETTINGS))

    assert not rescheduling.move(MessageId(entry.pipe, 1), Place(due_ms=0))
    assert rescheduling.move(MessageId(entry.pipe, 2), Place(due_ms=0))


def test_no_number_is_cancelled_that_was_not_pushed(storage, entry, own, cancel):
    assert not cancel(4)

    storage.append(entry.pipe, Batch(4, (b"four",), None, 1))
    assert take(own(), 4) == [b"one", b"two", b"three", b"four"]


def test_a_pipe_of_another_queue_is_left_alone(storage, entry, cancel):
    other = PipeEntry(new_pipe_id(), "a pusher")
    storage.create_pipe("another", other, Head(new_token()))
    storage.append(other.pipe, Batch(1, (b"one",), None, 1))

    assert storage.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
    purging = Purging(context_of(storage, SETTINGS, HandClock()))
    assert not purging.cancel(MessageId(other.pipe, 1), is_running_meant=False)
    assert storage.load_pipe(other.pipe).marks == ()


class TestAnAnswerThatIsLost:
    """Is found out, or told to be lost: False comes to nothing, also later."""

    @pytest.fixture(autouse=True)
    def losing(self, storage):
        storage.is_losing = True

    @pytest.mark.parametrize("is_applied", [True, False])
    def test_is_found_out(self, storage, own, cancel, is_applied):
        storage.is_applied = is_applied

        assert cancel(2)

        assert take(own(), 3) == [b"one", b"three"]

    def test_is_no_where_somebody_took_the_message(self, storage, own, cancel):
        storage.is_applied = False
        storage.then = lambda: take(own(), 3)

        assert not cancel(2)

    def test_stays_unknown_where_the_message_is_not_remembered(self, storage, entry, own, cancel):
        storage.is_applied = False

        def end_all():
            take(own(), 3)
            storage.mark(entry.pipe, [Mark(1, 3, End.COMMITTED)])
            assert own().advance(own().head)
            assert own().head.floor == 3

        storage.then = end_all

        with pytest.raises(OutcomeUnknownError, match="lost"):
            cancel(2)

    @pytest.mark.parametrize("call", ["load_pipe", "transact"])
    def test_stays_unknown_where_nothing_more_can_be_read_or_sent(self, storage, cancel, monkeypatch, call):
        def fail(*_, **__):
            raise StorageUnavailableError("away")

        storage.is_applied = False
        storage.then = lambda: monkeypatch.setattr(storage, call, fail)

        with pytest.raises(OutcomeUnknownError, match="lost"):
            cancel(2)

    def test_of_a_returned_message_stays_unknown_while_it_may_still_land(
        self, storage, clock, entry, own, cancel
    ):
        # Given a message that came back, and a cancellation of it that is on its way
        assert take(own(), 1) == [b"one"]
        storage.is_applied = False
        # When it has an end by the holder of before, who needs no op for that
        storage.then = lambda: storage.mark(entry.pipe, [Mark(1, 1, End.COMMITTED)])
        # Then it may land for all that anybody knows
        with pytest.raises(OutcomeUnknownError, match="lost"):
            cancel(1, running=True)


def test_each_cancellation_moves_the_fence(storage, entry, own, cancel):
    sent = []
    transact = storage.transact
    storage.transact = lambda pipe, what: (sent.append(what), transact(pipe, what))[1]
    assert take(own(), 1) == [b"one"]
    before = own().head.op
    sent.clear()

    assert cancel(1, running=True)
    assert cancel(3)

    assert [type(each.head) for each in sent] == [Advance, Cancel]
    assert len({before, sent[0].head.head.op, sent[1].head.op}) == 3
