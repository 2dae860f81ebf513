"""Whether the demo's promises held: counted from what the processes wrote down.

Owns the counting; pure. What must not break: it trusts no figure of the queue's own where a ledger tells.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import cassq
from cassq.cli.demo_ledger import Event


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was counted.

    Attributes:
        expected: messages that should have been pushed.
        pushed, committed: different messages that were.
        lost: pushed, and never committed.
        duplicates: delivered again without a rollback, or committed twice.
        damaged: deliveries whose body is not the one that was pushed.
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
    events: Iterable[Event],
    *,
    held: frozenset[str],
    held_in_hand: int,
) -> Verdict:
    """Count what all processes wrote down.

    Args:
        expected: messages that should have been pushed.
        events: of all processes.
        held: ids of the messages that the killed popper had taken, as the store told after its death.
        held_in_hand: how many it had handed out without a commit, as its ledger tells.
    """
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        by_kind.setdefault(event.kind, []).append(event)
    pushed = {event.of: event.what for event in by_kind.get("pushed", ())}
    popped = by_kind.get("popped", [])
    committed = Counter(event.of for event in by_kind.get("committed", ()))
    unsettled = {event.of for event in by_kind.get("unsettled", ())}
    again = {event.of for event in popped if event.attempt > 1}
    verdict = Verdict(
        expected=expected,
        pushed=len(pushed),
        committed=len(committed.keys() | unsettled),
        lost=len(pushed.keys() - committed.keys() - unsettled),
        duplicates=_count_duplicates(popped, by_kind.get("committed", [])),
        damaged=sum(pushed.get(event.of) != event.what for event in popped),
        held=len(held),
        held_in_hand=held_in_hand,
        redelivered=len(again & held),
        overrun=len(again - held),
    )
    verdict.broken.extend(_broken(verdict))
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


def _count_duplicates(popped: list[Event], committed: list[Event]) -> int:
    """Count deliveries that repeat an attempt or come after the commit, and commits that come twice."""
    committed_at: dict[str, float] = {}
    for event in sorted(committed, key=lambda event: event.at):
        committed_at.setdefault(event.of, event.at)
    late = sum(event.at > committed_at.get(event.of, float("inf")) for event in popped)
    repeated = len(popped) - len({(event.of, event.attempt) for event in popped})
    return late + repeated + len(committed) - len(committed_at)


def _broken(verdict: Verdict) -> list[str]:
    broken = []
    if not verdict.expected == verdict.pushed == verdict.committed:
        broken.append(
            f"{verdict.expected} files, {verdict.pushed} pushed, {verdict.committed} committed: not the same"
        )
    if verdict.lost:
        broken.append(f"{verdict.lost} messages were lost")
    if verdict.duplicates:
        broken.append(f"{verdict.duplicates} duplicates without a rollback")
    if verdict.damaged:
        broken.append(f"{verdict.damaged} bodies are not what was pushed")
    if verdict.redelivered != verdict.held:
        broken.append(f"the killed popper held {verdict.held} messages, {verdict.redelivered} came again")
    if not verdict.held_in_hand:
        broken.append("the popper was killed with nothing in its hands: the run shows nothing")
    return broken
