"""What befalls a crew of processes, on any store: killed, frozen, thawed, and everything at once.

Owns the order of faults. Each scenario starts its crew, does harm under load, and has the crew finish, which
checks every promise. Waiting is for lines in ledgers and states of processes, and for limits to be outlasted.
"""

import contextlib
import random
import sqlite3

from crew import PAST_LEASE_S, PAST_PUSH_S, SEED, Crew, Member, now, wait_for_clock, wait_until
from support.patience import patiently
from workers import QUEUE

import cassq
from cassq.verification.ledger import Kind

#: How much longer than a dead pusher's limit a reaper may take, and how often the freezing is tried.
SEAL_PATIENCE_S = 4.0
FREEZES_MAX = 30


def poppers_are_killed(team: Crew, rounds: int) -> None:
    dice = random.Random(SEED)
    team.start_all(reapers=0)
    for _ in range(rounds):
        victim = team.of("popper")[0]
        team.start("popper")
        team.await_lines(victim, Kind.DELIVERED, victim.count(Kind.DELIVERED) + dice.randrange(1, 60))
        team.kill(victim)
    team.finish()


def poppers_are_frozen(team: Crew, rounds: int) -> None:
    team.start_all(reapers=0)
    for turn in range(rounds):
        _freeze_for(team.of("popper")[turn : turn + 2], PAST_LEASE_S)
        team.await_more(Kind.COMMITTED, "popper")
    team.finish()


def pushers_are_frozen(team: Crew, rounds: int) -> None:
    team.start_all(reapers=2)
    assert any(_freeze_until_sealed(team) for _ in range(FREEZES_MAX)), (
        "nobody sealed the frozen pushers' pipes"
    )
    team.await_more(Kind.ACKNOWLEDGED, "pusher")
    for turn in range(rounds):
        _freeze_for(team.of("pusher")[turn : turn + 2], PAST_PUSH_S)
        team.await_more(Kind.ACKNOWLEDGED, "pusher")
    team.finish()


def pushers_are_killed(team: Crew, rounds: int) -> None:
    dice = random.Random(SEED)
    team.start_all(reapers=1)
    for _ in range(rounds):
        victim = team.of("pusher")[0]
        team.start("pusher")
        team.await_lines(victim, Kind.ACKNOWLEDGED, victim.count(Kind.ACKNOWLEDGED) + dice.randrange(1, 100))
        team.kill(victim)
    team.finish()


def reapers_are_killed(team: Crew, rounds: int) -> None:
    dice = random.Random(SEED)
    team.start_all(reapers=2)
    for _ in range(rounds):
        victim = team.of("reaper")[0]
        team.start("reaper")
        team.await_lines(victim, Kind.REAPED, victim.count(Kind.REAPED) + dice.randrange(1, 4))
        wait_for_clock(now() + dice.random() * 0.1)
        team.kill(victim)
    team.finish()


def everything_happens_at_once(team: Crew, rounds: int) -> None:
    dice = random.Random(SEED)
    team.start_all(reapers=2)
    thaw_at: dict[Member, float] = {}
    for _ in range(rounds):
        victim = dice.choice([each for each in team.members if each not in thaw_at])
        if dice.random() < 0.4:
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


def _freeze_until_sealed(team: Crew) -> bool:
    """Freeze all pushers until no pipe takes pushes any more; False when one of them blocks the store.

    Who is frozen in the middle of a write keeps SQLite's lock, and then nobody can seal.
    """
    pushers = team.of("pusher")
    for each in pushers:
        each.freeze()
    deadline = now() + PAST_PUSH_S + SEAL_PATIENCE_S
    try:
        if not _is_writable(team.url):
            return False
        with patiently(lambda: cassq.connect(team.url)) as store:
            queue = patiently(lambda: store.find_queue(QUEUE))
            wait_until(lambda: now() > deadline or _are_sealed(queue), "every pipe is sealed")
            return _are_sealed(queue)
    finally:
        for each in pushers:
            each.thaw()


def _are_sealed(queue: cassq.Queue) -> bool:
    # A database that has too much to do is asked again.
    with contextlib.suppress(cassq.UnavailableError):
        return all(pipe.phase != "PA" for pipe in queue.pipes())
    return False


def _is_writable(url: str) -> bool:
    path = url.removeprefix("sqlite:///")
    if path == url:
        return True
    with contextlib.closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        db.execute("ROLLBACK")
        return True


def _freeze_for(members: list[Member], seconds: float) -> None:
    for each in members:
        each.freeze()
    wait_for_clock(now() + seconds)
    for each in members:
        each.thaw()
