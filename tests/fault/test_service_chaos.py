"""Three services over one store, of which one is killed again and again, while clients do what clients do.

CASSQ_FAULT_SEED sets the seed, as in `test_faults_embedded`; CASSQ_FAULT_ROUNDS how often one is killed.
"""

import os

import pytest
import service_scenarios
from service_crew import service_crew

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("CASSQ_FAULT_ROUNDS", "8"))


def test_nothing_is_lost_or_twice_when_services_are_killed_and_clients_misbehave(tmp_path):
    with service_crew(f"sqlite:///{tmp_path}/store.db", tmp_path) as team:
        service_scenarios.services_are_killed(team, ROUNDS)
