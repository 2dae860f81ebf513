"""What a pipe needs besides pushes and pops, where another owner was faster."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Cancel, RunChange, Seal, Transaction
from cassq.pipes import upkeep
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def storage(clock):
    made = SqliteStorage(None, is_synced=False, clock=clock)
    yield made
    made.close()


@pytest.fixture
def own(storage, clock):
    """Make an owner of one pipe with a message, as it stands now."""
    entry = PipeEntry(new_pipe_id(), "a pusher")
    storage.create_pipe("q", entry, Head(new_token()))
    storage.append(entry.pipe, Batch(1, (b"body",), None, 1))

    def owner(holder):
        state = storage.load_pipe(entry.pipe)
        return OwnedPipe(context_of(storage, SETTINGS, clock), entry, state, Taker(holder))

    return owner


def test_what_waits_behind_many_that_were_cancelled_is_not_drained(storage, own):
    # Given a pipe with a message in each batch, all of them cancelled but the last, and its pusher gone
    pipe = own("a reaper").pipe
    for seq in range(2, 7):
        storage.append(pipe, Batch(seq, (b"body",), None, 1))
    for seq in range(1, 6):
        cancel = Transaction(Cancel(new_token(), seq), marks=(Mark(seq, seq, End.PURGED),))
        assert storage.transact(pipe, cancel).is_applied
    # When a reaper steps over them, seals the pipe and would drain it
    reaper = own("a reaper")
    assert upkeep.needs_care(reaper, is_abandoned=False)
    assert upkeep.seal(reaper)
    assert upkeep.step_over(reaper)
    assert upkeep.drain(reaper)
    # Then the last one waits
    assert not storage.load_pipe(pipe).head.is_decided
    popper = own("a popper")
    assert (popper.head.cursor, popper.head.skipped) == (5, 5)
    assert [message[0] for run in popper.take(9).runs for message in run.messages] == [6]


def test_a_pipe_of_which_all_was_cancelled_is_over_by_itself(storage, own):
    pipe = own("a reaper").pipe
    assert storage.transact(pipe, Transaction(Seal(1))).is_applied
    cancel = Transaction(Cancel(new_token(), 1), marks=(Mark(1, 1, End.PURGED),))
    assert storage.transact(pipe, cancel).is_applied

    reaper = own("a reaper")
    assert not reaper.is_over
    assert upkeep.step_over(reaper)
    assert reaper.is_over


def test_a_lease_that_is_extended_behind_the_look_is_not_ended(storage, clock, own):
    # Given a lease that has run out, as a reaper sees it
    popper = own("a popper")
    assert popper.take(1, is_flowing=False).runs
    clock.seconds += 60.0
    reaper = own("a reaper")
    (leased,) = reaper.expired()
    # When an extension lands that was on its way for long
    extension = RunChange(leased, leased.lease_id, leased.leased_at_ms, is_leased_now=True)
    assert storage.transact(popper.pipe, Transaction(runs=(extension,))).is_applied
    # Then the lease stands
    assert upkeep.return_expired(reaper) == 0
    (standing,) = storage.load_pipe(popper.pipe).runs
    assert (standing.lease_id, standing.state) == (leased.lease_id, leased.state)


def test_a_lease_that_ran_out_is_ended(clock, own):
    assert own("a popper").take(1, is_flowing=False).runs
    clock.seconds += 60.0
    assert upkeep.return_expired(own("a reaper")) == 1


def test_what_was_returned_or_purged_is_not_so_once_more(storage, clock, own):
    # Given a reaper that goes on with what it knows, without another look
    assert own("a popper").take(1, is_flowing=False).runs
    clock.seconds += 60.0
    reaper = own("a reaper")
    assert [upkeep.return_expired(reaper) for _ in range(2)] == [1, 0]
    assert [upkeep.purge(reaper) for _ in range(2)] == [1, 0]
    assert reaper.progress.tally(1).purged == 1
