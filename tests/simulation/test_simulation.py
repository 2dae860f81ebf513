"""Thousands of histories that nobody simulated before, and not one broken promise.

CASSQ_SIMULATE_FROM is the first seed, another one in every run, which the tests' names tell;
CASSQ_SIMULATE_HISTORIES is how many.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from explore import JOBS, explore

HISTORIES = int(os.environ.get("CASSQ_SIMULATE_HISTORIES", "4000"))
FIRST = int(os.environ["CASSQ_SIMULATE_FROM"])
PARTS = 4


@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, -(-HISTORIES // PARTS)))
def test_no_history_breaks_a_promise(first):
    count = min(-(-HISTORIES // PARTS), FIRST + HISTORIES - first)

    tally = explore(first, count, jobs=JOBS)

    told = "\n".join(
        f"tools/simulate --seed {failure.seed}    {'; '.join(failure.broken)[:300]}"
        for failure in tally.failures
    )
    assert not tally.failures, f"replay them with\n{told}"
    assert tally.histories == count


@pytest.mark.parametrize("seed", [3, 11, 402])
def test_a_seed_is_one_history_in_every_process(seed):
    told = [_tell(seed, hash_seed) for hash_seed in ("1", "2")]

    assert told[0] == told[1]
    assert told[0].count(b"\n") > 50


def test_two_seeds_are_two_histories():
    assert _digest(_tell(3, "1")) != _digest(_tell(4, "1"))


def test_a_failing_seed_prints_a_history_that_is_small_and_says_what_broke():
    for mutant, seed in json.loads((Path(__file__).parent / "seeds.json").read_text()).items():
        ended = _simulate("--seed", str(seed), "--mutant", mutant)
        lines = ended.stdout.decode().splitlines()
        place = next(place for place, line in enumerate(lines) if line.startswith("plan of seed"))
        story, verdict = lines[:place], "\n".join(lines[place + 1 :])
        if bodies := set(re.findall(r"pusher\d+-\d+", verdict)):
            break  # of damage a verdict may name the pipe alone

    assert ended.returncode == 1
    assert len(story) < 120
    for body in bodies:
        assert any("APPEND" in line and body in line for line in story)


def _tell(seed: int, hash_seed: str) -> bytes:
    return _simulate("--seed", str(seed), "--whole", PYTHONHASHSEED=hash_seed).stdout


def _simulate(*words: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, str(Path(__file__).parent / "simulate.py"), *words],
        capture_output=True,
        env={**os.environ, **variables},
        check=False,
    )


def _digest(told: bytes) -> str:
    return hashlib.sha256(told).hexdigest()
