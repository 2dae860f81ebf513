"""How long a reader waits for a name that somebody else has."""

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk import reader_claim
from cassq.bulk.reader_claim import NAME_PATIENCE_S, NEIGHBOUR_PATIENCE_S, ReaderClaim
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import InvalidOptionError
from cassq.model.settings import QueueSettings
from cassq.storage.sqlite.storage import SqliteStorage


class Clock(HandClock):
    """Whoever waits has waited."""

    def wait(self, condition, seconds):
        self.seconds += seconds


@pytest.fixture
def claims():
    """Claims of two holders on one name, and their clock."""
    clock = Clock()
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    coordinator = LocalCoordinator(None, clock)
    context = context_of(storage, QueueSettings(), clock, coordinator=coordinator)
    yield ReaderClaim(context, "tests", "one"), ReaderClaim(context, "tests", "two"), clock
    coordinator.close()
    storage.close()


@pytest.mark.parametrize(("runs_here", "longest_s"), [(False, NAME_PATIENCE_S), (True, NEIGHBOUR_PATIENCE_S)])
def test_a_name_is_waited_for_no_longer_than_a_dead_process_may_keep_it(
    claims, monkeypatch, runs_here, longest_s
):
    monkeypatch.setattr(reader_claim, "may_run_here", lambda _: runs_here)
    first, second, clock = claims
    first.take()
    begun = clock.now()
    with pytest.raises(InvalidOptionError, match=r"by another process \(one\)"):
        second.take()
    assert clock.now() - begun == pytest.approx(longest_s)


def test_who_is_not_patient_is_told_at_once(claims):
    first, second, clock = claims
    first.take()
    begun = clock.now()
    with pytest.raises(InvalidOptionError):
        second.take(0.0)
    assert clock.now() == begun


def test_a_name_that_was_given_up_is_free(claims):
    first, second, _ = claims
    first.take()
    first.release()
    second.take(0.0)
    assert (first.is_held(), second.is_held()) == (False, True)
