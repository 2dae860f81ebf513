"""`cassq exporter`: the figures of a store's queues for Prometheus, until a signal.

Owns the rounds and what an outage means: it is told, and the rounds go on. What must not break: a scrape is
answered whatever the database does.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

import cassq
from cassq.cli.log_format import begin_log, log_format_option
from cassq.cli.queues import wait
from cassq.cli.session import Session, common_options
from cassq.cli.signals import Wish
from cassq.cli.values import to_pause
from cassq.runtime.clock import SystemClock

if TYPE_CHECKING:
    from cassq.metrics.exporter import StoreFigures


class _Options(TypedDict):
    port: int
    host: str
    queues_max: int


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9520,
    help="Where to answer (9520); 0 for any that is free.",
)
@click.option("--host", default="0.0.0.0", metavar="ADDRESS", help="The address to answer at (all).")  # noqa: S104
@click.option(
    "--every", type=to_pause, default="15s", metavar="DURATION", help="The pause between two rounds (15s)."
)
@click.option(
    "--queues-max", type=click.IntRange(1), default=500, metavar="N", help="Read the first N by name (500)."
)
@log_format_option
@common_options
@click.make_pass_decorator(Session)
def exporter(session: Session, log_format: str, every: timedelta, **options: Unpack[_Options]) -> None:
    """Answer GET /metrics with the figures of all queues, until a signal.

    A thread reads them; a scrape shows what it found last. One exporter for each store is enough. While the
    store is out of reach cassq_store_up is 0. SIGTERM ends it with 0.
    """
    session.ending.begin(is_endless=True)
    session.require_url()
    tell = begin_log(session, log_format)
    host, port = options["host"], options["port"]
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - it may be missing

        from cassq.metrics.exporter import StoreFigures  # noqa: PLC0415
    except ImportError as error:
        raise click.UsageError(f"cassq exporter needs more: pip install 'cassq[metrics]' ({error})") from None
    figures = StoreFigures(SystemClock(), every_s=every.total_seconds(), queues_max=options["queues_max"])
    registry = CollectorRegistry()
    registry.register(figures)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise click.UsageError(
            f"--host {host} --port {port} cannot be used ({error.strerror or error}): choose others"
        ) from None
    tell(f"cassq: metrics at http://{host}:{server.server_port}/metrics")
    try:
        with session.ending.politely() as wish:
            _keep_reading(session, wish, figures, every, tell)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _keep_reading(
    session: Session, wish: Wish, figures: "StoreFigures", pause: timedelta, tell: Callable[[str], None]
) -> None:
    told = ""
    while not wish:
        try:
            with session.store() as store:
                while not wish:
                    figures.read(store, lambda: bool(wish))
                    if told:
                        told = ""
                        tell("cassq: the store is back")
                    wait(wish, pause)
        except (cassq.UnavailableError, cassq.OutcomeUnknownError) as error:
            figures.note_failure()
            if str(error) != told:  # an outage is no news at every round
                told = str(error)
                tell(f"cassq: {told}")
            wait(wish, pause)
