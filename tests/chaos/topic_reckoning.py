"""What ledgers must not tell of a topic: T1 to T6 of docs/topics.md, as who uses it sees them.

Owns the rules. Pure: it reads no file and no clock; times are those of the ledgers, which are one machine's.
What must not break: nothing is excused but by what somebody noted.

- **Publishing.** What was acknowledged is in the log, at the place that was told: once for each time, and
  with a number once for all. More copies than that have an outcome that nobody knows, each. What was refused
  is not there. What one author published into one partition is in its order.
- **Reading.** Who begins at offset 1 gets 1, 2, 3 … of each partition, and all the same bytes.
- **Groups.** See `topic_group_rules`.
- **Queues.** Each message that matches is pushed at one place, and those of a partition in their order; what
  becomes of it there is judged as in any queue.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from uuid import UUID

from topic_group_rules import BACK, GAPS, LOST, TWICE, Gone, Owned

from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, Line

CONTENTS = "two contents"
ORDER = "out of order"
INVENTED = "invented"

#: What is counted, in the order in which it is told.
FINDINGS = (LOST, GAPS, CONTENTS, BACK, TWICE, ORDER, INVENTED)

#: Of each kind so many are named.
_NAMED = 8

#: The words of a publish whose number its writer had.
NUMBERED = "numbered"

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class History:
    """All that was noted of one topic.

    Attributes:
        published: by publishers, in any order of them.
        log: what a reader got from offset 1 on, once all was over.
        ends: the offset that each partition would give next by then.
        readings: the same of every reader, also of those that were killed on the way.
        groups: by members, with their deaths and the times when they were frozen.
        queues: by poppers of each queue, whose messages are named by their place; with the types that the
            queue is subscribed to, None for all.
    """

    published: Sequence[Line]
    log: Sequence[Line]
    ends: Mapping[int, int]
    readings: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    queues: Mapping[str, tuple[Collection[str] | None, Sequence[Line]]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicVerdict:
    """What was found.

    Attributes:
        findings: in words, by kind.
        again: what members were handed out after the first time, by the reason for it.
        unknown, refused: publishes that ended so.
    """

    findings: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    again: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    unknown: int = 0
    refused: int = 0

    def count(self, kind: str) -> int:
        """Return how many of a kind were found."""
        return len(self.findings.get(kind, ()))

    def broken(self) -> list[str]:
        """Return what was found in words, with the first few of each kind; none is good."""
        return [
            f"{kind} {len(found)}: {'; '.join(found[:_NAMED])}{' …' if len(found) > _NAMED else ''}"
            for kind, found in self.findings.items()
            if found
        ]


def judge_topic(history: History) -> TopicVerdict:
    """Judge a history that was read, consumed and popped to its end."""
    return _Judge(history).verdict()


def place_of(line: Line) -> Place:
    """Return partition and offset."""
    return int(line.pipe), line.seq


def of_type(types: Collection[str] | None, given: str) -> bool:
    """Tell whether a queue with some types gets a message of one."""
    return types is None or any(fnmatchcase(given, each) for each in types)


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        self._verdict = TopicVerdict(messages=len(history.log))
        self._log = {place_of(line): line for line in history.log}

    def verdict(self) -> TopicVerdict:
        history = self._history
        self._judge_reading("the log", history.log, is_whole=True)
        for who, lines in history.readings.items():
            is_whole = any(line.kind is Kind.DONE for line in lines)
            self._judge_reading(who, lines, is_whole=is_whole)
        self._judge_published()
        for name, lines in history.groups.items():
            self._judge_group(name, lines)
        for name, (types, lines) in history.queues.items():
            self._judge_queue(name, types, lines)
        return self._verdict

    def _find(self, kind: str, words: str) -> None:
        self._verdict.findings[kind].append(words)

    # -- readers ---------------------------------------------------------------------------------------

    def _judge_reading(self, who: str, lines: Sequence[Line], *, is_whole: bool) -> None:
        following: defaultdict[int, int] = defaultdict(lambda: 1)
        for line in lines:
            if line.kind is not Kind.DELIVERED:
                continue
            partition, offset = place_of(line)
            if offset > following[partition]:
                self._find(GAPS, f"{who} has {partition}:{offset} after {following[partition] - 1}")
            elif offset < following[partition]:
                self._find(TWICE, f"{who} has {partition}:{offset} after {following[partition] - 1}")
            following[partition] = max(following[partition], offset + 1)
            self._compare(who, line)
        for partition, end in self._history.ends.items() if is_whole else ():
            if following[partition] != end:
                self._find(LOST, f"{who} ends at {partition}:{following[partition]}, and the log at {end}")

    def _compare(self, who: str, line: Line) -> None:
        """Compare what somebody got with the log."""
        partition, offset = place_of(line)
        found = self._log.get((partition, offset))
        if found is None:
            self._find(LOST, f"{who} has {partition}:{offset} {line.message}, which is not in the log")
        elif (found.message, found.digest) != (line.message, line.digest):
            self._find(
                CONTENTS, f"{partition}:{offset} is {line.message} for {who}, and {found.message} in the log"
            )

    # -- publishers ------------------------------------------------------------------------------------

    def _judge_published(self) -> None:
        copies = Counter(line.message for line in self._history.log)
        tries: defaultdict[str, Counter[Kind]] = defaultdict(Counter)
        digests: dict[str, str] = {}
        numbered: set[str] = set()
        for line in self._history.published:
            if line.kind in {Kind.ATTEMPTED, Kind.ACKNOWLEDGED, Kind.REFUSED, Kind.UNKNOWN_PUSH}:
                tries[line.message][line.kind] += 1
                digests[line.message] = line.digest
            if line.kind is Kind.ATTEMPTED and line.words == NUMBERED:
                numbered.add(line.message)
            elif line.kind is Kind.ACKNOWLEDGED and line.pipe:
                self._compare(line.who, line)
        for name, ends in tries.items():
            self._judge_copies(name, ends, copies[name], is_numbered=name in numbered)
        for line in self._history.log:
            if line.message not in tries:
                self._find(INVENTED, f"{line.message} was never published")
            elif line.digest != digests[line.message]:
                self._find(CONTENTS, f"{line.message} has other bytes than were published")
        self._judge_order()

    def _judge_copies(self, name: str, ends: Counter[Kind], copies: int, *, is_numbered: bool) -> None:
        told, refused = ends[Kind.ACKNOWLEDGED], ends[Kind.REFUSED]
        # What a killed publisher had on its way has no outcome in its ledger.
        unknown = ends[Kind.ATTEMPTED] - told - refused
        self._verdict.unknown += unknown
        self._verdict.refused += refused
        least, most = told, told + unknown
        if is_numbered:
            least, most = min(least, 1), min(most, 1)
        if copies < least:
            self._find(LOST, f"{name} was acknowledged {told} times, and is in the log {copies} times")
        elif copies > most:
            kind = TWICE if most else INVENTED
            self._find(kind, f"{name} is in the log {copies} times: {dict(ends)}")

    def _judge_order(self) -> None:
        last: dict[tuple[int, str], int] = {}
        for line in self._history.log:
            author, _, number = line.message.rpartition("-")
            key = (place_of(line)[0], author)
            if int(number) < last.get(key, 0):
                self._find(ORDER, f"{line.message} is behind {author}-{last[key]} in partition {key[0]}")
            last[key] = max(int(number), last.get(key, 0))

    # -- groups ----------------------------------------------------------------------------------------

    def _judge_group(self, name: str, lines: Sequence[Line]) -> None:
        told: defaultdict[int, defaultdict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
        gone = Gone()
        for line in lines:
            if line.pipe:
                told[int(line.pipe)][line.attempt].append(line)
            gone.note(line)
        for partition, end in self._history.ends.items():
            owned = Owned(f"{name} {partition}", gone, dict(sorted(told[partition].items())))
            for kind, words in owned.findings(end):
                self._find(kind, words)
            self._verdict.again += owned.again
        for line in lines:
            if line.kind is Kind.DELIVERED:
                self._compare(line.who, line)

    # -- queues ----------------------------------------------------------------------------------------

    def _judge_queue(self, name: str, types: Collection[str] | None, lines: Sequence[Line]) -> None:
        begun = {line.message: line.at for line in self._history.published if line.kind is Kind.ATTEMPTED}
        pushed = [
            Line(begun.get(line.message, 0.0), name, kind, f"{line.pipe}:{line.seq}", digest=line.digest)
            for line in self._history.log
            if of_type(types, line.words)
            for kind in (Kind.ATTEMPTED, Kind.ACKNOWLEDGED)
        ]
        verdict = judge([*pushed, *lines])
        found = {
            LOST: sorted(verdict.lost),
            CONTENTS: sorted(verdict.damaged),
            TWICE: verdict.unexplained,
            ORDER: verdict.reordered,
            INVENTED: sorted(verdict.unexpected),
        }
        for kind, each in found.items():
            self._verdict.findings[kind] += [f"{name}: {words}" for words in each]
        self._judge_pushes(name, lines)

    def _judge_pushes(self, name: str, lines: Sequence[Line]) -> None:
        """Hold the places of what relays pushed against the log: its pipes, one after the other."""
        places: defaultdict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        for line in lines:
            if line.kind is Kind.DELIVERED and line.pipe:
                partition, _, offset = line.message.partition(":")
                places[int(partition)][UUID(line.pipe).time, line.seq] = int(offset)
        for partition, found in places.items():
            last = 0
            for _, offset in sorted(found.items()):
                if offset < last:
                    self._find(ORDER, f"{name}: {partition}:{offset} was pushed behind {partition}:{last}")
                last = max(last, offset)
