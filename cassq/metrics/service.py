"""What a service over HTTP tells Prometheus, by one port for all its processes.

Owns names and labels, and the folder where processes leave their figures for each other. `prometheus_client`
looks for that folder once, as it is imported: whoever imports this has named it by `FOLDER` before. What must
not break: a label is never a path, a name in it, or who asked: there are no more series than routes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from cassq.errors import InvalidOptionError
from cassq.metrics.prometheus import BUCKETS, PrometheusObserver

#: The variable of the environment that names the folder.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class ServiceMetrics:
    """What one process notes.

    Attributes:
        observer: of its store.
        waiting: clients that wait for leases.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()  # nobody asks this one: processes meet in the folder
        self.observer = PrometheusObserver(registry)
        self._seconds = Histogram(
            "cassq_http_seconds",
            "How long requests took, until their answers began; clients that wait are in it.",
            ("route", "status_class"),
            registry=registry,
            buckets=BUCKETS,
        )
        self.waiting = Gauge(
            "cassq_waiting_clients",
            "Clients that wait for leases.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._settlements = Counter(
            "cassq_settlements",
            "Leases that clients committed or settled: at a process that knew them, or away.",
            ("where",),
            registry=registry,
        )

    def note_answer(self, route: str, status: int, seconds: float) -> None:
        """Note a request; a route is a method and a path as the OpenAPI document has it."""
        self._seconds.labels(route, f"{status // 100}xx").observe(seconds)

    def note_settled(self, *, is_home: bool) -> None:
        """Note that a client said of a lease what became of it."""
        self._settlements.labels("home" if is_home else "away").inc()


@contextmanager
def serve_metrics(host: str, port: int) -> Iterator[None]:
    """Answer GET /metrics with what all processes have noted in the folder, during the block.

    Raises: InvalidOptionError: the address cannot be used.
    """
    registry = CollectorRegistry()
    _Noted(registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise InvalidOptionError(
            f"--metrics {port} cannot be used at {host} ({error.strerror or error}): choose another"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Noted(MultiProcessCollector):
    """All figures of a folder; those of the present moment only of processes that live."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._folder = Path(os.environ[FOLDER])
        super().__init__(registry, str(self._folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """See `MultiProcessCollector.collect`."""
        for path in self._folder.glob("gauge_live*.db"):
            pid = path.stem.rpartition("_")[2]
            if pid.isdecimal() and not _lives(int(pid)):
                path.unlink(missing_ok=True)
        found: Iterator[Metric] = super().collect()  # type: ignore[no-untyped-call]
        return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # of another user: its id was given anew
        return False
    return True
