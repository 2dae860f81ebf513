"""Hundreds of histories of a topic that nobody simulated before, and not one broken promise.

CASSQ_SIMULATE_FROM is the first seed, another one in every run.
"""

import os

from explore import JOBS, explore

FIRST = int(os.environ["CASSQ_SIMULATE_FROM"])
HISTORIES = 600


def test_no_history_of_a_topic_breaks_a_promise():
    tally = explore(FIRST, HISTORIES, jobs=JOBS, about="topics")

    told = "\n".join(
        f"tools/simulate --topics --seed {failure.seed}    {'; '.join(failure.broken)[:300]}"
        for failure in tally.failures
    )
    assert not tally.failures, f"replay them with\n{told}"
    assert tally.histories == HISTORIES
