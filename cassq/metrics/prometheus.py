"""An observer that keeps metrics for Prometheus.

import cassq
from cassq.metrics.prometheus import PrometheusObserver

store = cassq.connect("sqlite:///orders.db", observer=PrometheusObserver())

Owns names, labels and buckets. Needs `pip install 'cassq[metrics]'`. What must not break: a label is never
the name of a message, a pipe or a consumer, so that there are no more series than queues and methods.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cassq.errors import InvalidOptionError, OutcomeUnknownError
from cassq.metrics.labels import QueueLabels
from cassq.model.events import CommitsFailed, Event, Popped, Pushed, StorageCalled

#: In seconds: from a pop of what is in hand to a database that is away.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0)

#: What an event is called in the label `operation`.
OPERATIONS = {
    "Pushed": "push",
    "Popped": "pop",
    "Committed": "commit",
    "RolledBack": "rollback",
    "Rejected": "reject",
    "Extended": "extend",
    "CommitsFailed": "commit",
    "Reaped": "reap",
}


#: What is told of these is no number of messages.
UNCOUNTED = "Extended", "Reaped"

#: So many children of a metric are found without a look at its labels.
CHILDREN_MAX = 4096


@dataclass(frozen=True, slots=True)
class _Children:
    """The metrics of one operation and queue; None for what it has not."""

    seconds: Histogram
    messages: Counter | None
    ages: Histogram | None


class Working(Protocol):
    """A worker, as far as it is told of: `cassq.Worker`."""

    @property
    def busy(self) -> int:
        """How many handlers are at work."""
        ...

    @property
    def late(self) -> int:
        """How many of them go on beyond their time-outs."""
        ...

    @property
    def slots(self) -> int:
        """How many may work at a time."""
        ...


class PrometheusObserver:
    """Keeps how often the operations of this process are called, how long they take, and how they fail.

    One object may observe any number of stores, and hear of events in any number of threads.

    Args:
        registry: where the metrics are registered; None for the default one of `prometheus_client`.

    Raises:
        InvalidOptionError: the registry has the metrics of another one.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or REGISTRY
        self._workers: list[Working] = []
        try:
            made = _Metrics(registry)
            registry.register(_WorkerCollector(self._workers))
        except ValueError as error:
            raise InvalidOptionError(
                f"the registry has the metrics of a PrometheusObserver: give that one to each store ({error})"
            ) from None
        self._failures, self._storage_failures = made.failures, made.storage_failures
        # A lookup among a metric's labels costs more than the rest.
        self._children = lru_cache(CHILDREN_MAX)(made.children)
        self._storage_seconds = lru_cache(CHILDREN_MAX)(made.storage_seconds.labels)

    def note(self, event: Event) -> None:
        """Count a call; see `cassq.Observer`."""
        if isinstance(event, StorageCalled):
            self._storage_seconds(event.method).observe(event.seconds)
            if event.error:
                self._storage_failures.labels(event.method, event.error).inc()
            return
        kind = type(event).__name__
        if event.error:
            self._failures.labels(OPERATIONS[kind], event.error).inc()
        if isinstance(event, CommitsFailed):
            return
        children = self._children(kind, event.queue)
        children.seconds.observe(event.seconds)
        if isinstance(event, Popped) and event.age_s is not None and children.ages:
            children.ages.observe(event.age_s)
        if children.messages and (not event.error or isinstance(event, Pushed)):
            children.messages.inc(event.count)  # type: ignore[union-attr]  # of what is counted

    def watch(self, worker: Working) -> None:
        """Tell of a worker, too: how many of its handlers are at work, and how many go on too long."""
        self._workers.append(worker)


class _Metrics:
    """The metrics of a registry; raises `ValueError` where it has them already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=BUCKETS)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._labels = QueueLabels()
        self._seconds = histogram(
            "cassq_operation_seconds",
            "How long calls took; a pop as long as its consumer waited.",
            *("operation", "queue"),
        )
        self._messages = counter(
            "cassq_operation_messages",
            "Messages that calls stored, handed out or ended.",
            *("operation", "queue"),
        )
        self._ages = histogram(
            "cassq_delivery_age_seconds",
            "How long ago the oldest message of a pop was pushed, by the database's clock.",
            "queue",
        )
        self.failures = counter(
            "cassq_operation_failures",
            "Calls that raised, and grouped commits that failed later, by the code of the error.",
            *("operation", "code"),
        )
        self.storage_seconds = histogram(
            "cassq_storage_seconds", "How long calls to the database took.", "method"
        )
        self.storage_failures = counter(
            "cassq_storage_failures",
            "Calls to the database that failed, by the code of the error.",
            *("method", "code"),
        )
        # What begins with the first failure shows no increase to an alert.
        for operation in OPERATIONS.values():
            self.failures.labels(operation, OutcomeUnknownError.code)

    def children(self, kind: str, queue: str) -> _Children:
        """Return the metrics of the events of one class and queue."""
        own = OPERATIONS[kind], self._labels.label(queue)
        return _Children(
            self._seconds.labels(*own),
            None if kind in UNCOUNTED else self._messages.labels(*own),
            self._ages.labels(own[1]) if kind == "Popped" else None,
        )


class _WorkerCollector(Collector):
    """What the workers of this process do at the moment of a scrape."""

    def __init__(self, workers: list[Working]) -> None:
        self._workers = workers

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the figures of all workers together."""
        busy = sum(worker.busy for worker in self._workers)
        late = sum(worker.late for worker in self._workers)
        slots = sum(worker.slots for worker in self._workers)
        yield GaugeMetricFamily("cassq_worker_busy", "Handlers that are at work.", value=busy)
        yield GaugeMetricFamily(
            "cassq_worker_late", "Handlers that go on beyond their time-out, and keep a thread.", value=late
        )
        yield GaugeMetricFamily("cassq_worker_slots", "Handlers that may work at a time.", value=slots)
