"""What the embedded store keeps of dead letters that are old, where it deletes a pipe and sweeps."""

from datetime import timedelta

import pytest
from support.clocks import HandClock

from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.letters import REMOVED_KEPT_MS
from cassq.storage.sqlite.storage import SqliteStorage

KEPT_S = REMOVED_KEPT_MS / 1000


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def storage(clock):
    made = SqliteStorage(None, is_synced=False, clock=clock)
    yield made
    made.close()


@pytest.fixture
def dead(storage):
    """A message that was given up."""
    made = DeadLetter(MessageId(new_pipe_id(), 1), b"a body", {}, 0, 5, "it failed")
    storage.change_dead("q", added=[made])
    return made


def delete_a_pipe(storage):
    pipe = new_pipe_id()
    storage.create_pipe("q", PipeEntry(pipe, "a pusher"), Head(new_token()))
    storage.delete_pipe("q", pipe)


def bodies(storage):
    return [letter.body for letter in storage.read_dead("q")]


@pytest.mark.parametrize("age", [timedelta(hours=25), timedelta(days=400)])
def test_a_letter_stays_until_somebody_deals_with_it(storage, clock, dead, age):
    clock.seconds += age.total_seconds()
    delete_a_pipe(storage)
    assert bodies(storage) == [dead.body]


def test_a_letter_that_was_dealt_with_does_not_come_back_by_a_late_burial(storage, clock, dead):
    # Given a letter that is as old as the trace of a removed one gets, and removed now
    clock.seconds += KEPT_S + 1
    storage.change_dead("q", removed=[dead.message_id])
    # When pipes are deleted for a day, then its owner may still bury it once more
    clock.seconds += KEPT_S - 1
    delete_a_pipe(storage)
    storage.change_dead("q", added=[dead])
    assert bodies(storage) == []


def test_nothing_is_kept_of_a_letter_that_was_dealt_with_long_ago(storage, clock, dead):
    storage.change_dead("q", removed=[dead.message_id])
    clock.seconds += KEPT_S + 1
    delete_a_pipe(storage)
    with storage._file.reading() as db:
        assert db.execute("SELECT count(*) FROM dead").fetchone() == (0,)
