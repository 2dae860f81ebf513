"""What is found when everything has come to its end, and whether it is as it was promised.

Owns the rules that compare the ledgers' verdict with the queue's own totals. Refuses to read either. What
must not break: every figure is held to be exact; only a push whose outcome nobody heard leaves room.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cassq.observing.figures import QueueStats
from cassq.verification.ledger import Kind, Line
from cassq.verification.verdict import Verdict

#: What is noted of a dead letter: it is about to be put back or discarded; it was.
LEAVING, GONE = "leaving", "gone"

#: Behind this the name of a message tells its key.
KEY = "@"

#: Behind this it tells how many milliseconds after its push it was to come.
DELAY = "+"

#: A due time is kept in whole milliseconds, and so is each reading of the database's clock.
ROUNDING_S = 0.002

#: What the words of messages begin with that are written together, all or none.
BATCH = "batch "


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What was found in the end."""

    verdict: Verdict
    stats: QueueStats
    lines: list[Line]

    def broken(self) -> list[str]:
        """Return in words what is not as it was promised, and each figure that is not exactly right."""
        verdict, stats = self.verdict, self.stats
        trouble = [f"{line.who}: {line.words}" for line in self.lines if line.kind == Kind.TROUBLE]
        # What a killed pusher had on its way has no outcome in its ledger.
        heard = verdict.acknowledged | verdict.refused | verdict.unknown
        open_ended = len(verdict.unknown) + len(verdict.attempted - heard)
        ended = verdict.committed | (verdict.maybe_committed - verdict.dead)
        left = (stats.waiting, stats.pending, stats.delayed, stats.pipes)
        rules = {
            "pushed is not what was acknowledged": (
                len(verdict.acknowledged) <= stats.pushed <= len(verdict.acknowledged) + open_ended
            ),
            "pushed and popped differ, or what was committed and what died": (
                stats.pushed == stats.popped == stats.committed + stats.dead
            ),
            "committed is not what the ledgers tell": stats.committed == len(ended),
            "dead is not what the ledgers tell": stats.dead == len(verdict.dead),
            "waiting, pending, delayed and pipes are not all 0": not any(left),
            "something was delivered, and neither committed nor buried": (
                verdict.delivered <= ended | verdict.dead
            ),
        }
        broken = [*verdict.broken(), *broken_keys(self.lines), *broken_dues(self.lines)]
        return [*trouble, *broken, *(what for what, is_so in rules.items() if not is_so)]


def broken_keys(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what came while another message of its key was in somebody's hands, and what came out of order.

    A delivery that was noted once its lease had ended is in nobody's hands. A consumer lets go of a message
    when it begins to end it, or when its lease ends. Those of one pusher and one key are in order.
    """
    told: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        _, _, key = line.message.partition(KEY)
        if key:
            told[key].append(line)
    for key, of_key in told.items():
        held: dict[tuple[str, int], float] = {}
        came: dict[str, int] = {}
        for line in sorted(of_key, key=lambda line: line.at):
            place = line.message, line.attempt
            if line.kind is Kind.DELIVERED and line.at < line.until:
                others = [each for each, until in held.items() if line.at < until and each[0] != line.message]
                if others:
                    yield f"{line.message} came to {line.who} at {line.at:.3f} beside {others} of {key}"
                pusher, _, number = line.message.partition(KEY)[0].rpartition("-")
                if int(number) < came.get(pusher, -1):
                    yield f"{line.message} came to {line.who} at {line.at:.3f} after {came[pusher]} of {key}"
                came[pusher] = max(int(number), came.get(pusher, -1))
                held[place] = line.until
            elif line.kind is Kind.EXTENDED and place in held:
                held[place] = line.until
            elif line.kind in {Kind.COMMITTING, Kind.ROLLING_BACK}:
                held.pop(place, None)


def broken_dues(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what came before its time, where all clocks are one machine's: its delay counts from its push."""
    pushed_at = {line.message: line.at for line in lines if line.kind is Kind.ATTEMPTED}
    for line in lines:
        _, _, delay_ms = line.message.partition(DELAY)
        if line.kind is Kind.DELIVERED and delay_ms:
            early_s = pushed_at[line.message] + int(delay_ms) / 1000 - ROUNDING_S - line.at
            if early_s > 0:
                yield f"{line.message} came to {line.who} {early_s:.3f} s before it was due"


def broken_letters(lines: Sequence[Line], finder: str) -> Iterator[str]:
    """Yield the dead letters of a history that are not where they were left.

    Args:
        finder: the name of the one that looked at them in the end.
    """
    pushed = {line.message for line in lines if line.kind is Kind.ATTEMPTED}
    delivered = {line.message for line in lines if line.kind is Kind.DELIVERED}
    letters = [line for line in lines if line.kind is Kind.DEAD_LETTER]
    found = {line.message for line in letters if line.who == finder}
    told: defaultdict[str, set[str]] = defaultdict(set)
    for line in letters:
        told[line.message].add(line.words)
    for message, words in told.items():
        if message in found:
            if GONE in words:
                yield f"dead letter {message} came back"
            continue
        again = f"{message} again"
        if LEAVING not in words or (again in pushed and again not in delivered | found):
            yield f"dead letter {message} is gone"


def broken_batches(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the bulk writes of a history of which a part was delivered."""
    delivered = {line.message for line in lines if line.kind is Kind.DELIVERED}
    batches: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line.kind is Kind.ATTEMPTED and line.words.startswith(BATCH):
            batches[line.words].add(line.message)
    for name, messages in batches.items():
        if 0 < len(messages & delivered) < len(messages):
            yield f"of {name} only {sorted(messages & delivered)} came"
