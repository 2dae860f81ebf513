"""`cassq pop --exec`: a command for each message, which ends as the command does.

Owns the command's words, what it gets, and what its end means. What must not break: a message is committed
only after its command exited with 0; whatever else happens to the command or to cassq, the message comes
again, without an attempt counted where its command could not be started. The body is handed over in a file
without a name, so neither a command that reads nothing nor a body larger than a pipe can stop anybody.
"""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryFile

import click

import cassq
from cassq.cli.bench.arrivals import Arrivals
from cassq.cli.output import say
from cassq.runtime.clock import SystemClock
from cassq.runtime.deadline import Deadline

#: What the command finds in its environment; one variable for each header, and all of them as JSON.
OWN = (
    *("CASSQ_QUEUE", "CASSQ_MESSAGE_ID", "CASSQ_ATTEMPT", "CASSQ_PUSHED_AT", "CASSQ_PRIORITY"),
    *("CASSQ_TYPE", "CASSQ_KEY", "CASSQ_HEADERS"),
)
HEADER = "CASSQ_HEADER_"

_INTERRUPTED = "cassq was interrupted"

#: A lease is extended so often before it would end: one try may fail.
EXTEND_PER_LEASE = 3

#: A command that a second signal ends has so long to go before it is killed.
GRACE_S = 5.0


def to_command(text: str, *, is_shell: bool) -> Sequence[str]:
    """Return the words to start.

    Raises: UsageError: there are none, a quote is not closed, or there is no such program.
    """
    if is_shell:
        return ["/bin/sh", "-c", text]
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"--exec {text!r} cannot be split into words: {error}") from None
    if not words:
        raise click.UsageError("--exec needs a command")
    if not shutil.which(words[0]):
        raise _missing(words[0], "no such program")
    return words


class _NotStartedError(Exception):
    """The command could not be started, for a reason that is not the message's."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass
class Execution:
    """Runs the command for one message after the other.

    Attributes:
        committed, rolled_back: messages so far; one that came again counts again.
    """

    arrivals: Arrivals
    words: Sequence[str]
    queue: cassq.Queue
    committed: int = 0
    rolled_back: int = 0

    @property
    def count(self) -> int:
        """Return for how many messages the command ran."""
        return self.committed + self.rolled_back

    def summary(self) -> Mapping[str, object]:
        """Return the counts as JSON values."""
        return {"queue": self.queue.name, "committed": self.committed, "rolled_back": self.rolled_back}

    def run(self, limit: int | None) -> None:
        """Run the command until `limit` messages were tried, none comes any more, or a signal came."""
        while (limit is None or self.count < limit) and (deliveries := self.arrivals.next(1)):
            self._end(deliveries[0])
        if not self.count:
            self.arrivals.tell_none()

    def _end(self, delivery: cassq.Delivery) -> None:
        reason: str | None = _INTERRUPTED
        try:
            reason = self._call(delivery)
            if reason is None:
                delivery.commit()
                self.committed += 1
        except _NotStartedError as error:
            reason = None
            delivery.give_back()
            say(f"cassq: message {delivery.message_id} is given back, which counts as no attempt")
            raise error.reason from None
        except (cassq.ConflictError, cassq.OutcomeUnknownError, cassq.UnavailableError) as error:
            # It is done, and comes again: the lease ended before this could be written.
            self.rolled_back += 1
            say(f"cassq: message {delivery.message_id} was done, but its commit failed: {error}")
        finally:
            if reason is not None:
                self.rolled_back += 1
                delivery.rollback(timedelta(0) if reason is _INTERRUPTED else None, reason)
                most = self.queue.settings.max_attempts
                tried = f"attempt {delivery.attempt} of {most}"
                what = "is rolled back" if delivery.attempt < most else "is a dead letter"
                say(f"cassq: message {delivery.message_id} {what} ({tried}): {reason}")

    def _call(self, delivery: cassq.Delivery) -> str | None:
        """Run the command to its end; return None for exit code 0, and otherwise how it ended.

        Raises: _NotStartedError: it cannot be run, and could not for the next message either.
        """
        running: _Running | None = None
        try:
            with TemporaryFile() as body, self.arrivals.wish.held():
                body.write(delivery.body)
                body.flush()  # all of it, or an error: a file of its own may write less than it was given
                os.lseek(body.fileno(), 0, os.SEEK_SET)
                # In a group of its own: Ctrl-C reaches cassq alone, and the command may finish.
                process = subprocess.Popen(  # noqa: S603 - the caller's own command
                    self.words, stdin=body, env=_environment(self.queue.name, delivery), process_group=0
                )
                running = _Running(process, delivery, self.queue.settings.lease.total_seconds())
            return _describe(running.wait())
        except BaseException as error:
            if running:
                running.stop()
                raise
            if not isinstance(error, OSError):
                raise
            if error.errno == errno.E2BIG:
                return "its headers are too large for an environment"
            is_missing = error.errno in {errno.ENOENT, errno.EACCES, errno.ENOEXEC}
            raise _NotStartedError(_missing(self.words[0], error) if is_missing else error) from error


class _Running:
    """A command that was started, and the lease of its message."""

    def __init__(self, process: "subprocess.Popen[bytes]", delivery: cassq.Delivery, lease_s: float) -> None:
        self._process = process
        self._delivery = delivery
        self._pause_s = lease_s / EXTEND_PER_LEASE
        self._is_lost = False
        self._clock = SystemClock()

    def wait(self) -> int:
        """Return its exit code once it has ended; extend the lease meanwhile."""
        while (code := self._wait_until(float("inf"))) is None:
            pass
        return code

    def stop(self) -> None:
        """End it and what it started; extend the lease meanwhile."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._wait_until(self._clock.now() + GRACE_S)
        finally:
            with suppress(ProcessLookupError):  # also what it started and left behind
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait_until(self, until: float) -> int | None:
        while (left_s := until - self._clock.now()) > 0:
            try:
                return self._process.wait(min(self._pause_s, left_s))
            except subprocess.TimeoutExpired:
                with Deadline(until):
                    self._extend()
        return None

    def _extend(self) -> None:
        if self._is_lost:
            return
        try:
            self._delivery.extend()
        except cassq.ConflictError as error:
            self._is_lost = True
            say(f"cassq: message {self._delivery.message_id}, whose command still runs: {error}")
        except (cassq.OutcomeUnknownError, cassq.UnavailableError):
            pass  # the old lease stands, and there is time for another try


def _describe(code: int) -> str | None:
    """Return how a command ended, None when it ended well."""
    if code == 0:
        return None
    if code > 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"


def _environment(queue: str, delivery: cassq.Delivery) -> dict[bytes, bytes]:
    """Return cassq's own environment, and what is told of the message; as UTF-8 whatever the locale is."""
    told = {
        name: value
        for name, value in os.environb.items()
        if name.decode("ascii", "replace") not in OWN and not name.startswith(HEADER.encode())
    }
    values = (
        queue,
        str(delivery.message_id),
        str(delivery.attempt),
        delivery.pushed_at.isoformat(),
        str(delivery.priority),
        delivery.type or "",
        delivery.key or "",
        json.dumps(dict(delivery.headers), ensure_ascii=False),
    )
    for name, value in zip(OWN, values, strict=True):
        told[name.encode()] = value.encode()
    for name, value in delivery.headers.items():
        variable = HEADER + re.sub("[^A-Za-z0-9]", "_", name).upper()
        if "\0" not in value:  # what an earlier version stored; CASSQ_HEADERS has it
            told.setdefault(variable.encode(), value.encode())
    return told


def _missing(program: str, reason: object) -> click.UsageError:
    words = reason.strerror if isinstance(reason, OSError) else reason
    return click.UsageError(
        f"--exec: there is no program {program!r}, or it cannot be run ({words}): "
        "name one on PATH, or its path"
    )
