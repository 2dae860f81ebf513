"""`cassq worker`: run a worker in processes of its own, until a signal.

Owns what signals mean to it: SIGTERM and SIGINT stop it softly, a second one at once; SIGHUP replaces its
processes. What must not break: with 0 it ends only after all processes have ended well; and nothing that
befalls this process costs a message in the others an attempt.
"""

import logging
import os
import signal
import sys
import traceback
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

import cassq
from cassq.cli.exit_codes import DONE, INTERNAL, NOT_DONE, UNAVAILABLE, USAGE
from cassq.cli.output import say
from cassq.cli.session import Session, common_options
from cassq.cli.signals import Stopped, Wish
from cassq.cli.values import to_bytes, to_duration
from cassq.cli.worker import child, health
from cassq.cli.worker.notify import notify, watchdog_s
from cassq.cli.worker.processes import KILL_S, Died, Limits, Processes
from cassq.cli.worker.target import load
from cassq.logs import JsonFormatter
from cassq.runtime.clock import SystemClock

#: What they have after a second signal.
AT_ONCE_S = 5.0

#: Reloads that come faster are one: the processes of many at a time would keep each other from starting.
RELOAD_S = 1.0

#: A line of the log.
TEXT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"

#: This process looks at the others at least this often.
LOOK_S = 0.2


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option("-p", "--processes", type=click.IntRange(1, 1000), default=1, help="How many (default 1).")
@click.option(
    "--drain", type=to_duration, default="30s", metavar="DURATION", help="What handlers get to finish (30s)."
)
@click.option(
    "--messages-max",
    type=click.IntRange(1, 10**12),
    metavar="N",
    help="Replace a process after about so many.",
)
@click.option("--memory-max", type=to_bytes, metavar="SIZE", help="Replace a process that holds more.")
@click.option("--health-file", type=Path, metavar="FILE", help="Touch it every second while all is well.")
@click.option("--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer GET /healthz.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Of the processes' log, unless the application has one of its own.",
)
@click.option("--child", "told", type=int, hidden=True)
@common_options
@click.make_pass_decorator(Session)
@click.pass_context
def worker(
    context: click.Context,
    session: Session,
    /,
    target: str,
    told: int | None,
    **given: Any,  # noqa: ANN401 - each of a type of its own
) -> None:
    """Run the cassq.Worker that NAME is, or makes, in processes of its own, until a signal.

    SIGTERM: take no more, let handlers finish, exit with 0. Again: at once. SIGHUP: start new processes, and
    stop the old ones once those are ready. Those that die are started again.
    """
    session.ending.begin(is_endless=True, reloads=True)
    if session.url:
        os.environ["CASSQ_URL"] = session.url
    options = _Options(**given)
    if told is not None:
        context.exit(_work(target, told, session, options))
    with session.ending.politely() as wish:
        exit_code = _Watch(target, wish, session, options).run()
    context.exit(exit_code)


def _work(target: str, told: int, session: Session, options: "_Options") -> int:
    root = logging.getLogger()
    for handler in list(root.handlers):  # the command line's own: the application's logging comes first
        root.removeHandler(handler)
    try:
        worker = load(target)
    except (click.UsageError, cassq.CassqError):
        raise
    except Exception:  # of the application's module: its traceback is what helps
        traceback.print_exc()
        return INTERNAL
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if options.log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.DEBUG if session.is_debug else logging.INFO, handlers=[handler])
    child.work(worker, told, options.drain.total_seconds())
    return DONE


@dataclass(frozen=True, slots=True)
class _Options:
    """What the command was told, as its options are called."""

    processes: int
    drain: timedelta
    messages_max: int | None
    memory_max: int | None
    health_file: Path | None
    health_port: int | None
    log_format: str


class _Watch:
    """The process that watches the others."""

    def __init__(self, target: str, wish: Wish, session: Session, options: _Options) -> None:
        self._wish = wish
        self._drain = drain = options.drain
        self._health_file = options.health_file
        self._health_port = options.health_port
        self._clock = SystemClock()
        self._is_reload_due = False
        self._reload_at = float("-inf")
        words = ["worker", target, "--drain", f"{drain / timedelta(milliseconds=1):.0f}ms"]
        words += ["--log-format", options.log_format, *(["--debug"] if session.is_debug else [])]
        start = "import sys; from cassq_command import main; sys.exit(main())"
        command = [sys.executable, "-c", start, *words, "--child"]
        limits = Limits(drain.total_seconds(), options.messages_max, options.memory_max)
        self._processes = Processes(command, options.processes, limits, self._clock)
        self._told_at = float("-inf")
        self._is_ready = False
        self._trouble = ""

    def run(self) -> int:
        """Watch until a signal; return the exit code."""
        signal.signal(signal.SIGHUP, self._note_reload)
        self._check_health_file()
        with ExitStack() as stack:
            if self._health_port:
                server = health.serve(self._health_port, lambda: self._processes.are_healthy)
                stack.callback(server.shutdown)
            stack.callback(self._processes.kill_all)
            try:
                return self._watch()
            except BaseException:  # a second signal, or a fault: messages in hand go back all the same
                with suppress(Stopped):
                    self._processes.stop_all(at_once=True)
                    self._wait(AT_ONCE_S)
                raise

    def _watch(self) -> int:
        exit_code = DONE
        try:
            while not self._wish:
                self._look()
                self._processes.pause(LOOK_S)
        except Died as died:
            say(f"cassq: {died}; the last one with {died.exit_code}")
            exit_code = died.exit_code if died.exit_code in {USAGE, UNAVAILABLE} else INTERNAL
        notify("STOPPING=1")
        with self._wish.held():
            self._processes.stop_all()
        self._wait(self._drain.total_seconds() + 2 * KILL_S)
        return exit_code or (NOT_DONE if self._processes.ended_badly else DONE)

    def _look(self) -> None:
        with self._wish.held():  # a process that was just started is not forgotten
            if self._is_reload_due and self._clock.now() >= self._reload_at:
                self._is_reload_due = False
                self._reload_at = self._clock.now() + RELOAD_S
                self._processes.replace_all()
            self._processes.look()
        self._tell_health()

    def _wait(self, seconds: float) -> None:
        """Wait until those that were told to stop have ended, or so long."""
        end = self._clock.now() + seconds
        while not self._processes.are_gone and self._clock.now() < end:
            self._processes.pause(LOOK_S)
            self._processes.look()

    def _tell_health(self) -> None:
        if not self._processes.are_healthy:
            return
        self._is_ready = self._is_ready or notify("READY=1")
        now = self._clock.now()
        if now - self._told_at >= min(1.0, watchdog_s() or 1.0):
            self._told_at = now
            notify("WATCHDOG=1")
            self._touch_health_file()

    def _touch_health_file(self) -> None:
        try:
            if self._health_file:
                self._health_file.touch()
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                say(f"cassq: --health-file: {error}")

    def _check_health_file(self) -> None:
        folder = self._health_file.parent if self._health_file else None
        if folder and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise click.UsageError(f"--health-file {self._health_file}: {folder} is no folder to write in")

    def _note_reload(self, *_: object) -> None:
        self._is_reload_due = True
