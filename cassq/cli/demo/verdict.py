"""Whether the demo's promises held: counted from what the processes wrote down.

Owns what only the demo promises: that all files came through, and that what the killed popper held came
again; `cassq.verification.checker` judges the rest. Pure. What must not break: it trusts no figure of the
queue's own where a ledger tells.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import cassq
from cassq.verification import checker
from cassq.verification.ledger import Kind, Line


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was counted.

    Attributes:
        expected: messages that should have been pushed.
        pushed, committed: different messages that were, or perhaps were.
        lost: pushed, and never committed.
        duplicates: delivered again without a rollback, or committed twice.
        damaged: messages whose body did not arrive as it was pushed.
        held: messages that the killed popper had taken and not committed.
        held_in_hand: those of them that it had handed out; the others were in its buffer.
        redelivered: of these, how many came again.
        overrun: other messages that came again: their lease ran out in a popper that lives.
        broken: promises that did not hold, in words.
    """

    expected: int
    pushed: int
    committed: int
    lost: int
    duplicates: int
    damaged: int
    held: int
    held_in_hand: int
    redelivered: int
    overrun: int
    broken: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def judge(
    expected: int,
    lines: Iterable[Line],
    *,
    held: frozenset[str],
    held_in_hand: int,
) -> Verdict:
    """Count what all processes wrote down.

    Args:
        expected: messages that should have been pushed.
        lines: of all processes.
        held: ids of the messages that the killed popper had taken, as the store told after its death.
        held_in_hand: how many it had handed out without a commit, as its ledger tells.
    """
    lines = list(lines)
    found = checker.judge(lines)
    again = {line.message for line in lines if line.kind is Kind.DELIVERED and line.attempt > 1}
    verdict = Verdict(
        expected=expected,
        pushed=len(found.acknowledged),
        committed=len(found.committed | found.maybe_committed),
        lost=len(found.lost),
        duplicates=len(found.unexplained),
        damaged=len(found.damaged),
        held=len(held),
        held_in_hand=held_in_hand,
        redelivered=len(again & held),
        overrun=len(again - held),
    )
    verdict.broken.extend([*_broken(verdict), *found.broken()])
    return verdict


def judge_stats(stats: cassq.QueueStats, expected: int) -> list[str]:
    """Return where the queue's own figures differ from what happened, in words."""
    broken = [
        f"the queue counts {getattr(stats, name)} {name}, not {expected}"
        for name in ("pushed", "popped", "committed")
        if getattr(stats, name) != expected
    ]
    broken += [
        f"the queue still counts {getattr(stats, name)} {name}"
        for name in ("waiting", "pending", "delayed", "dead")
        if getattr(stats, name)
    ]
    return broken


def _broken(verdict: Verdict) -> list[str]:
    broken = []
    if not verdict.expected == verdict.pushed == verdict.committed:
        broken.append(
            f"{verdict.expected} files, {verdict.pushed} pushed, {verdict.committed} committed: not the same"
        )
    if verdict.redelivered != verdict.held:
        broken.append(f"the killed popper held {verdict.held} messages, {verdict.redelivered} came again")
    if not verdict.held_in_hand:
        broken.append("the popper was killed with nothing in its hands: the run shows nothing")
    return broken
