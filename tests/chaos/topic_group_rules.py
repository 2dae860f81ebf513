"""What the members of a group must not be handed out, and must not commit: T3 of docs/topics.md.

Owns the rules of one partition of a group. Pure. What must not break: they rest on epochs and on what members
noted, and on no time but that a commit began when something later had been seen.

- In an epoch one member gets one offset after the other.
- A later epoch begins where all before it was worked on, and never before what an earlier one committed or
  began with.
- Nobody commits in an epoch once a message was handed out in a later one.
- A message is handed out again only where whoever had it died, or noted that the partition was lost, or had
  it come again.

A member notes that it works on a message before it says that it is done: so what is passed was noted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from cassq.verification.ledger import Kind, Line

LOST = "lost"
GAPS = "gaps"
BACK = "progress back"
TWICE = "twice"


class Gone:
    """Whose partitions went, and why, as it was noted."""

    def __init__(self) -> None:
        self._dead: set[str] = set()
        self._lost: set[tuple[str, str, int]] = set()
        self._frozen: defaultdict[str, list[float]] = defaultdict(list)

    def note(self, line: Line) -> None:
        if line.kind is Kind.DIED:
            self._dead.add(line.who)
        elif line.kind is Kind.CLOSING:
            self._frozen[line.who].append(line.at)
        elif line.kind is Kind.EXPIRED and not line.message:
            self._lost.add((line.who, line.pipe, line.attempt))

    def why(self, before: Line, after: Line) -> str:
        """Return why a message was handed out again; empty where nothing tells."""
        if (before.who, before.pipe, before.attempt) in self._lost:
            is_frozen = any(before.at <= at <= after.at for at in self._frozen[before.who])
            return "frozen member" if is_frozen else "lost claim"
        return "dead member" if before.who in self._dead else ""


class Owned:
    """One partition of a group, epoch by epoch.

    Args:
        told: by epoch, in their order, what its member noted.
    """

    def __init__(self, name: str, gone: Gone, told: Mapping[int, Sequence[Line]]) -> None:
        self._name = name
        self._gone = gone
        self._told = told
        self._worked: set[int] = set()
        self._had: dict[int, Line] = {}
        self._came_back: set[int] = set()  # and was not handed out again yet
        self._following = 1  # what is worked on without a gap ends before it
        self._begun = 1  # no epoch begins before it
        self.again: Counter[str] = Counter()

    def findings(self, end: int) -> Iterator[tuple[str, str]]:
        for epoch, lines in self._told.items():
            handed = [line for line in lines if line.kind is Kind.DELIVERED]
            if len({line.who for line in handed}) > 1:
                yield (
                    TWICE,
                    f"{self._name}: epoch {epoch} has members {sorted({each.who for each in handed})}",
                )
            if handed:
                yield from self._start(epoch, handed[0].seq)
            yield from self._epoch(lines)
            self._worked |= {line.seq for line in lines if line.kind is Kind.COMMITTING}
            while self._following in self._worked:
                self._following += 1
            committed = [line.seq + 1 for line in lines if line.kind is Kind.COMMITTED]
            self._begun = max([self._begun, *committed])
        yield from self._late_commits()
        if self._following < end:
            yield LOST, f"{self._name}: nobody worked on {self._following}, and the log ends at {end}"

    def _start(self, epoch: int, offset: int) -> Iterator[tuple[str, str]]:
        if offset > self._following:
            yield (
                LOST,
                f"{self._name}: epoch {epoch} begins at {offset}, with {self._following} not worked on",
            )
        if offset < self._begun:
            yield BACK, f"{self._name}: epoch {epoch} begins at {offset}, after {self._begun}"
        self._begun = max(self._begun, offset)

    def _epoch(self, lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
        following = None
        for line in lines:
            if line.kind is Kind.ROLLING_BACK and following is not None:
                self._came_back.update(range(line.seq, following))
                following = min(following, line.seq)
            if line.kind is not Kind.DELIVERED:
                continue
            if following is not None and line.seq > following:
                yield GAPS, f"{self._name}: {line.who} has {line.seq} after {following - 1}"
            yield from self._hand_out(line)
            following = line.seq + 1

    def _hand_out(self, line: Line) -> Iterator[tuple[str, str]]:
        before = self._had.get(line.seq)
        self._had[line.seq] = line
        if before is None:
            return
        why = "" if before.attempt == line.attempt else self._gone.why(before, line)
        if line.seq in self._came_back:
            why = "had it come again"
            self._came_back.remove(line.seq)
        if why:
            self.again[why] += 1
        else:
            first, then = (f"{each.who} (epoch {each.attempt}) at {each.at:.3f}" for each in (before, line))
            yield TWICE, f"{self._name}: {line.seq} came to {first}, and to {then}"

    def _late_commits(self) -> Iterator[tuple[str, str]]:
        """Yield commits that returned though they began once a later epoch was seen."""
        seen_at = float("inf")
        for epoch, lines in sorted(self._told.items(), reverse=True):
            begun = {line.seq: line.at for line in lines if line.kind is Kind.COMMITTING}
            late = [
                line
                for line in lines
                if line.kind is Kind.COMMITTED and begun.get(line.seq, line.at) > seen_at
            ]
            if late:
                what = f"{late[0].who} committed {late[0].seq} in epoch {epoch} at {late[0].at:.3f}"
                yield BACK, f"{self._name}: {what}, and a later one was seen at {seen_at:.3f}"
            seen_at = min([seen_at, *(line.at for line in lines if line.kind is Kind.DELIVERED)])
