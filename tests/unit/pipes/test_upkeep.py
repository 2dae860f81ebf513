"""What a pipe needs besides pushes and pops, where another owner was faster."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import RunChange, Transaction
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
