"""What notes of attempts tell: whether one message of a key was worked on at a time, and in order.

Owns what counts as a violation, and its words. An attempt keeps its key until it was done, or the lease with
which it began was over: who goes on after that, frozen meanwhile, breaks nothing. Refuses to know who noted.
What must not break: what an attempt notes at its end counts for that attempt, whatever began since.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Message(NamedTuple):
    """A message, as its body tells.

    Attributes:
        pusher: who pushed it.
        number: the how manyeth of that pusher.
        key: the number of its key.
    """

    pusher: int
    number: int
    key: int


@dataclass(slots=True)
class Attempt:
    """One attempt at a message, by the clock of this machine.

    Attributes:
        process: whose.
        begun_ns: when it began.
        until_ns: when its lease was over, as it was when it began.
        done_ns: when it was done; None: never.
    """

    message: Message
    process: str
    begun_ns: int
    until_ns: int
    done_ns: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was done while its lease ran."""
        return self.done_ns is not None and self.done_ns < self.until_ns

    @property
    def ended_ns(self) -> int:
        """Until when its key was to be its own."""
        return self.until_ns if self.done_ns is None else min(self.done_ns, self.until_ns)

    def told(self, since_ns: int) -> str:
        """Tell of it, with times in milliseconds since then."""
        done = "never" if self.done_ns is None else _told_ms(self.done_ns - since_ns)
        message = f"message {self.message.number} of pusher {self.message.pusher}, key {self.message.key}"
        times = f"began {_told_ms(self.begun_ns - since_ns)}, leased to {_told_ms(self.until_ns - since_ns)}"
        return f"{message}: {self.process} {times}, done {done}"


@dataclass(slots=True)
class Verdict:
    """What became of the messages.

    Attributes:
        lost: nobody was done with them while his lease ran.
        overlaps: two attempts at messages of one key at a time, in words.
        inversions: a message that began before an earlier one of its key and pusher had ended, in words.
        again: messages with more than one attempt.
        late: attempts that were done after their lease.
    """

    lost: int
    overlaps: list[str] = field(default_factory=list)
    inversions: list[str] = field(default_factory=list)
    again: int = 0
    late: int = 0


def read_attempts(notes: Iterable[tuple[str, Sequence[bytes]]]) -> list[Attempt]:
    """Return the attempts that processes noted, the first one first.

    Args:
        notes: of each the process, and the words: "begin" or "done", pusher, number and key, when the attempt
            began, and until when it is leased, or when it was done.
    """
    attempts: dict[tuple[str, Message, int], Attempt] = {}
    for process, (what, *words) in notes:
        *message, begun_ns, at_ns = map(int, words)
        name = (process, Message(*message), begun_ns)
        if what == b"begin":
            attempts[name] = Attempt(name[1], process, begun_ns, at_ns)
        else:
            attempts[name].done_ns = at_ns
    return sorted(attempts.values(), key=lambda each: each.begun_ns)


def judge(attempts: Sequence[Attempt], pushed: int) -> Verdict:
    """Judge all attempts, in the order in which they began.

    Args:
        pushed: so many messages were.
    """
    since_ns = attempts[0].begun_ns if attempts else 0
    leased = [each for each in attempts if each.begun_ns < each.until_ns]
    by_message: dict[Message, list[Attempt]] = defaultdict(list)
    for each in leased:
        by_message[each.message].append(each)
    done = sum(any(each.is_done for each in tried) for tried in by_message.values())
    verdict = Verdict(pushed - done)
    verdict.again = sum(len(tried) > 1 for tried in by_message.values())
    verdict.late = sum(each.done_ns is not None and not each.is_done for each in attempts)
    last_of_key: dict[int, Attempt] = {}
    for each in leased:
        before = last_of_key.get(each.message.key)
        if before and each.begun_ns < before.ended_ns:
            verdict.overlaps.append(f"{before.told(since_ns)}; {each.told(since_ns)}")
        if not before or each.ended_ns > before.ended_ns:
            last_of_key[each.message.key] = each
    last_of_source: dict[tuple[int, int], Attempt] = {}
    for message, tried in sorted(by_message.items()):
        source = (message.pusher, message.key)
        earlier = last_of_source.get(source)
        if earlier and tried[0].begun_ns < earlier.ended_ns:
            verdict.inversions.append(f"{earlier.told(since_ns)}; {tried[0].told(since_ns)}")
        if not earlier or tried[-1].ended_ns > earlier.ended_ns:
            last_of_source[source] = tried[-1]
    return verdict


def _told_ms(spent_ns: int) -> str:
    return f"{spent_ns / 1e6:.3f} ms"
