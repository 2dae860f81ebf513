"""Checks ledgers: what was pushed, delivered and committed, in the manner of Jepsen's total queue.

Owns the meaning of "lost", "unexpected", "explained" and "unexplained". A ledger is a list of `Line`s; worker
processes write one file each (`Ledger`), tests in one process append to one list. All times are readings of
CLOCK_BOOTTIME, so that they can be compared between the processes of one machine.

A second delivery of a message is *explained* only if the earlier one had ended in a way that may deliver
again: rolled back, or its lease was over by the holder's own count. After a commit that returned nothing is.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO

ATTEMPTED, ACKNOWLEDGED, REFUSED, UNKNOWN_PUSH = "attempted", "acknowledged", "refused", "unknown-push"
DELIVERED, COMMITTING, COMMITTED = "delivered", "committing", "committed"
EXPIRED, UNKNOWN_COMMIT = "expired", "unknown-commit"
ROLLING_BACK = "rolling-back"
CLOSING, TROUBLE, READY, DONE = "closing", "trouble", "ready", "done"
REAPED = "reaped"

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the reading that every line carries."""
    return time.clock_gettime(CLOCK)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened to one message.

    Attributes:
        at: when, by CLOCK_BOOTTIME.
        who: the worker.
        kind: one of the words above.
        body: what was pushed, unique in a history; empty for what is about no message.
        attempt: which delivery.
        until: when its lease ends for its holder.
        words: an error, for people.
    """

    at: float
    who: str
    kind: str
    body: str = ""
    attempt: int = 0
    until: float = 0.0
    words: str = ""


class Ledger:
    """One worker's file; a line is in it before `note` returns, whatever becomes of the process."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._who = who

    def note(self, kind: str, *bodies: str, attempt: int = 0, until: float = 0.0, words: str = "") -> None:
        at = now()
        lines = [json.dumps([at, self._who, kind, body, attempt, until, words]) for body in bodies or ("",)]
        os.write(self._file, ("\n".join(lines) + "\n").encode())


def read_ledger(path: Path) -> list[Line]:
    """Read a worker's lines; a last one that a kill cut short is dropped."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(_whole_lines(file))


def _whole_lines(file: IO[str]) -> Iterable[Line]:
    for text in file:
        if text.endswith("\n"):
            yield Line(*json.loads(text))


@dataclass(slots=True)
class Delivered:
    """One delivery, pieced together from its holder's lines.

    Attributes:
        until: when the lease ended for its holder, as known at the delivery: the lease may have been extended
            since, it never ended earlier, except by a rollback.
    """

    at: float
    who: str
    attempt: int
    until: float
    freed_at: float | None = None
    is_committing: bool = False
    is_committed: bool = False


@dataclass(slots=True)
class Verdict:
    """What the ledgers say, message by message.

    Attributes:
        attempted, acknowledged, refused, unknown: what pushers said.
        delivered, committed: messages, each counted once.
        maybe_committed: messages of which a commit was begun and nobody heard the end.
        lost: acknowledged, and neither committed nor perhaps committed.
        unexpected: delivered though never attempted, or though the push said that it did not happen.
        explained: deliveries after the first that a rollback or an ended lease explains.
        unexplained: the others, in words.
    """

    attempted: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    maybe_committed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    explained: int = 0
    unexplained: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"attempted {len(self.attempted)}, acknowledged {len(self.acknowledged)}, "
            f"refused {len(self.refused)}, unknown {len(self.unknown)}, delivered {len(self.delivered)}, "
            f"committed {len(self.committed)} (+ {len(self.maybe_committed)} perhaps), "
            f"lost {len(self.lost)}, unexpected {len(self.unexpected)}, "
            f"delivered again with a reason {self.explained}, without {len(self.unexplained)}"
        )

    def check(self) -> None:
        """Raise AssertionError unless nothing was lost, invented or delivered twice without a reason."""
        assert not self.lost, f"lost {sorted(self.lost)[:10]}; {self}"
        assert not self.unexpected, f"unexpected {sorted(self.unexpected)[:10]}; {self}"
        assert not self.unexplained, f"{self.unexplained[:5]}; {self}"


def judge(lines: Iterable[Line]) -> Verdict:
    """Check a history, of all workers, that was drained to its end."""
    verdict = Verdict()
    deliveries: dict[str, list[Delivered]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.at):
        _note(verdict, deliveries[line.body], line)
    for body, each in deliveries.items():
        if body:
            _judge_deliveries(verdict, body, each)
    verdict.lost = verdict.acknowledged - verdict.committed - verdict.maybe_committed
    verdict.unexpected = verdict.delivered - verdict.attempted | (verdict.delivered & verdict.refused)
    return verdict


def _note(verdict: Verdict, deliveries: list[Delivered], line: Line) -> None:
    sets = {
        ATTEMPTED: verdict.attempted,
        ACKNOWLEDGED: verdict.acknowledged,
        REFUSED: verdict.refused,
        UNKNOWN_PUSH: verdict.unknown,
        DELIVERED: verdict.delivered,
        COMMITTED: verdict.committed,
    }
    if line.kind in sets:
        sets[line.kind].add(line.body)
    if line.kind == DELIVERED:
        deliveries.append(Delivered(line.at, line.who, line.attempt, line.until))
        return
    for mine in deliveries:
        if (mine.who, mine.attempt) == (line.who, line.attempt):
            mine.is_committing |= line.kind == COMMITTING
            mine.is_committed |= line.kind == COMMITTED
            if line.kind == ROLLING_BACK:
                mine.freed_at = line.at


def _judge_deliveries(verdict: Verdict, body: str, each: list[Delivered]) -> None:
    if any(one.is_committing and not one.is_committed for one in each):
        verdict.maybe_committed.add(body)
    # By attempt: a holder that was frozen notes its delivery later than whoever came after it.
    each.sort(key=lambda one: (one.attempt, one.at))
    for before, after in pairwise(each):
        why = _objection(before, after)
        if why is None:
            verdict.explained += 1
        else:
            verdict.unexplained.append(
                f"{body}: {why}; {before.who} (attempt {before.attempt}) at {before.at:.3f} "
                f"until {before.until:.3f}, {after.who} (attempt {after.attempt}) at {after.at:.3f}"
            )


def _objection(before: Delivered, after: Delivered) -> str | None:
    if before.attempt == after.attempt:
        return "the same attempt twice"
    if before.is_committed:
        return "it was committed"
    if before.freed_at is not None and before.freed_at <= after.at:
        return None
    return "the lease was alive" if after.at < before.until else None
