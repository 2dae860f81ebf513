"""A crew over one topic: publishers, readers, members of groups, relays, and poppers of subscribed queues.

Owns who does what, and the end: when all is read, consumed and popped. What must not break: a worker that
takes another one's place does what that one did, and a writer goes on with its last number.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from crew import SEED, Crew, Member, reap_all, wait_until
from support.patience import patiently
from topic_reckoning import NUMBERED, History, TopicVerdict, judge_topic, of_type
from topic_workers import WRITER, read_lines
from workers import digest_of

import cassq
from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.observing.figures import QueueStats
from cassq.queue import Queue
from cassq.topics.topic import Topic
from cassq.verification.ledger import Kind, LedgerWriter, Line, read_ledger

PROGRAM = Path(__file__).with_name("topic_workers.py")

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Cast:
    """How many there are of each; of the publishers so many number what they publish."""

    partitions: int = 8
    publishers: int = 8
    writers: int = 3
    readers: int = 12
    groups: int = 3
    members: int = 4
    queues: int = 2
    relays: int = 2
    poppers: int = 2
    segment_kib: int = 128

    def posts(self) -> dict[str, list[str]]:
        """Return what there is to do, by role: the writer, the group, or the queue."""
        groups = [f"group{number}" for number in range(self.groups)]
        others = self.publishers - self.writers
        return {
            "publisher": [*(f"{WRITER}{number}" for number in range(self.writers)), *["anybody"] * others],
            "reader": ["all"] * self.readers,
            "consumer": groups * self.members,
            "relay": self.queues_of() * self.relays,
            "popper": self.queues_of() * self.poppers,
            "reaper": ["all"],
        }

    def queues_of(self) -> list[str]:
        """Return the ends of the names of the subscribed queues."""
        return list(_SUBSCRIBED)[: self.queues]


#: What a small machine has at work within half a minute.
SMALL = Cast(partitions=4, publishers=4, writers=2, readers=4, groups=2, members=3, relays=2, poppers=1)

#: The ends of the queues' names, with the types that each gets.
_SUBSCRIBED: Mapping[str, Collection[str] | None] = {"all": None, "orders": ("order.*",)}


@dataclass(frozen=True, slots=True)
class TopicReckoning:
    """What was found in the end.

    Attributes:
        verdict: of the ledgers.
        stats: of the queues, with how many messages each should have had.
        acknowledged: when publishes returned, sorted.
        trouble: what workers noted that should not have happened.
    """

    verdict: TopicVerdict
    stats: Mapping[str, tuple[QueueStats, int]]
    acknowledged: list[float]
    trouble: list[str]

    def broken(self) -> list[str]:
        """Return in words what is not as it was promised."""
        told = [
            f"queue {name} had {stats.pushed} messages, committed {stats.committed}, and {count} match"
            for name, (stats, count) in self.stats.items()
            if not stats.pushed == stats.committed == count
        ]
        return [*self.trouble, *self.verdict.broken(), *told]


@dataclass(slots=True)
class TopicCrew(Crew):
    """Workers over one topic, which has the name `queue`.

    Attributes:
        cast: how many there are.
        posts: what each worker does, by its name.
    """

    program: Path = PROGRAM
    cast: Cast = field(default_factory=Cast)
    posts: dict[str, str] = field(default_factory=dict)
    _vacant: dict[str, deque[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._vacant = {role: deque(posts) for role, posts in self.cast.posts().items()}
        with patiently(lambda: cassq.connect(self.url)) as store:
            patiently(partial(self._make, store))

    def _make(self, store: cassq.Store) -> None:
        cast = self.cast
        topic = store.topic(self.queue, partitions=cast.partitions, segment_bytes=cast.segment_kib * 1024)
        for end in cast.queues_of():
            store.queue(self._named(end), **self.settings)
            topic.declare_subscription(self._named(end), types=_SUBSCRIBED[end])

    def _named(self, end: str) -> str:
        return f"{self.queue}-{end}"

    # -- processes -------------------------------------------------------------------------------------

    def duties(self, role: str, who: str) -> list[str]:
        """Return what one worker is told."""
        post = self.posts[who] = self._vacant[role].popleft()
        name = self._named(post) if role in {"relay", "popper"} else post
        return ["--topic", self.queue, "--queue", name, "--begin", str(self._last_number(post))]

    def _last_number(self, post: str) -> int:
        """Return the last number that a writer knows to be published: it repeats that one."""
        of_post = [each for each in self.former if self.posts[each.who] == post]
        told = [
            int(line.message.rpartition("-")[2])
            for each in (of_post if post.startswith(WRITER) else ())
            for line in each.lines()
            if line.kind is Kind.ACKNOWLEDGED
        ]
        return max(told, default=0)

    def kill(self, member: Member) -> None:
        """End a process at once; whoever is started next in its role takes its place."""
        Crew.kill(self, member)
        self._vacant[member.role].append(self.posts[member.who])

    def start_cast(self) -> None:
        """Start everybody, and wait until all work."""
        for role, posts in self._vacant.items():
            self.start(role, len(posts))
        for each in self.members:
            wait_until(lambda m=each: m.count(Kind.READY), f"{each.who} is ready")
        self.await_more(Kind.ACKNOWLEDGED, "publisher")
        self.await_more(Kind.DELIVERED, "reader")
        self.await_any(Kind.DELIVERED, "consumer")
        self.await_any(Kind.COMMITTED, "popper")

    # -- the end ---------------------------------------------------------------------------------------

    def reckon_topic(self) -> TopicReckoning:
        """Thaw everybody, stop who publishes, wait until all is read and consumed, and judge it."""
        for each in self.members:
            each.thaw()
        self._stop("publisher")
        last = self.folder / "last.ledger"
        with patiently(lambda: cassq.connect(self.url)) as store:
            topic = patiently(lambda: store.find_topic(self.queue))
            queues = {end: patiently(partial(store.queue, self._named(end))) for end in self.cast.queues_of()}
            ends = _mark_ends(topic, LedgerWriter(self.folder / "ends.ledger", "ends"))
            _read_all(topic, ends, LedgerWriter(last, "last"))
            self._await_end(topic, queues.values())
            for role in ("reader", "consumer", "relay", "popper", "reaper"):
                self._stop(role)
            for queue in queues.values():
                reap_all(store, queue)
            stats = {end: patiently(queue.stats) for end, queue in queues.items()}
        log = list(read_ledger(last))
        history = self._history(log, ends)
        verdict = judge_topic(history)
        told = self._lines()
        return TopicReckoning(
            verdict,
            {end: (each, _matching(log, end)) for end, each in stats.items()},
            sorted(line.at for line in history.published if line.kind is Kind.ACKNOWLEDGED),
            [f"{line.who}: {line.words}" for line in told if line.kind is Kind.TROUBLE],
        )

    def _stop(self, role: str) -> None:
        for each in self.of(role):
            self.await_lines(each, Kind.READY, 1)
            each.stop()
        for each in self.of(role):
            each.await_stopped()
            assert each.count(Kind.DONE) == 1, f"{each.who} did not say that it is done"

    @staticmethod
    def _await_end(topic: Topic, queues: Collection[Queue]) -> None:
        for group in patiently(topic.groups):
            wait_until(
                lambda g=group: not any(each.lag for each in patiently(partial(topic.lag, g))),
                f"{group} is at the end of the log",
            )
        for queue in queues:
            wait_until(partial(_is_empty, queue), f"queue {queue.name} is empty")

    def _lines(self, role: str = "", post: str = "") -> list[Line]:
        everybody = [*self.members, *self.former]
        meant = [
            each
            for each in everybody
            if role in {"", each.role} and (not post or self.posts[each.who] == post)
        ]
        names = {each.who for each in meant}
        deaths = [line for line in self.deaths if line.who in names]
        return [line for each in meant for line in (*each.lines(), *each.freezes)] + deaths

    def _history(self, log: list[Line], ends: Mapping[int, int]) -> History:
        readers = [each for each in [*self.members, *self.former] if each.role == "reader"]
        groups = [f"group{number}" for number in range(self.cast.groups)]
        return History(
            [*self._lines("publisher"), *read_ledger(self.folder / "ends.ledger")],
            log,
            ends,
            {each.who: each.lines() for each in readers},
            {group: self._lines("consumer", group) for group in groups},
            {end: (_SUBSCRIBED[end], self._lines("popper", end)) for end in self.cast.queues_of()},
        )


@contextmanager
def topic_crew(url: str, folder: Path, **options: Any) -> Iterator[TopicCrew]:
    """Give a run a crew, and take every process away from it in the end."""
    made = TopicCrew(url, folder, SEED, **options)
    try:
        yield made
    finally:
        made.end()


def _mark_ends(topic: Topic, ledger: LedgerWriter) -> dict[int, int]:
    """Publish what is last in each partition, so that nothing of before can land any more."""
    ends = {}
    for partition in range(topic.partitions):
        name = f"end{partition}-0"
        line = Line(
            *(ledger.now(), ledger.who, Kind.ATTEMPTED, name),
            digest=digest_of(name.encode(), {}),
            words=NUMBERED,
        )
        ledger.append([line])
        publish = partial(topic.publish, name.encode(), writer="end", number=0, partition=partition)
        ends[partition] = patiently(publish).offset + 1
        ledger.append([replace(line, kind=Kind.ACKNOWLEDGED)])
    return ends


def _read_all(topic: Topic, ends: Mapping[int, int], ledger: LedgerWriter) -> None:
    """Read from the begin to the end."""
    with patiently(lambda: topic.reader("earliest")) as reader:

        def is_through() -> bool:
            try:
                ledger.append(read_lines(ledger, reader.read_many(_PAGE, 0.5)))
            except (UnavailableError, OutcomeUnknownError):
                return False
            return all(reader.positions[each] >= end for each, end in ends.items())

        wait_until(is_through, "the log is read to its end")


def _is_empty(queue: Queue) -> bool:
    stats = patiently(queue.stats)
    return stats.waiting == stats.pending == stats.delayed == 0


def _matching(log: list[Line], end: str) -> int:
    return sum(of_type(_SUBSCRIBED[end], line.words) for line in log)
