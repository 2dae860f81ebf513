"""One simulated history of a topic: publishers, readers, members of a group, and operators.

Owns who is there, what happens to them, and what must be true in the end. What must not break: a history
depends on its seed alone.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import scheduler
import threads
from cluster import Cluster, Odds
from ensemble import Ensemble, Seat, SeatOdds
from history import ProcessClock
from lessor_actors import Ledger, LessorPlan, LessorWatch, draw_lessors
from relay_actors import RelayPlan, RelayWatch, draw_relays, flowing, parts_of
from replicas import Mutation
from scheduler import Process, SimulationError, World
from session import SimulatedSession

from cassq.errors import (
    CassqError,
    OffsetGoneError,
    OutcomeUnknownError,
    PartitionLostError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.limits import KIB
from cassq.model.topic import partition_of
from cassq.runtime.background_thread import AnsweredFuture
from cassq.storage.cassandra import topics
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.storage.cassandra.topic_statements import BATCH_KIND
from cassq.store import Adapters, Store
from cassq.topics import offer_watch, publish_request, shared_end, spreading
from cassq.topics.group_message import GroupMessage
from cassq.topics.topic import Topic

#: Faults last so long, and then all has so long to be read, and consumed.
FAULTS_S = 5.0
HEALED_S = 60.0

#: A segment holds a few of these.
BODY_BYTES = 150

GROUP = "g"

#: Who stood still hears so much later what became of a publish.
LATE_S = 4.0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What is drawn for one history.

    Attributes:
        clears: how often all is deleted that was published until then.
        resets: how often the group is sent back to the oldest offset.
        deleted_at: when the topic is deleted; 0 for never.
        blows: when which process is struck, and how.
        again: how likely a member has a message handed out again.
        is_large: whether each batch is too large for the row of its link.
        together: how likely what has a number is several messages, which are more than one batch.
        crowd: whether more publish, without a pause, so that they let one of them link.
        lessors: who lends the group's messages to clients.
    """

    seed: int
    partitions: int
    publishers: int
    messages: int
    readers: int
    members: int
    clears: int
    resets: int
    deleted_at: float
    again: float
    is_large: bool
    commit: str
    timeout_s: float
    preempt: float
    skews_ms: tuple[int, ...]
    odds: Odds
    seat_odds: SeatOdds
    is_generous: bool
    blows: tuple[tuple[float, str, int, str, float], ...]
    relays: RelayPlan
    together: float
    crowd: bool = False
    lessors: LessorPlan = field(default_factory=LessorPlan)


def draw_topic(seed: int, *, has_relays: bool = False, has_journal: bool = False) -> TopicPlan:
    """Return the plan of a seed; with a queue that is subscribed, which keeps a journal, or without one."""
    dice = random.Random(f"topic {seed}")
    faults = {
        kind: dice.random() * most
        for kind, most in {
            "stall": 0.2,
            "never": 0.1,
            "reply_lost": 0.2,
            "refused": 0.1,
            "late": 0.3,
            "partial": 0.2,
            "torn": 0.3,
            "crash": 0.005,
            "freeze": 0.01,
        }.items()
        if dice.random() < 0.4
    }
    publishers, members = dice.choice((1, 2, 3)), dice.choice((0, 1, 2, 3))
    relays = draw_relays(seed) if has_relays or has_journal else RelayPlan()
    if has_journal:
        relays = replace(relays, has_journal=True, reapers=3)
    roles = {"publisher": publishers, "member": members}
    if relays.relays:
        roles |= {"relay": relays.relays, "popper": relays.poppers}
        roles |= {"reaper": relays.reapers} if has_journal else {}
    blows = []
    for _ in range(dice.choice((0, 0, 1, 2, 4))):
        role = dice.choice([role for role, count in roles.items() if count])
        how = dice.choice(("crash", "freeze", "session"))
        blows.append(
            (dice.random() * 3, role, dice.randrange(roles[role]), how, dice.choice((0.2, 1.0, 4.0)))
        )
    crowd = random.Random(f"crowd {seed}").random() < 0.4
    plan = TopicPlan(
        seed,
        partitions=dice.choice((1, 1, 2, 3)) if not crowd else min(1, dice.choice((1, 1, 2, 3))),
        publishers=publishers + 3 * crowd,
        messages=dice.choice((4, 8, 20)),
        readers=dice.choice((1, 2)),
        members=members,
        clears=dice.choice((0, 0, 1, 3)),
        resets=dice.choice((0, 0, 1, 2)) if members else 0,
        deleted_at=dice.choice((0.0, 0.0, 0.0, 0.0, dice.random() * 2)) * (not has_journal),
        again=dice.choice((0.0, 0.0, 0.2)),
        is_large=dice.random() < 0.3,
        commit=dice.choice(("grouped", "each", "manual")),
        timeout_s=dice.choice((0.1, 0.25, 0.7)),
        preempt=dice.choice((0.02, 0.1, 0.3)),
        skews_ms=tuple(dice.randrange(50) if dice.random() < 0.4 else 0 for _ in range(3)),
        odds=Odds(
            **faults,
            slow_replica=dice.choice((0.0, 0.3, 0.8)),
            missed=dice.choice((0.0, 0.5, 1.0)),
            stall_s=dice.choice((0.2, 0.7, 2.0)),
            late_s=dice.choice((0.2, 0.7, 2.0)),
        ),
        seat_odds=SeatOdds(
            refused=dice.choice((0.0, 0.1)),
            wake_lost=dice.choice((0.0, 0.5)),
            notice_s=dice.choice((0.1, 1.5)),
            doubted=dice.choice((0.0, 0.1)),
        ),
        is_generous=dice.random() < 0.3,
        blows=tuple(sorted(blows)),
        relays=relays,
        together=random.Random(f"together {seed}").choice((0.0, 0.0, 0.0, 0.7)),
        crowd=crowd,
    )
    return plan if has_relays or has_journal else _with_lessors(plan, draw_lessors(seed))


def _with_lessors(plan: TopicPlan, lessors: LessorPlan) -> TopicPlan:
    if lessors.is_alone:
        plan = replace(plan, members=0, blows=tuple(each for each in plan.blows if each[1] != "member"))
    if not lessors.is_calm:
        return replace(plan, lessors=lessors, blows=tuple(sorted((*plan.blows, *lessors.blows))))
    calm = {"clears": 0, "resets": 0, "deleted_at": 0.0, "is_generous": False, "blows": ()}
    return replace(plan, lessors=lessors, odds=Odds(), seat_odds=SeatOdds(), **calm)  # type: ignore[arg-type]


@dataclass(slots=True)
class TopicOutcome:
    """How a history ended; the names are those of `history.Outcome`."""

    plan: TopicPlan
    broken: list[str]
    seconds: float = 0.0
    requests: int = 0
    trace: list[tuple[float, str, Any]] = field(default_factory=list)


def run_topic(plan: TopicPlan, *, is_traced: bool = False) -> TopicOutcome:
    """Run one history and judge it."""
    world = World(f"topic {plan.seed}", preempt=plan.preempt)
    scheduler.enter(world)
    history = _History(plan, world, is_traced=is_traced)
    init = AnsweredFuture.__init__
    small, topics._SMALL = topics._SMALL, 0 if plan.is_large else topics._SMALL
    most = publish_request.BATCH_MESSAGES_MAX
    patience = offer_watch.PATIENCE_S
    try:
        offer_watch.PATIENCE_S = 0.3  # publishes here have a second or two
        shared_end.IS_ON = True
        if plan.together:
            publish_request.BATCH_MESSAGES_MAX = spreading.BATCH_MESSAGES_MAX = 2
        threads.install()
        AnsweredFuture.__init__ = _with_condition(init)  # type: ignore[method-assign]
        with flowing(plan.relays, world):
            history.play()
        return TopicOutcome(plan, history.broken, world.now, history.cluster.requests, history.trace)
    finally:
        AnsweredFuture.__init__ = init  # type: ignore[method-assign]
        topics._SMALL = small
        offer_watch.PATIENCE_S = patience
        shared_end.IS_ON = False
        publish_request.BATCH_MESSAGES_MAX = spreading.BATCH_MESSAGES_MAX = most
        scheduler.leave()


def _with_condition(init: Callable[..., None]) -> Callable[..., None]:
    def made(self: Any, *values: Any) -> None:
        init(self, *values)
        self._condition = threads.Condition()

    return made


class _History:
    """One history while it runs."""

    def __init__(self, plan: TopicPlan, world: World, *, is_traced: bool) -> None:
        self.plan = plan
        self.world = world
        self.trace: list[tuple[float, str, Any]] = []
        self.is_traced = is_traced
        self.broken: list[str] = []
        self.is_over = self.is_healed = False
        self.cast: dict[str, list[Process]] = defaultdict(list)
        self.seats: dict[str, Seat] = {}
        self.done: set[str] = set()
        self.cluster = Cluster(
            world,
            odds=plan.odds,
            skews_ms=plan.skews_ms,
            timeout_s=plan.timeout_s,
            watch=self._watch if is_traced else None,
            stop=self._stop,
            applied=self._hear_applied,
        )
        self.ensemble = Ensemble(world, plan.seat_odds, is_generous=plan.is_generous)
        #: What callers were told of each body: its place, "not", or "unknown".
        self.told: dict[str, object] = {}
        #: When a batch was linked, by the place of its first message.
        self.linked_at: dict[tuple[int, int], float] = {}
        self.repeats: set[str] = set()
        #: What was published with one number: the bodies that share a partition.
        self.together: list[list[str]] = []
        #: What is at each place, by whoever saw it.
        self.log: dict[tuple[int, int], str] = {}
        self.handed: Counter[tuple[int, int]] = Counter()
        self.done_by_group: set[tuple[int, int]] = set()
        self.progress: dict[Any, tuple[int, int, str]] = {}
        self.deleted_at: float | None = None
        self.has_group = plan.members + plan.lessors.services > 0
        # Who finds its offset gone resets the group.
        self.is_disturbed = bool(plan.blows or plan.resets or plan.again or plan.is_generous or plan.clears)
        self.relays = RelayWatch(plan.relays, world, self.store, lambda: self.is_over, self.broken)
        ledger = Ledger(
            GROUP,
            is_over=lambda: self.is_over,
            is_healed=lambda: self.is_healed,
            note_seen=self._note_seen,
            done=self.done_by_group,
            is_reset=lambda: plan.resets + plan.clears > 0,
            broken=self.broken,
        )
        self.lessors = LessorWatch(plan.lessors, world, ledger)
        self.is_disturbed |= max(plan.odds.crash, plan.odds.freeze, plan.seat_odds.doubted) > 0

    def play(self) -> None:
        main = self.world.spawn(self.process("judge"), "main", self._main)
        try:
            self.world.run(main, FAULTS_S + HEALED_S + 120)
        except SimulationError as error:
            self.broken.append(str(error))
        finally:
            self.world.end()
        self.broken += self.world.trouble

    def _main(self) -> None:
        plan, judge = self.plan, self.cast["judge"][0]
        self.cluster.is_faulty = self.ensemble.is_faulty = False
        store = self.store(judge)
        topic = store.topic("t", partitions=plan.partitions, segment_bytes=KIB)
        if self.relays.is_on:
            self.relays.begin(store, topic)
        self.cluster.is_faulty = self.ensemble.is_faulty = True
        for role, count, work in (
            ("publisher", plan.publishers, self._publish),
            ("reader", plan.readers, self._read),
            ("member", plan.members, self._consume),
            ("operator", 1, self._operate),
            *self._lending(plan.lessors.services, plan.lessors.clients),
            *parts_of(self.relays, plan.relays),
        ):
            for _ in range(count):
                process = self.process(role)
                self.world.spawn(process, "main", partial(self._play_part, work, process))
        for at, role, place, how, seconds in plan.blows:
            self.world.after(at, partial(self._strike, role, place, how, seconds))
        self.world.sleep(FAULTS_S)
        self._heal()
        self._settle(store, topic)
        self.is_over = True

    def _lending(
        self, services: int, clients: int
    ) -> list[tuple[str, int, Callable[[Process, Topic], None]]]:
        roles = [("service", services, self.lessors.serve), ("client", clients, self.lessors.ask)]
        return roles if self.lessors.is_on else []

    def _play_part(self, work: Callable[[Process, Topic], None], process: Process) -> None:
        topic = None
        while topic is None:
            try:
                topic = self.store(process).find_topic("t")
            except (UnavailableError, OutcomeUnknownError):
                self.world.sleep(0.1)
            except TopicNotFoundError:
                break
        if topic:
            work(process, topic)
        self.done.add(process.name)

    # Who is there

    def _publish(self, process: Process, topic: Topic) -> None:
        dice = self.world.dice
        others = random.Random(f"together {self.plan.seed} {process.name}")
        futures = {}
        for number in range(1, self.plan.messages + 1):
            body = f"{process.name}-{number}"
            padded = body.ljust(BODY_BYTES).encode()
            is_numbered = dice.random() < (0.1 if self.plan.crowd else 0.4)
            if is_numbered and others.random() < self.plan.together:
                self._publish_together(topic, process.name, number, others)
                self.world.sleep(others.choice((0.0, 0.3)))
                continue
            if not is_numbered and dice.random() < 0.5:
                future = topic.publish_soon(
                    padded, {"key": body} if dice.random() < 0.3 else None, timeout=2.0
                )
                futures[body] = future
                future.add_done_callback(partial(self._note_future, body))
                continue
            options: Any = {"writer": process.name, "number": number} if is_numbered else {}
            for _ in range(4 if is_numbered else 1):
                self._forget_refused(body)
                try:
                    position = topic.publish(padded, timeout=1.0, **options)
                except OutcomeUnknownError:
                    self._note_told(body, "unknown")
                except TopicNotFoundError:
                    self.told.setdefault(body, "not")
                    return
                except CassqError:
                    self.told.setdefault(body, "not")
                else:
                    self.repeats |= {body} if position.is_repeat else set()
                    place = (position.partition, position.offset)
                    self._note_told(body, "repeat" if position.is_repeat else place)
                    break
            self.world.sleep(dice.choice((0.0, 0.0, 0.05, 0.3)) * (not self.plan.crowd))
        topic.close()

    def _publish_together(self, topic: Topic, writer: str, number: int, dice: random.Random) -> None:
        """Publish several messages with one number, some with a key, until that is known."""
        keys = [dice.choice(("", "k1", "k2")) for _ in range(dice.choice((1, 3, 7)))]
        of_partition: dict[int, list[str]] = defaultdict(list)
        given = []
        for place, key in enumerate(keys):
            body = f"{writer}-{number}.{place}"
            of_partition[partition_of(key or writer, topic.partitions)].append(body)
            given.append((body.ljust(BODY_BYTES).encode(), {"key": key} if key else {}))
        self.together += of_partition.values()
        for _ in range(4):
            self._forget_refused(*chain.from_iterable(of_partition.values()))
            try:
                stretches = topic.publish_many(given, timeout=1.0, writer=writer, number=number)
            except CassqError as error:
                for body in chain.from_iterable(of_partition.values()):
                    if isinstance(error, OutcomeUnknownError):
                        self._note_told(body, "unknown")
                    else:
                        self.told.setdefault(body, "not")
                if isinstance(error, TopicNotFoundError):
                    return
            else:
                fresh = {each.partition: each for each in stretches}
                for partition, bodies in of_partition.items():
                    for place, body in enumerate(bodies):
                        is_fresh = partition in fresh
                        told = (partition, fresh[partition].first + place) if is_fresh else "repeat"
                        self.repeats |= set() if is_fresh else {body}
                        self._note_told(body, told)
                return

    def _forget_refused(self, *bodies: str) -> None:
        """Begin an attempt: what was told as not published may be so in a moment, and nobody hears of it."""
        for body in bodies:
            if self.told.get(body) == "not":
                del self.told[body]

    def _note_told(self, body: str, what: object) -> None:
        self.told[body] = what
        self._say(body, what)

    def _note_future(self, body: str, future: Any) -> None:
        error = future.exception()
        if error is None:
            position = future.result()
            self._note_told(body, (position.partition, position.offset))
        else:
            self._note_told(body, "unknown" if isinstance(error, OutcomeUnknownError) else "not")

    def _read(self, process: Process, topic: Topic) -> None:
        reader = None
        after: dict[int, int] = {}
        while not self.is_over:
            try:
                reader = reader or topic.reader(on_gone="oldest")
                for message in reader.read_many(5, 0.5):
                    skipped = reader.skipped
                    expected = after.get(message.partition, message.offset)
                    if message.offset != expected and not (message.offset > expected and skipped):
                        self._object(
                            f"{process.name} got {message.offset} of {message.partition} after {expected}"
                        )
                    after[message.partition] = message.offset + 1
                    self._note_seen(process.name, message)
            except (UnavailableError, OffsetGoneError):
                self.world.sleep(0.1)
            except TopicNotFoundError:
                return

    def _consume(self, process: Process, topic: Topic) -> None:
        consumer = None
        handed: list[GroupMessage] = []
        while not self.is_over:
            try:
                consumer = consumer or topic.consumer(GROUP, commit=self.plan.commit)  # type: ignore[arg-type]
                handed = consumer.poll(5, 0.5)
                while handed:
                    self._work_on(process, handed.pop(0))
                if self.plan.commit == "manual":
                    consumer.commit()
            except (UnavailableError, OutcomeUnknownError, PartitionLostError):
                for message in handed:
                    message.again()
                self.world.sleep(0.05)
            except OffsetGoneError:
                self._reset(topic)
            except TopicNotFoundError:
                return

    def _work_on(self, process: Process, message: GroupMessage) -> None:
        place = message.partition, message.offset
        self._note_seen(process.name, message)
        self.handed[place] += 1
        if self.world.dice.random() < self.plan.again:
            message.again()
            return
        self.world.sleep(self.world.dice.choice((0.0, 0.0, 0.1)))
        self.done_by_group.add(place)
        message.done()

    def _operate(self, _: Process, topic: Topic) -> None:
        dice, plan = self.world.dice, self.plan
        works: list[Callable[[], object]] = [topic.clear] * plan.clears + [
            partial(self._reset, topic)
        ] * plan.resets
        works += [partial(self.relays.reset, topic)] * plan.relays.resets
        works += [topic.reap] * 2
        dice.shuffle(works)
        for work in works:
            self.world.sleep(dice.random() * FAULTS_S / len(works))
            try:
                work()
            except (UnavailableError, OutcomeUnknownError):
                continue
            except TopicNotFoundError:
                return
        if plan.deleted_at:
            self._delete(topic)

    def _delete(self, topic: Topic) -> None:
        catalog = self.cast["operator"][0]
        store = self.store(catalog)
        while self.deleted_at is None:
            try:
                store.delete_topic("t")
            except TopicNotFoundError:
                if self._has_cleared(store):
                    self.deleted_at = self.world.now
            except CassqError:
                self.world.sleep(0.1)
            else:
                self.deleted_at = self.world.now
        topic.close()

    def _has_cleared(self, store: Store) -> bool:
        try:
            return not store.reap().failed
        except CassqError:
            self.world.sleep(0.1)
            return False

    def _reset(self, topic: Topic) -> None:
        try:
            topic.reset(GROUP, "earliest")
        except (UnavailableError, OutcomeUnknownError):
            self.world.sleep(0.05)
        except CassqError:
            return

    # What must be true

    def _note_seen(self, who: str, message: Any) -> None:
        place, body = (message.partition, message.offset), message.body.decode().rstrip()
        self._say(who, f"sees {body} at {place}")
        if self.log.setdefault(place, body) != body:
            self._object(f"two contents: {place} is {body} for {who}, and {self.log[place]} for others")

    def _hear_applied(self, mutation: Mutation) -> None:
        if mutation.table == "links":
            _, partition, _ = mutation.key
            batches = (at for kind, at, _ in mutation.rows if kind == BATCH_KIND)
            self.linked_at |= {(partition, at): self.world.now for at in batches}
        if mutation.table != "progress":
            return
        for row in mutation.rows.values():
            cells = {column: value for column, (_, value) in row.cells.items()}
            wanted = cells["epoch"], cells["next"], cells["owner"]
            seen = self.progress.get(mutation.key)
            self.progress[mutation.key] = wanted
            if self.lessors.is_on:
                self.lessors.hear_progress(mutation.key[1], seen, wanted)
            if seen is None:
                continue
            is_rolled = seen[2] == wanted[2] and "pipe" in cells and wanted[1] >= seen[1]
            is_same_epoch = wanted[0] == seen[0] and wanted[2] == seen[2] and wanted[1] >= seen[1]
            is_taken = wanted[0] == seen[0] + 1 and (wanted[1] == seen[1] or is_rolled)
            is_reset = wanted[0] == seen[0] + 1 and wanted[2] == ""
            if not (is_same_epoch or is_taken or is_reset):
                self._object(f"progress: {seen} became {wanted}")

    def _settle(self, store: Store, topic: Topic) -> None:
        """Wait until all is published, read and consumed; then judge."""
        end = self.world.now + HEALED_S
        fresh = [("member", self._consume)] if self.plan.members else []
        fresh += [(role, work) for role, _, work in self._lending(1, 1)]
        fresh += [(role, work) for role, _, work in parts_of(self.relays, self.plan.relays)]
        for role, work in fresh if not self.plan.deleted_at else ():
            process = self.process(role)
            self.world.spawn(process, "main", partial(self._play_part, work, process))
        left = "nobody looked"
        while left and self.world.now < end:
            self.world.sleep(0.5)
            left = self._left(topic) or self._left_of_queue(store, topic)
        if left:
            self._object(f"stuck: {left} {HEALED_S:g} s after the last fault")
            return
        if self.deleted_at is not None:
            self._judge_deleted(store)
            return
        oldest = {each.partition: each.oldest for each in topic.stats()}
        for message in self._whole(topic):
            self._note_seen("judge", message)
        self.broken += self._judge(oldest)
        if self.plan.relays.has_journal:
            self.broken += self.relays.journal.judge(store, self.relays.pipes)

    def _left(self, topic: Topic) -> str:
        working = [
            each.name
            for role in ("publisher", "operator")
            for each in self.cast[role]
            if not each.is_dead and each.name not in self.done
        ]
        if working:
            return f"{working} still work"
        if self.plan.deleted_at:
            return "" if self.deleted_at is not None else "the topic is not deleted"
        if self.has_group and GROUP in topic.groups():
            lags = topic.lag(GROUP)
            if sum(each.lag for each in lags):
                return f"the group is behind: {lags}"
        return ""

    def _left_of_queue(self, store: Store, topic: Topic) -> str:
        if not self.relays.is_on or self.plan.deleted_at:
            return ""
        return self.relays.left(store, topic)

    def _whole(self, topic: Topic) -> Iterator[Any]:
        reader = topic.reader()
        while found := reader.read_many(1000):
            yield from found

    def _judge(self, oldest: dict[int, int]) -> Iterator[str]:
        in_log = Counter(self.log.values())
        for body, what in self.told.items():
            if what == "not" and body in in_log:
                yield f"invented: {body} was told as not published, and is in the log"
            if isinstance(what, tuple) and what[1] >= oldest[what[0]] and self.log.get(what) != body:
                yield f"lost: {body} was told to be at {what}, where {self.log.get(what)} is"
            if what == "repeat" and body not in in_log and not self.plan.clears:
                yield f"lost: {body} was told as published before"
        yield from self._torn(oldest)
        for body, count in in_log.items():
            if count > 1:
                yield f"twice: {body} is in the log {count} times"
        if self.has_group:
            yield from self._judge_group()
        if self.relays.is_on:
            yield from self.relays.judge(self.log, oldest)

    def _torn(self, oldest: dict[int, int]) -> Iterator[str]:
        places = {body: place for place, body in self.log.items()}
        for bodies in self.together:
            there = [places[body] for body in bodies if body in places]
            partition, first = min(there, default=(0, 0))
            is_whole = there == [(partition, first + place) for place in range(len(bodies))]
            if there and first >= oldest[partition] and not is_whole:
                yield f"torn: {bodies} have one number, and are at {there}"

    def _judge_group(self) -> Iterator[str]:
        if self.progress and not self.plan.clears:
            for place, body in self.log.items():
                if place not in self.done_by_group:
                    yield f"skipped: {body} at {place} was given to no member that ended it"
        for place, count in self.handed.items():
            if count > 1 and not self.is_disturbed:
                yield f"repeated: {place} was handed out {count} times, and nobody died"

    def _judge_deleted(self, store: Store) -> None:
        self.broken += self.relays.judge(self.log)
        late = [place for place, at in self.linked_at.items() if at > self.deleted_at]  # type: ignore[operator]
        if late:
            self._object(f"linked after the topic was deleted: {late}")
        store.reap()
        for table in ("links", "batches", "segments"):
            self.broken += [f"left of a deleted topic: {row}" for row in self.cluster.rows(table)]

    def _object(self, words: str) -> None:
        self.broken.append(words)

    # Processes

    def process(self, role: str) -> Process:
        name = f"{role}{len(self.cast[role])}"
        process = Process(name, offset_s=self.world.dice.random() * 1000)
        self.cast[role].append(process)
        return process

    def store(self, process: Process) -> Store:
        seat = self.seats[process.name] = Seat(self.ensemble, process)
        storage = CassandraStorage(SimulatedSession(self.cluster, process))
        return Store(
            process.name, Adapters(storage, seat, seat.close), clock=ProcessClock(self.world, process)
        )

    def _heal(self) -> None:
        self.cluster.heal()
        self.ensemble.is_faulty = False
        self.is_healed = True
        for role in self.cast.values():
            for process in role:
                process.is_cut = False
                self._thaw(process)
        self._say("world", "all faults end")

    def _strike(self, role: str, place: int, how: str, seconds: float) -> None:
        process = self.cast[role][place]
        if how == "session":
            if process.name in self.seats:
                self.ensemble.expire(self.seats[process.name])
        else:
            self._stop(process, how, seconds)

    def _stop(self, process: Process, how: str, seconds: float | None = None) -> None:
        if process.is_dead or self.is_healed or process in (*self.cast["judge"], *self.cast["operator"]):
            return
        self._say(process.name, f"{how}s")
        if how == "crash":
            self.world.kill(process)
            if process.name in self.seats:
                self.ensemble.expire(self.seats[process.name])
            return
        self.world.freeze(process)
        if self.world.dice.random() < 0.7 and process.name in self.seats:
            self.ensemble.expire(self.seats[process.name])
        self.world.after(seconds or self.world.dice.choice((0.1, 0.6, 2.0)), partial(self._thaw, process))

    def _thaw(self, process: Process) -> None:
        if process.is_frozen and not process.is_dead:
            self._say(process.name, "thaws")
            self.world.thaw(process)

    def _say(self, who: str, words: Any) -> None:
        if self.is_traced:
            self.trace.append((self.world.now, who, str(words)))

    def _watch(self, process: Process, call: Any, work: Any, answer: object) -> None:
        self.trace.append((self.world.now, process.name, (call, work, answer)))
