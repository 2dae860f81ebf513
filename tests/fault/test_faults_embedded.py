"""Real processes over one SQLite file, killed and frozen under load: nothing is lost, nothing comes twice.

CASSQ_FAULT_SEED sets the seed, which decides what workers do and where faults strike; a failure tells it.
Processes are not replayed by a seed, so a failing one is worth some repetitions.
"""

import random

import pytest
from crew import PAST_LEASE_S, PAST_PUSH_S, SEED, crew, wait_for_clock
from ledger import ACKNOWLEDGED, COMMITTED, DELIVERED, REAPED, now

pytestmark = pytest.mark.slow


@pytest.fixture
def team(tmp_path):
    with crew(f"sqlite:///{tmp_path}/store.db", tmp_path) as made:
        yield made


def test_poppers_are_killed_again_and_again(team):
    dice = random.Random(SEED)
    team.start_all(reapers=0)
    for _ in range(6):
        victim = team.of("popper")[0]
        team.start("popper")
        team.await_lines(victim, DELIVERED, victim.count(DELIVERED) + dice.randrange(1, 60))
        team.kill(victim)
    team.finish()


def test_poppers_are_frozen_past_their_leases(team):
    team.start_all(reapers=0)
    for turn in range(3):
        frozen = team.of("popper")[turn : turn + 2]
        for each in frozen:
            each.freeze()
        wait_for_clock(now() + PAST_LEASE_S)
        for each in frozen:
            each.thaw()
        team.await_more(COMMITTED, "popper")
    team.finish()


def test_pushers_are_frozen_until_reapers_take_their_pipes(team):
    team.start_all(reapers=2)
    for turn in range(3):
        frozen = team.of("pusher")[turn : turn + 2]
        for each in frozen:
            each.freeze()
        wait_for_clock(now() + PAST_PUSH_S)
        for each in frozen:
            each.thaw()
        team.await_more(ACKNOWLEDGED, "pusher")
    team.finish()
    sealed = sum(int(_word_after(line.words, "sealed")) for each in team.of("reaper") for line in each.lines())
    assert sealed, "no pipe of a frozen pusher was ever sealed: the test froze nobody for long enough"


def test_pushers_are_killed(team):
    dice = random.Random(SEED)
    team.start_all(reapers=1)
    for _ in range(4):
        team.start("pusher")
        victim = team.of("pusher")[0]
        team.await_any(ACKNOWLEDGED, "pusher", dice.randrange(1, 100))
        team.kill(victim)
    team.finish()


def test_reapers_are_killed_in_the_middle_of_their_work(team):
    dice = random.Random(SEED)
    team.start_all(reapers=2)
    for _ in range(6):
        team.start("reaper")
        victim = team.of("reaper")[0]
        team.await_any(REAPED, "reaper", dice.randrange(1, 8))
        wait_for_clock(now() + dice.random() * 0.1)
        team.kill(victim)
    team.finish()


def test_everything_happens_at_once(team):
    dice = random.Random(SEED)
    team.start_all(reapers=2)
    thaw_at = {}
    for _ in range(16):
        victim = dice.choice(team.members)
        if victim in thaw_at:
            pass
        elif dice.random() < 0.4:
            team.start(victim.role)
            team.kill(victim)
        else:
            victim.freeze()
            thaw_at[victim] = now() + dice.choice((0.2, PAST_LEASE_S, PAST_PUSH_S))
        wait_for_clock(now() + dice.random() * 0.6)
        for each in [each for each, at in thaw_at.items() if at < now()]:
            del thaw_at[each]
            each.thaw()
    team.finish()


def _word_after(words, name):
    parts = words.split()
    return parts[parts.index(name) + 1] if name in parts else "0"
