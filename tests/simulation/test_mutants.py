"""Bugs planted one by one, and each of them is found.

`seeds.json` names the seed that found each one last. A seed stands for another history once the library has
changed, so where it finds nothing any more, others are tried; `tools/simulate --record` writes the file anew.
"""

import json
from pathlib import Path

import pytest
from explore import explore
from mutants import MUTANTS

SEEDS = json.loads((Path(__file__).parent / "seeds.json").read_text())

#: So many histories at most may go by without finding a bug.
HISTORIES_MAX = 4000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant, record_property):
    seed = SEEDS.get(mutant.name, 0)

    tally = explore(seed, 1, jobs=1, mutant=mutant.name, failures_max=1)
    if not tally.failures:
        tally = explore(0, HISTORIES_MAX, mutant=mutant.name, failures_max=1)

    assert tally.failures, f"{mutant.name!r} was planted, and {tally.histories} histories broke no promise"
    record_property("seed", tally.failures[0].seed)


def test_every_recorded_seed_is_of_a_bug_that_is_still_planted():
    assert SEEDS.keys() == {mutant.name for mutant in MUTANTS}
