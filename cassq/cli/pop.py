"""`cassq pop` and `cassq peek`: messages to stdout, or to a command of the caller's.

Owns the order of printing and committing. What must not break: a message is committed only after the
operating system took all of it, and while its lease runs, however slow the reader is; one of which nothing
was written out is given back without counting an attempt, one that was cut is rolled back. Refuses to promise
more: what stands in a pipe between two processes was written out, though nobody has read it. Who needs that
too lets a command end each message (`cassq.cli.execution`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict, Unpack

import click

import cassq
from cassq.cli.bench.arrivals import TICK_S, Arrivals
from cassq.cli.execution import EXTEND_PER_LEASE, Execution, to_command
from cassq.cli.exit_codes import NOT_DONE
from cassq.cli.output import MessageWriter, count_of, print_json, say, to_line
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_duration
from cassq.popping.delivery_groups import give_all_back
from cassq.runtime.deadline import Deadline

#: Messages popped together, and printed and committed so where the reader is quick.
CHUNK = 200

#: What was written out is committed after so small a part of the lease, or a tick, at the latest.
TICKS_PER_LEASE = 8


class PopOptions(TypedDict):
    """Which messages are popped, and what ends them."""

    count: int | None
    timeout: timedelta
    types: tuple[str, ...]
    is_committed: bool | None
    command: str | None
    is_shell: bool
    follow: bool


@click.command()
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), help="At most so many messages.  [default: 1]")
@click.option(
    "--type", "types", metavar="NAME", multiple=True, help="Only messages of this type; may be repeated."
)
@click.option(
    "--timeout",
    type=to_duration,
    metavar="DURATION",
    default="1s",
    show_default=True,
    help="How long to wait for the next one.",
)
@click.option(
    "--commit/--rollback",
    "is_committed",
    default=None,
    help="End the messages, or give them back (default).",
)
@click.option("--exec", "command", metavar="CMD", help="Run CMD for each message, which ends as CMD does.")
@click.option("--shell", "is_shell", is_flag=True, help="Let /bin/sh read CMD; only with --exec.")
@click.option("--follow", is_flag=True, help="Wait for more until a signal; only with --commit or --exec.")
@common_options
@pass_session
@click.pass_context
def pop(context: click.Context, session: Session, queue: str, **options: Unpack[PopOptions]) -> None:
    """Print messages: bare bodies, each with a newline, or one line of JSON each; or run a command for each.

    Without --commit every message is given back when all are printed, which counts as one of its attempts,
    and of each key one comes at most; `cassq peek` looks without that. With --commit a message ends once it
    is written out: in a file, or in the pipe to the next program. What that program had not read yet when it
    died is committed all the same. What is not written out, because the program closed the pipe or a signal
    came while the pipe was full, goes back without counting an attempt.

    With --exec a message ends when CMD does: exit code 0 commits it, any other end rolls it back. CMD gets
    the body on its standard input, and in its environment CASSQ_QUEUE, CASSQ_MESSAGE_ID, CASSQ_ATTEMPT,
    CASSQ_PUSHED_AT, CASSQ_PRIORITY, CASSQ_TYPE, CASSQ_KEY, CASSQ_HEADERS (all headers as JSON) and
    CASSQ_HEADER_NAME for each header. CMD is split into words as a shell does it, quotes and all, but nothing
    is expanded; --shell lets /bin/sh do that. The lease is extended while CMD runs. A first signal lets CMD
    finish, a second ends it. --json prints a summary.

    Prints nothing, and exits 0, when none comes in time. Exits 1 where CMD failed, and 0 when SIGTERM ends
    --follow.
    """
    command, is_shell, is_committed = options["command"], options["is_shell"], options["is_committed"]
    follow = options["follow"]
    if command is None and is_shell:
        raise click.UsageError("--shell is how --exec reads its command: name one")
    if command is not None and is_committed is not None:
        raise click.UsageError("--exec ends each message as CMD ends: leave --commit and --rollback out")
    if follow and not (is_committed or command is not None):
        raise click.UsageError(
            "--follow needs --commit or --exec: what is given back would come again at once"
        )
    words = None if command is None else to_command(command, is_shell=is_shell)
    limit = options["count"] or (None if follow else 1)
    with (
        session.queue(queue) as opened,
        opened.popper(types=options["types"] or None) as popper,
        session.ending.politely() as wish,
    ):
        arrivals = Arrivals(popper, wish, None if follow else options["timeout"])
        if words is None:
            settings = opened.settings
            finish = _Committing(popper) if is_committed else _Returning(popper, settings.max_attempts, limit)
            lease_s = settings.lease.total_seconds()
            try:
                _Printing(arrivals, finish, session.is_json, lease_s).run(limit)
            finally:
                finish.close()
            return
        execution = Execution(arrivals, words, opened)
        try:
            execution.run(limit)
        finally:
            _tell(execution, session)
    if execution.rolled_back and not (follow and wish):
        context.exit(NOT_DONE)


def _tell(execution: Execution, session: Session) -> None:
    if session.is_json:
        print_json(execution.summary())
    elif execution.count:
        say(f"cassq: committed {execution.committed}, rolled back {execution.rolled_back}")


@click.command()
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True, help="At most so many.")
@common_options
@pass_session
def peek(session: Session, queue: str, count: int) -> None:
    """Print the next messages without taking them; nothing changes."""
    with session.queue(queue) as opened:
        found = opened.peek(count)
    writer = MessageWriter([to_line(message, is_json=session.is_json) for message in found])
    writer.go_on()
    if writer.trouble:
        raise writer.trouble


#: What was printed, and may have come to nothing, comes again at once.
NO_DELAY = timedelta(0)


class _Committing:
    """Commits what was written out, and gives the rest back."""

    def __init__(self, popper: cassq.Popper) -> None:
        self._popper = popper
        self._written = 0
        self.held: list[cassq.Delivery] = []

    def hold(self, deliveries: Sequence[cassq.Delivery]) -> None:
        self.held, self._written = list(deliveries), 0

    def note(self, written: int) -> None:
        """Hear how many of the latest were written out whole."""
        new = written - self._written
        out, self.held, self._written = self.held[:new], self.held[new:], written
        if out:
            self._popper.commit_many(out)

    def end(self, written: int, begun: int) -> None:
        """Hear that no more of the latest are written, and how many were in part at least."""
        try:
            self.note(written)
        finally:
            cut, rest = self.held[: begun - written], self.held[begun - written :]
            try:
                give_all_back(rest)
            finally:
                self._popper.rollback_many(cut, NO_DELAY, "cassq pop was ended in the middle of it")

    def close(self) -> None:
        pass


class _Returning:
    """Holds everything until the end, so that nothing is printed twice, and gives it back then."""

    def __init__(self, popper: cassq.Popper, max_attempts: int, wanted: int | None) -> None:
        self._popper = popper
        self._max_attempts = max_attempts
        self._wanted = wanted
        self._latest = 0
        self.held: list[cassq.Delivery] = []

    def hold(self, deliveries: Sequence[cassq.Delivery]) -> None:
        self._latest = len(self.held)
        self.held += deliveries

    def note(self, _written: int) -> None:
        pass

    def end(self, _written: int, begun: int) -> None:
        rest = self.held[self._latest + begun :]
        self.held = self.held[: self._latest + begun]
        give_all_back(rest)

    def close(self) -> None:
        if self.held:
            self._popper.rollback_many(self.held, NO_DELAY, "cassq pop printed it, without --commit")
            say(
                f"cassq: gave {count_of(len(self.held), 'message')} back; this counts as one of "
                f"{self._max_attempts} attempts (--commit ends messages, `cassq peek` only looks)"
            )
            if last := sum(each.attempt >= self._max_attempts for each in self.held):
                say(f"cassq: {last} of them had the last one: `cassq dead list` shows the dead letters")
            if len(self.held) != self._wanted and any(each.key for each in self.held):
                say("cassq: of each key one comes at most without --commit: the next one waits for its end")


@dataclass
class _Printing:
    """Pops and prints until there is no reason to go on."""

    arrivals: Arrivals
    finish: _Committing | _Returning
    is_json: bool
    lease_s: float

    def run(self, limit: int | None) -> None:
        left = float("inf") if limit is None else limit
        while left > 0 and (deliveries := self.arrivals.next(int(min(left, CHUNK)))):
            self._print(deliveries)
            left -= len(deliveries)
        if left == limit:
            self.arrivals.tell_none()

    def _print(self, deliveries: Sequence[cassq.Delivery]) -> None:
        self.finish.hold(deliveries)
        writer = MessageWriter([to_line(each, is_json=self.is_json) for each in deliveries])
        tick_s = min(TICK_S, self.lease_s / TICKS_PER_LEASE)
        try:
            while not writer.is_done and (writer.go_on(tick_s) or not self.arrivals.wish):
                self.finish.note(writer.written)
                if not writer.is_done:
                    self._keep()
        finally:
            self.finish.end(writer.written, writer.begun)
        if writer.trouble:
            raise writer.trouble

    def _keep(self) -> None:
        """Extend the leases of what waits for a slow reader, once a third of their time has passed."""
        for run, delivery in {each.run: each for each in self.finish.held}.items():
            if run.left_s < self.lease_s * (1 - 1 / EXTEND_PER_LEASE):
                # A failure leaves the old lease, and there is time for another try.
                ends_at = run.clock.now() + run.left_s
                with suppress(cassq.OutcomeUnknownError, cassq.UnavailableError), Deadline(ends_at):
                    delivery.extend()
