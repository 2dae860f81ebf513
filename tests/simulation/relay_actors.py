"""What relays and the poppers of a subscribed queue do in a simulated history; and what must hold then.

Owns the queue's side. What must not break: each message of the log that the queue wants is one message of the
queue, which is handed out; the same message may come again, after a lease that ended.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from journal_actors import JournalWatch
from scheduler import Process, World

from cassq.errors import (
    CassqError,
    ClosedError,
    DeliveryExpiredError,
    OutcomeUnknownError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.model.topic import OFFSET_HEADER
from cassq.pipes import window_steps
from cassq.popping.arrival_rate import ArrivalRate
from cassq.store import Store
from cassq.topics import relayed_partition
from cassq.topics.topic import Topic

QUEUE = "q"

#: A consumer's patience.
POP_S = 0.3


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """What is drawn for the relays of one history.

    Attributes:
        relays: how many processes relay; 0: no queue is subscribed.
        poppers: how many pop from the queue.
        push_age_s: so long a relay fills one pipe.
        flows: how likely a popper takes the flow for fast, and holds a window.
        leaves: how likely a relay is closed, and made anew, after each turn.
        dawdles: how likely a popper keeps a message for longer than its lease.
        resets: how often an operator has all of it relayed once more.
        reapers: how many processes reap besides.
        has_journal: whether the queue keeps a journal.
    """

    relays: int = 0
    poppers: int = 1
    push_age_s: float = 0.3
    pipe_messages_max: int = 4
    pop_width: int = 4
    flows: float = 0.0
    leaves: float = 0.0
    dawdles: float = 0.0
    resets: int = 0
    reapers: int = 1
    has_journal: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The queue's settings."""
        return {
            "lease": timedelta(seconds=0.5),
            "clock_skew_max": timedelta(seconds=0.05),
            "push_age_max": timedelta(seconds=self.push_age_s),
            "push_grace": timedelta(seconds=0.15),
            "pipe_messages_max": self.pipe_messages_max,
            "pop_width": self.pop_width,
            "max_attempts": 1_000_000,
            "retry_delay": timedelta(0),
            **({"journal": "outline"} if self.has_journal else {}),
        }


def draw_relays(seed: int) -> RelayPlan:
    """Return what a seed has of relays; nothing else is drawn from these dice."""
    dice = random.Random(f"relays {seed}")
    return RelayPlan(
        relays=dice.choice((1, 2, 3)),
        poppers=dice.choice((1, 2)),
        push_age_s=dice.choice((0.15, 0.6, 3.0)),
        pipe_messages_max=dice.choice((2, 4, 30)),
        pop_width=dice.choice((1, 4)),
        flows=dice.choice((0.0, 0.0, 0.5)),
        leaves=dice.choice((0.0, 0.1)),
        dawdles=dice.choice((0.0, 0.1)),
        resets=dice.choice((0, 0, 0, 1)),
    )


@contextmanager
def flowing(plan: RelayPlan, world: World) -> Iterator[None]:
    """Let poppers hold windows, and relays write their progress often."""
    is_fast, commit_s = ArrivalRate.is_fast, relayed_partition.COMMIT_S
    messages, window_steps.WINDOW_MESSAGES = window_steps.WINDOW_MESSAGES, 8
    relayed_partition.COMMIT_S = 0.2
    if plan.flows:
        ArrivalRate.is_fast = lambda pace, now: world.dice.random() < plan.flows or is_fast(pace, now)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ArrivalRate.is_fast = is_fast  # type: ignore[method-assign]
        window_steps.WINDOW_MESSAGES = messages
        relayed_partition.COMMIT_S = commit_s


Work = Callable[[Process, Topic], None]


class RelayWatch:
    """The relays of one history, and its queue.

    Args:
        store_of: opens a store for a process.
        is_over: tells whether the history is.
    """

    def __init__(
        self,
        plan: RelayPlan,
        world: World,
        store_of: Callable[[Process], Store],
        is_over: Callable[[], bool],
        broken: list[str],
    ) -> None:
        self._plan = plan
        self._world = world
        self._store_of = store_of
        self._is_over = is_over
        self._broken = broken
        #: By place in the log: the ids of its messages in the queue, and which came and ended.
        self.seen: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.bodies: dict[tuple[int, int], str] = {}
        #: How often an operator began to have all of it relayed once more.
        self.resets = 0
        self.is_on = plan.relays > 0
        self.journal = JournalWatch(world, store_of, is_over)

    def begin(self, store: Store, topic: Topic) -> None:
        """Make the queue, and subscribe it; nothing fails yet."""
        store.queue(QUEUE, **self._plan.settings)
        topic.subscribe(QUEUE, on_gone="oldest").close()

    def relay(self, process: Process, topic: Topic) -> None:
        """Relay, and now and then leave it to others for a while."""
        del process
        dice = self._world.dice
        while not self._is_over():
            try:
                relay = topic.subscribe(QUEUE, on_gone="oldest")
            except (UnavailableError, OutcomeUnknownError):
                self._world.sleep(0.1)
                continue
            except (TopicNotFoundError, ClosedError):
                return
            while not self._is_over() and dice.random() >= self._plan.leaves:
                self._world.sleep(0.3)
                try:
                    relay.wait(0.0)
                except TopicNotFoundError:
                    return
                except CassqError as error:
                    self._broken.append(f"a relay ended: {error!r}")
                    return
            relay.close()

    def pop(self, process: Process, _: Topic) -> None:
        """Pop, and commit; some keep messages for longer than their leases."""
        store, dice = self._store_of(process), self._world.dice
        popper = None
        while not self._is_over():
            try:
                popper = popper or store.find_queue(QUEUE).popper()
                for delivery in popper.pop_many(dice.choice((1, 2, 9)), timeout=POP_S):
                    self._note(delivery)
                    if dice.random() < self._plan.dawdles:
                        self._world.sleep(0.7)
                    with suppress(UnavailableError, OutcomeUnknownError, DeliveryExpiredError):
                        delivery.commit()
            except (UnavailableError, OutcomeUnknownError):
                self._world.sleep(0.1)
            except QueueNotFoundError:
                return

    def reset(self, topic: Topic) -> None:
        """Have all of it relayed once more."""
        self.resets += 1
        topic.reset(QUEUE, "earliest")

    def reap(self, process: Process, _: Topic) -> None:
        """Reap again and again, as cron does."""
        store = self._store_of(process)
        while not self._is_over():
            with suppress(UnavailableError, OutcomeUnknownError):
                store.reap()
            self._world.sleep(self._world.dice.choice((0.1, 0.3, 0.8)))

    def _note(self, delivery: Any) -> None:
        partition, _, offset = delivery.headers[OFFSET_HEADER].partition(":")
        place = int(partition), int(offset)
        body = delivery.body.decode().rstrip()
        if self.bodies.setdefault(place, body) != body:
            self._broken.append(f"two contents in the queue: {place} is {body}, and {self.bodies[place]}")
        self.seen[place].add(str(delivery.message_id))

    def left(self, store: Store, topic: Topic) -> str:
        """Tell what is not in the queue yet, or was not popped."""
        try:
            if lag := sum(each.lag for each in topic.lag(QUEUE)):
                return f"the relays are {lag} behind"
            stats = store.find_queue(QUEUE).stats()
        except CassqError as error:
            return repr(error)
        if stats.waiting + stats.pending:
            return f"the queue has {stats.waiting} and {stats.pending}"
        return self.journal.left(store, self.pipes) if self._plan.has_journal else ""

    @property
    def pipes(self) -> set[UUID]:
        """Those that messages came out of."""
        return {UUID(each.partition(":")[0]) for ids in self.seen.values() for each in ids}

    def judge(
        self, log: Mapping[tuple[int, int], str], oldest: Mapping[int, int] | None = None
    ) -> Iterator[str]:
        """Tell what is in the queue twice, or not at all, or was never published.

        Args:
            oldest: by partition, from which offset on nothing was deleted; None: all of the topic was.
        """
        for place, ids in self.seen.items():
            if len(ids) > 1 + self.resets:
                yield f"relayed twice: {place} is {' and '.join(sorted(ids))}"
            if log.get(place, self.bodies[place]) != self.bodies[place]:
                yield f"relayed otherwise: {place} is {self.bodies[place]} in the queue, not {log[place]}"
        for place, body in log.items() if oldest and self.is_on else ():
            if place not in self.seen and place[1] >= oldest[place[0]]:
                yield f"not relayed: {body} at {place} never came out of the queue"


def parts_of(watch: RelayWatch, plan: RelayPlan) -> Iterator[tuple[str, int, Work]]:
    """Return roles, numbers and works of who is there for the queue."""
    if watch.is_on:
        yield "relay", plan.relays, watch.relay
        yield "popper", plan.poppers, watch.pop
        yield "reaper", plan.reapers, watch.reap
        if plan.has_journal:
            yield "roller", 1, watch.journal.roll
