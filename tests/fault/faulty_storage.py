"""A storage whose replies get lost, whose writes land late, and which is away at times, by a seed.

Owns the fault model. It wraps any `Storage` and keeps the port's contract to the letter, at its worst:

- a write may fail with `StorageUnavailableError`: it was not and will not be applied;
- a write may be applied, and its reply lost (`OutcomeUnknownError`);
- a write may be neither applied nor refused (`OutcomeUnknownError`), and land at a random moment later, or
  never. A conditional one is judged by what it finds then;
- a read may fail with `StorageUnavailableError`;
- a call may stall, before or after it does its work: to the actors that looks like a frozen process.

What must not break: what was acknowledged was applied before the reply, and nothing else is ever changed.
"""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError
from cassq.storage.port import Storage

READS = (
    "read_queues",
    "glance_queue",
    "list_pipes",
    "read_batches",
    "load_pipe",
    "read_dead",
    "count_dead",
    "read_rollups",
)
WRITES = (
    "change_queue",
    "create_pipe",
    "delete_pipe",
    "append",
    "transact",
    "mark",
    "change_dead",
    "write_rollups",
)


@dataclass(slots=True)
class Odds:
    """How likely each fault is, per call."""

    away: float = 0.03
    reply_lost: float = 0.06
    lands_late: float = 0.06
    never_lands: float = 0.03
    stalls: float = 0.01
    stall_s: float = 0.4
    flush: float = 0.15


@dataclass(slots=True)
class _Late:
    apply: Callable[[], Any]
    name: str


class Faults:
    """The dice, shared by all wrappers of one history."""

    def __init__(self, seed: int, odds: Odds | None = None, *, is_on: bool = True) -> None:
        self.odds = odds or Odds()
        self.is_on = is_on
        self.counts: dict[str, int] = {}
        self.dice = random.Random(seed)
        self.lock = threading.RLock()
        self.late: list[_Late] = []
        self._healed = threading.Event()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def land(self, *, all_of_it: bool = False) -> None:
        """Let some of what is on its way arrive, in any order."""
        with self.lock:
            while self.late and (all_of_it or self.dice.random() < self.odds.flush):
                late = self.late.pop(self.dice.randrange(len(self.late)))
                self.count(f"late {late.name}")
                with suppress(CassqError):
                    late.apply()

    def stall(self) -> None:
        """Keep the caller waiting, now and then."""
        with self.lock:
            if not self.is_on or self.dice.random() >= self.odds.stalls:
                return
            seconds = self.dice.random() * self.odds.stall_s
        self.count("stall")
        self._healed.wait(seconds)

    def end(self) -> None:
        """Stop making faults. What is on its way arrives now."""
        with self.lock:
            self.is_on = False
        self._healed.set()
        self.land(all_of_it=True)


class FaultyStorage:
    """Any storage, with faults."""

    def __init__(self, storage: Storage, faults: Faults) -> None:
        self._storage = storage
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._storage, name)
        if name in READS:
            return partial(self._read, called)
        if name in WRITES:
            return partial(self._write, name, called)
        return called

    def _read(self, called: Callable[..., Any], *args: Any, **options: Any) -> Any:
        faults = self._faults
        faults.land()
        faults.stall()
        with faults.lock:
            is_away = faults.is_on and faults.dice.random() < faults.odds.away
        if is_away:
            faults.count("read failed")
            raise StorageUnavailableError("a planted outage")
        found = called(*args, **options)
        faults.stall()
        return found

    def _write(self, name: str, called: Callable[..., Any], *args: Any, **options: Any) -> Any:
        faults, odds = self._faults, self._faults.odds
        faults.land()
        faults.stall()
        with faults.lock:
            roll = faults.dice.random() if faults.is_on else 1.0
            what = _pick(
                roll,
                {
                    "away": odds.away,
                    "reply lost": odds.reply_lost,
                    "lands late": odds.lands_late,
                    "never lands": odds.never_lands,
                },
            )
            if what:
                faults.count(f"{what} {name}")
            if what == "lands late":
                faults.late.append(_Late(partial(called, *args, **options), name))
        match what:
            case "away":
                raise StorageUnavailableError("a planted outage")
            case "reply lost":
                with suppress(CassqError):
                    called(*args, **options)
                raise OutcomeUnknownError("a planted lost reply")
            case "lands late" | "never lands":
                raise OutcomeUnknownError("a planted time-out")
            case _:
                answer = called(*args, **options)
                faults.stall()
                return answer


def _pick(roll: float, shares: dict[str, float]) -> str:
    for what, share in shares.items():
        if roll < share:
            return what
        roll -= share
    return ""
