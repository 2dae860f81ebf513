"""Real processes over one SQLite file, killed and frozen under load: nothing is lost, nothing comes twice.

CASSQ_FAULT_SEED sets the seed, which decides what workers do and where faults strike; a failure tells it.
Processes are not replayed by a seed, so a failing one is worth some repetitions.
"""

import pytest
import scenarios
from crew import crew

pytestmark = pytest.mark.slow


@pytest.fixture
def team(tmp_path):
    with crew(f"sqlite:///{tmp_path}/store.db", tmp_path) as made:
        yield made


def test_nothing_is_lost_or_delivered_twice_when_poppers_are_killed(team):
    scenarios.poppers_are_killed(team, rounds=6)


def test_nothing_is_lost_or_delivered_twice_when_poppers_are_frozen_past_their_leases(team):
    scenarios.poppers_are_frozen(team, rounds=3)


def test_nothing_is_lost_or_delivered_twice_when_reapers_seal_the_pipes_of_frozen_pushers(team):
    scenarios.pushers_are_frozen(team, rounds=2)


def test_nothing_is_lost_or_delivered_twice_when_pushers_are_killed(team):
    scenarios.pushers_are_killed(team, rounds=4)


def test_nothing_is_lost_or_delivered_twice_when_reapers_are_killed(team):
    scenarios.reapers_are_killed(team, rounds=6)


def test_nothing_is_lost_or_delivered_twice_when_everything_happens_at_once(team):
    scenarios.everything_happens_at_once(team, rounds=16)
