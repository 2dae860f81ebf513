"""P1, P2 and P3 over a store whose replies get lost, in hundreds of short histories.

Every history tells its seed when it fails. CASSQ_FAULT_SEED sets the first one, CASSQ_FAULT_HISTORIES how
many there are; threads are not replayed by a seed, so a failing one is worth some repetitions.
"""

import os
import random

import pytest
from faulty_storage import Odds
from histories import run_history

SEED = int(os.environ.get("CASSQ_FAULT_SEED", "0")) or random.randrange(1, 1_000_000)
HISTORIES = int(os.environ.get("CASSQ_FAULT_HISTORIES", "5"))

PROFILES = {
    "calm": Odds(away=0, reply_lost=0, lands_late=0, never_lands=0, stalls=0),
    "mild": Odds(),
    "wild": Odds(away=0.1, reply_lost=0.15, lands_late=0.15, never_lands=0.1, flush=0.1),
    "frozen": Odds(away=0.01, reply_lost=0.02, lands_late=0.02, never_lands=0.01, stalls=0.06),
}


@pytest.mark.slow
@pytest.mark.parametrize("is_generous", [False, True], ids=["claims hold", "claims mean nothing"])
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_is_lost_or_delivered_twice_while_replies_get_lost(profile, is_generous):
    for seed in range(SEED, SEED + HISTORIES):
        run_history(seed, odds=PROFILES[profile], is_generous=is_generous).check()
