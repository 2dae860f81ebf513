"""`cassq worker`: run a worker in processes of its own, until a signal.

Owns what signals mean to it: SIGTERM and SIGINT stop it softly, a second one at once; SIGHUP replaces its
processes. What must not break: with 0 it ends only after all processes have ended well.
"""

import logging
import os
import signal
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import click

from cassq.cli.exit_codes import INTERNAL, USAGE
from cassq.cli.output import say
from cassq.cli.session import Session, common_options
from cassq.cli.signals import Stopped, Wish
from cassq.cli.values import to_bytes, to_duration
from cassq.cli.worker import child, health
from cassq.cli.worker.notify import notify, watchdog_s
from cassq.cli.worker.processes import Died, Limits, Processes
from cassq.cli.worker.target import load
from cassq.runtime.clock import SystemClock

#: A process that does not end so long after its drain is killed.
KILL_S = 10.0

#: What they have after a second signal.
AT_ONCE_S = 5.0

#: This process looks at the others at least this often.
LOOK_S = 0.2


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option("-p", "--processes", type=click.IntRange(1, 1000), default=1, help="How many (default 1).")
@click.option(
    "--drain", type=to_duration, default="30s", metavar="DURATION", help="What handlers get to finish (30s)."
)
@click.option(
    "--messages-max", type=click.IntRange(1), metavar="N", help="Replace a process after about so many."
)
@click.option("--memory-max", type=to_bytes, metavar="SIZE", help="Replace a process that holds more.")
@click.option("--health-file", type=Path, metavar="FILE", help="Touch it every second while all is well.")
@click.option("--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer GET /healthz.")
@click.option("--child", "told", type=int, hidden=True)
@common_options
@click.make_pass_decorator(Session)
@click.pass_context
def worker(
    context: click.Context, session: Session, /, target: str, told: int | None, **options: object
) -> None:
    """Run the cassq.Worker that NAME is, or makes, in processes of its own, until a signal.

    SIGTERM: take no more, let handlers finish, exit with 0. Again: at once. SIGHUP: start new processes, and
    stop the old ones once those are ready. Those that die are started again.
    """
    session.ending.begin(is_endless=True)
    if session.url:
        os.environ["CASSQ_URL"] = session.url
    drain: timedelta = options["drain"]  # type: ignore[assignment]
    if told is not None:
        _work(target, told, drain.total_seconds(), session)
        return
    with session.ending.politely() as wish:
        exit_code = _Watch(target, wish, session, **options).run()  # type: ignore[arg-type]
    context.exit(exit_code)


def _work(target: str, told: int, drain_s: float, session: Session) -> None:
    logging.basicConfig(
        level=logging.DEBUG if session.is_debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s",
    )
    child.work(load(target), told, drain_s)


class _Watch:
    """The process that watches the others."""

    def __init__(  # noqa: PLR0913 - each is an option
        self,
        target: str,
        wish: Wish,
        session: Session,
        *,
        processes: int,
        drain: timedelta,
        messages_max: int | None,
        memory_max: int | None,
        health_file: Path | None,
        health_port: int | None,
    ) -> None:
        self._wish = wish
        self._drain = drain
        self._health_file = health_file
        self._health_port = health_port
        self._clock = SystemClock()
        self._is_reload_due = False
        words = ["worker", target, "--drain", f"{drain / timedelta(milliseconds=1):.0f}ms"]
        words += ["--debug"] if session.is_debug else []
        start = "import sys; from cassq_command import main; sys.exit(main())"
        command = [sys.executable, "-c", start, *words, "--child"]
        self._processes = Processes(command, processes, Limits(messages_max, memory_max), self._clock)
        self._told_at = float("-inf")
        self._is_ready = False

    def run(self) -> int:
        """Watch until a signal; return the exit code."""
        signal.signal(signal.SIGHUP, self._note_reload)
        with ExitStack() as stack:
            if self._health_port:
                server = health.serve(self._health_port, lambda: self._processes.are_healthy)
                stack.callback(server.shutdown)
            stack.callback(self._processes.kill_all)
            try:
                while not self._wish:
                    self._look()
            except Died as died:
                say(f"cassq: {died}; the last one with {died.exit_code}")
                return USAGE if died.exit_code == USAGE else INTERNAL
            notify("STOPPING=1")
            self._processes.stop_all()
            try:
                self._processes.wait(self._drain.total_seconds() + KILL_S)
            except Stopped:  # a second signal
                self._processes.stop_all()
                self._processes.wait(AT_ONCE_S)
                raise
        return 0

    def _look(self) -> None:
        if self._is_reload_due:
            self._is_reload_due = False
            self._processes.replace_all()
        self._processes.look()
        self._tell_health()
        self._processes.pause(LOOK_S)

    def _tell_health(self) -> None:
        if not self._processes.are_healthy:
            return
        if not self._is_ready:
            self._is_ready = True
            notify("READY=1")
        now = self._clock.now()
        if now - self._told_at >= min(1.0, watchdog_s() or 1.0):
            self._told_at = now
            notify("WATCHDOG=1")
            if self._health_file:
                self._health_file.touch()

    def _note_reload(self, *_: object) -> None:
        self._is_reload_due = True
