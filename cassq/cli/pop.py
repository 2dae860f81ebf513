"""`cassq pop` and `cassq peek`: messages to stdout.

Owns the order of printing and committing. What must not break: a message is committed only after the
operating system took all of it; one that was not written out is rolled back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import click

import cassq
from cassq.cli.output import MessageWriter, count_of, say, to_line
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.signals import Wish

#: Messages printed and committed together.
CHUNK = 200

#: How soon a waiting pop notices a signal.
TICK_S = 0.25


@click.command()
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), help="At most so many messages.  [default: 1]")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds to wait for the next one.",
)
@click.option(
    "--commit/--rollback",
    "is_committed",
    default=False,
    help="End the messages, or give them back (default).",
)
@click.option("--follow", is_flag=True, help="Wait for more for ever; only with --commit.")
@common_options
@pass_session
def pop(  # noqa: PLR0913 - one for each option
    session: Session,
    queue: str,
    count: int | None,
    timeout: float,
    *,
    is_committed: bool,
    follow: bool,
) -> None:
    """Print messages: bare bodies, each with a newline, or one line of JSON each.

    Without --commit every message is given back when all are printed, which counts as one of its attempts;
    `cassq peek` looks without that. With --commit a message ends once it is written out. Prints nothing,
    and exits 0, when none comes in time.
    """
    if follow and not is_committed:
        raise click.UsageError("--follow needs --commit: what is given back would come again at once")
    limit = count or (None if follow else 1)
    with session.queue(queue) as opened:
        finish = _Committing() if is_committed else _Returning(opened.settings.max_attempts)
        with opened.popper() as popper, session.ending.politely() as wish:
            try:
                _Printing(popper, finish, wish, is_json=session.is_json).run(
                    limit, None if follow else timeout
                )
            finally:
                finish.close()


@click.command()
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True, help="At most so many.")
@common_options
@pass_session
def peek(session: Session, queue: str, count: int) -> None:
    """Print the next messages without taking them; nothing changes."""
    with session.queue(queue) as opened:
        found = opened.peek(count)
    writer = MessageWriter()
    writer.write([to_line(message, is_json=session.is_json) for message in found])
    if writer.trouble:
        raise writer.trouble


class _Committing:
    """Commits what was written out, and gives the rest back."""

    def note(self, popper: cassq.Popper, deliveries: Sequence[cassq.Delivery], written: int) -> None:
        try:
            popper.commit_many(deliveries[:written])
        finally:
            for delivery in deliveries[written:]:
                delivery.rollback()

    def close(self) -> None:
        pass


class _Returning:
    """Holds everything until the end, so that nothing is printed twice, and gives it back then."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._held: list[cassq.Delivery] = []

    def note(self, _popper: cassq.Popper, deliveries: Sequence[cassq.Delivery], _written: int) -> None:
        self._held += deliveries

    def close(self) -> None:
        for delivery in self._held:
            delivery.rollback()
        if self._held:
            say(
                f"cassq: gave {count_of(len(self._held), 'message')} back; this counts as one of "
                f"{self._max_attempts} attempts (--commit ends messages, `cassq peek` only looks)"
            )


@dataclass
class _Printing:
    """Pops and prints until there is no reason to go on."""

    popper: cassq.Popper
    finish: _Committing | _Returning
    wish: Wish
    is_json: bool

    def run(self, limit: int | None, patience_s: float | None) -> None:
        writer = MessageWriter()
        left = float("inf") if limit is None else limit
        while left > 0 and not self.wish:
            deliveries = self._next(int(min(left, CHUNK)), patience_s)
            if not deliveries:
                break
            written = writer.write([to_line(each, is_json=self.is_json) for each in deliveries])
            self.finish.note(self.popper, deliveries, written)
            if writer.trouble:
                raise writer.trouble
            left -= len(deliveries)
        if patience_s is not None and left == limit and not self.wish:
            say(f"cassq: no message came within {patience_s:g} s")

    def _next(self, count: int, patience_s: float | None) -> list[cassq.Delivery]:
        """Wait in small steps, so that a signal is heard; an outage is waited out, and told once."""
        told = ""
        waited_s = 0.0
        while not self.wish:
            step_s = TICK_S if patience_s is None else min(TICK_S, max(0.0, patience_s - waited_s))
            try:
                deliveries = self.popper.pop_many(count, step_s)
                if deliveries:
                    return deliveries
            except cassq.UnavailableError as error:
                if patience_s is not None and waited_s + step_s >= patience_s:
                    raise
                if patience_s is None and str(error) != told:
                    told = str(error)
                    say(f"cassq: {told}")
            waited_s += step_s
            if patience_s is not None and waited_s >= patience_s:
                break
        return []
