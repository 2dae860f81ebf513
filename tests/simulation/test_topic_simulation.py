"""Hundreds of histories of a topic, of relays and the journal, that are new, and not one broken promise.

CASSQ_SIMULATE_FROM is the first seed, another one in every run.
"""

import os

import pytest
from explore import JOBS, explore

FIRST = int(os.environ["CASSQ_SIMULATE_FROM"])
HISTORIES = {"topics": 600, "relays": 300, "journals": 100}


@pytest.mark.parametrize("about", HISTORIES)
def test_no_history_of_a_topic_breaks_a_promise(about):
    tally = explore(FIRST, HISTORIES[about], jobs=JOBS, about=about)

    told = "\n".join(
        f"tools/simulate --{about} --seed {failure.seed}    {'; '.join(failure.broken)[:300]}"
        for failure in tally.failures
    )
    assert not tally.failures, f"replay them with\n{told}"
    assert tally.histories == HISTORIES[about]
