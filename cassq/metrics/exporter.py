"""The figures of a store's queues, for Prometheus.

Owns names and labels, and what is shown while a store is out of reach: that it is, and no figures, because
old ones would look like new ones. What must not break: a scrape shows what was read before, and never waits
for the database.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cassq.errors import (
    CassqError,
    GroupNotFoundError,
    OutcomeUnknownError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.observing.figures import QueueStats
from cassq.runtime.clock import Clock
from cassq.store import Store

#: Figures are shown for so many pauses, and so much longer, as a round of many queues may take.
PAUSES_SHOWN = 3
SHOWN_S = 60.0

STATES = "waiting", "pending", "delayed"
EVENTS = "pushed", "popped", "committed", "dead", "purged", "expired", "rolled_back"


@dataclass(frozen=True, slots=True)
class _TopicFigures:
    """What a round found of one topic.

    Attributes:
        lags: of each group, how many messages are before it.
    """

    topic: str
    messages: int
    size: int
    lags: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round read.

    Attributes:
        at: the clock's reading when it ended.
        seconds: how long it took.
        left_out: queues beyond the most.
    """

    at: float
    seconds: float
    figures: tuple[QueueStats, ...]
    topics: tuple[_TopicFigures, ...]
    left_out: int


class StoreFigures(Collector):
    """The figures of all queues of one store, as the last round found them.

    Args:
        every_s: the pause between two rounds.
        queues_max: so many queues are read, the first by name.
    """

    def __init__(self, clock: Clock, *, every_s: float, queues_max: int) -> None:
        self._clock = clock
        self._shown_s = PAUSES_SHOWN * every_s + SHOWN_S
        self._queues_max = queues_max
        self._round: _Round | None = None
        self._failures = 0

    def read(self, store: Store, is_over: Callable[[], bool] = lambda: False) -> None:
        """Make one round over the queues. One whose rows are damaged is left out, and counts as a failure.

        Args:
            is_over: looked at before each queue; once it is true the round is given up.

        Raises:
            UnavailableError, OutcomeUnknownError: the store is out of reach; `note_failure` is to follow.
        """
        begun = self._clock.now()
        figures = []
        names = store.queues()
        for name in names[: self._queues_max]:
            if is_over():
                return
            figures += self._read_queue(store, name)
        topics = []
        of_topics = store.topics()
        for name in of_topics[: self._queues_max]:
            if is_over():
                return
            topics += self._read_topic(store, name)
        now = self._clock.now()
        left_out = max(0, len(names) - self._queues_max) + max(0, len(of_topics) - self._queues_max)
        self._round = _Round(now, now - begun, tuple(figures), tuple(topics), left_out)

    def _read_queue(self, store: Store, name: str) -> list[QueueStats]:
        try:
            return [store.find_queue(name).stats()]
        except QueueNotFoundError:  # deleted meanwhile
            return []
        except (UnavailableError, OutcomeUnknownError):
            raise
        except CassqError:
            self._failures += 1
            return []

    def _read_topic(self, store: Store, name: str) -> list[_TopicFigures]:
        try:
            topic = store.find_topic(name)
            stats = topic.stats()
            lags = {group: sum(each.lag for each in topic.lag(group)) for group in topic.groups()}
        except (TopicNotFoundError, GroupNotFoundError):  # deleted meanwhile
            return []
        except (UnavailableError, OutcomeUnknownError):
            raise
        except CassqError:
            self._failures += 1
            return []
        messages = sum(each.latest - each.oldest for each in stats)
        return [_TopicFigures(name, messages, sum(each.size for each in stats), lags)]

    def note_failure(self) -> None:
        """Note that the store is out of reach: there are no figures until the next round."""
        self._failures += 1
        self._round = None

    def collect(self) -> Iterable[Metric]:
        """Yield what the last round found, and how that went."""
        found = self._round
        if found and self._clock.now() - found.at > self._shown_s:
            found = None  # a round that does not end
        yield GaugeMetricFamily("cassq_store_up", "Whether the last round read the store.", value=bool(found))
        yield CounterMetricFamily(
            "cassq_exporter_failures", "Rounds, and queues, that could not be read.", value=self._failures
        )
        if found:
            yield GaugeMetricFamily(
                "cassq_exporter_seconds", "How long the last round took.", value=found.seconds
            )
            yield GaugeMetricFamily(
                "cassq_queues_left_out",
                "Queues, and topics, beyond --queues-max, which are not told.",
                value=found.left_out,
            )
            yield from _families(found.figures)
            yield from _families_of_topics(found.topics)


def _families(figures: Iterable[QueueStats]) -> Iterable[Metric]:
    messages = GaugeMetricFamily(
        "cassq_queue_messages", "Messages that have not ended.", labels=("queue", "state")
    )
    totals = CounterMetricFamily(
        "cassq_messages",
        "Messages since the queue was created, by what became of them.",
        labels=("queue", "event"),
    )
    ages = GaugeMetricFamily(
        "cassq_oldest_age_seconds",
        "Age of the oldest message that has not ended; 0 for none.",
        labels=("queue",),
    )
    letters = GaugeMetricFamily(
        "cassq_dead_letters", "Dead letters that are there, counted up to 10 000.", labels=("queue",)
    )
    pipes = GaugeMetricFamily("cassq_pipes", "Live pipes.", labels=("queue",))
    paused = GaugeMetricFamily("cassq_queue_paused", "Whether deliveries are stopped.", labels=("queue",))
    for each in figures:
        for state in STATES:
            messages.add_metric((each.queue, state), getattr(each, state))
        for event in EVENTS:
            totals.add_metric((each.queue, event), getattr(each, event))
        age = each.oldest_age
        ages.add_metric((each.queue,), age.total_seconds() if age else 0.0)
        letters.add_metric((each.queue,), each.dead_letters)
        pipes.add_metric((each.queue,), each.pipes)
        paused.add_metric((each.queue,), each.state == "paused")
    return messages, totals, ages, letters, pipes, paused


def _families_of_topics(figures: Iterable[_TopicFigures]) -> Iterable[Metric]:
    messages = GaugeMetricFamily("cassq_topic_messages", "Messages that are kept.", labels=("topic",))
    size = GaugeMetricFamily("cassq_topic_bytes", "Bytes of bodies and headers kept.", labels=("topic",))
    lag = GaugeMetricFamily(
        "cassq_group_lag", "Messages that a group has before it.", labels=("topic", "group")
    )
    for each in figures:
        messages.add_metric((each.topic,), each.messages)
        size.add_metric((each.topic,), each.size)
        for group, behind in each.lags.items():
            lag.add_metric((each.topic, group), behind)
    return messages, size, lag
