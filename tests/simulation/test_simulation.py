"""Thousands of histories, and not one broken promise.

CASSQ_SIMULATE_HISTORIES asks for another number of them, CASSQ_SIMULATE_FROM for another first seed,
CASSQ_SIMULATE_SECONDS for more or less time: a machine that does not get through them in it stops there, and
the test says how far it came.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from explore import explore

HISTORIES = int(os.environ.get("CASSQ_SIMULATE_HISTORIES", "20000"))
FIRST = int(os.environ.get("CASSQ_SIMULATE_FROM", "0"))
SECONDS = float(os.environ.get("CASSQ_SIMULATE_SECONDS", "480"))
#: Fewer than this show nothing, however slow the machine is.
HISTORIES_MIN = min(HISTORIES, 1000)


def test_no_history_breaks_a_promise(capsys):
    tally = explore(FIRST, HISTORIES, seconds=SECONDS)

    told = "\n".join(
        f"tools/simulate --seed {failure.seed}    {'; '.join(failure.broken)[:300]}"
        for failure in tally.failures
    )
    assert not tally.failures, f"replay them with\n{told}"
    with capsys.disabled():
        print(f" {tally.histories} of {HISTORIES} histories", end="")
    assert HISTORIES_MIN <= tally.histories <= HISTORIES


@pytest.mark.parametrize("seed", [3, 11, 402])
def test_a_seed_is_one_history_in_every_process(seed):
    told = [_tell(seed, hash_seed) for hash_seed in ("1", "2")]

    assert told[0] == told[1]
    assert told[0].count(b"\n") > 50


def test_two_seeds_are_two_histories():
    assert _digest(_tell(3, "1")) != _digest(_tell(4, "1"))


def test_a_failing_seed_prints_a_history_that_is_small_and_says_what_broke():
    mutant = "take without the fence"
    seeds = json.loads((Path(__file__).parent / "seeds.json").read_text())
    words = ["--seed", str(seeds[mutant]), "--mutant", mutant]

    ended = _simulate(*words)

    assert ended.returncode == 1
    lines = ended.stdout.decode().splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("plan of seed"))
    story, verdict = lines[:place], "\n".join(lines[place + 1 :])
    assert len(story) < 120
    bodies = set(re.findall(r"pusher\d+-\d+", verdict))
    assert bodies, f"the verdict names no message: {verdict}"
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
