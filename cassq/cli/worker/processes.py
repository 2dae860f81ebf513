"""Processes that work, and when each is started, replaced and stopped.

Owns how many there are: a worker has so many places, and in each one process that serves, and at times
another one that is to follow it. Knows a process by its ticks alone. What must not break: a process that
serves is told to stop only once the next one of its place is ready; and no fault of starting another one
costs those that work.
"""

import os
import random
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cassq.cli.exit_codes import INTERNAL, UNAVAILABLE
from cassq.cli.output import say
from cassq.cli.worker.child import AT_ONCE, Tick
from cassq.runtime.clock import Clock

#: A process that has not told anything for so long is not healthy.
SILENT_S = 15.0

#: A new one is started so long after one has ended badly, twice as long after each, up to a most.
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0

#: One that ends so soon counts; so many in a row, and none will do better.
YOUNG_S = 10.0
DEATHS_MAX = 3

#: Recycling by messages is spread by so much, so that not all are replaced at once.
SPREAD = 0.1

#: A process that does not end so long after its drain is killed.
KILL_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take.

    Attributes:
        drain_s: how long its handlers may go on once it is told to stop.
        messages_max: it is replaced after so many.
        memory_max: it is replaced when it holds more resident memory, in bytes.
    """

    drain_s: float
    messages_max: int | None = None
    memory_max: int | None = None


class Died(Exception):  # noqa: N818
    """Raised when processes end as soon as they are started.

    Attributes:
        exit_code: of the last one.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"{DEATHS_MAX} processes ended within {YOUNG_S:g} s of their start")
        self.exit_code = exit_code


@dataclass(slots=True, eq=False)
class _Child:
    process: "subprocess.Popen[bytes]"
    told: int
    started_at: float
    messages_max: float
    heard_at: float
    tick: Tick | None = None
    kill_at: float = float("inf")
    rest: bytes = field(default=b"")

    @property
    def is_ready(self) -> bool:
        return self.tick is not None and self.tick.is_ready

    @property
    def ended_badly(self) -> bool:
        """Whether it was cut off, or failed, where it may have had messages, told of them or not."""
        code = self.process.returncode
        return code != 0 and (self.tick is not None or code not in {-signal.SIGTERM, UNAVAILABLE, INTERNAL})

    @property
    def how(self) -> str:
        code = self.process.returncode
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


@dataclass(slots=True, eq=False)
class _Place:
    start_at: float
    failures: int = 0
    serving: _Child | None = None
    following: _Child | None = None


class Processes:
    """The processes of one worker.

    Args:
        command: what starts one; the number of the file for its ticks is added.
        count: how many are to serve.

    Attributes:
        ended_badly: how many of those that were told to stop did not end well.
    """

    def __init__(self, command: Sequence[str], count: int, limits: Limits, clock: Clock) -> None:
        self._command = command
        self._limits = limits
        self._clock = clock
        self._places = [_Place(clock.now()) for _ in range(count)]
        self._leaving: list[_Child] = []
        self._deaths = 0
        self.ended_badly = 0
        self._dice = random.Random()

    def look(self) -> None:
        """Hear ticks, note ends, start and replace what has to be.

        Raises: Died: they end as soon as they are started.
        """
        self._look_at_leaving()
        for place in self._places:
            self._look_at(place)
        self._reap_orphans()

    def replace_all(self) -> None:
        """Start new ones; each that serves stops once the new one of its place is ready."""
        for place in self._places:
            if place.following:  # it may have the code of before
                self._stop(place.following)
                place.following = None
            if place.serving:
                place.following = self._start(place)

    def stop_all(self, *, at_once: bool = False) -> None:
        """Tell all to stop, and start none any more."""
        for place in self._places:
            for child in (place.serving, place.following):
                if child:
                    self._stop(child)
        self._places = []
        if at_once:
            for child in self._leaving:
                _send(child, AT_ONCE)

    def kill_all(self) -> None:
        """Kill those that are left."""
        for child in self._children:
            child.process.kill()
            child.process.wait()

    @property
    def are_healthy(self) -> bool:
        """Whether each place has a process that is ready, was heard of, and is not late with all it does."""
        now = self._clock.now()
        return bool(self._places) and all(
            (child := place.serving)
            and (tick := child.tick)
            and tick.is_ready
            and now - child.heard_at < SILENT_S
            and tick.late < max(1, tick.slots)
            for place in self._places
        )

    @property
    def are_gone(self) -> bool:
        """Whether all have ended that were told to stop."""
        return not self._leaving

    def pause(self, seconds: float) -> None:
        """Wait for ticks, so long at most."""
        poll = select.poll()
        for child in self._children:
            poll.register(child.told, select.POLLIN)
        poll.poll(1000 * seconds)

    @property
    def _children(self) -> list[_Child]:
        own = [child for place in self._places for child in (place.serving, place.following) if child]
        return [*own, *self._leaving]

    def _look_at_leaving(self) -> None:
        for child in list(self._leaving):
            self._hear(child)
            if self._has_ended(child):
                self._leaving.remove(child)
                if child.ended_badly:
                    self.ended_badly += 1
                    say(f"cassq: process {child.process.pid} did not stop well ({child.how})")
            elif self._clock.now() >= child.kill_at:
                child.kill_at = float("inf")
                child.process.kill()

    def _look_at(self, place: _Place) -> None:
        now = self._clock.now()
        if (following := place.following) and self._has_ended(following):
            place.following = None
            self._note_failure(place, following, "the old one goes on")
        if (serving := place.serving) and self._has_ended(serving):
            place.serving, place.following = place.following, None
            self._note_death(place, serving)
        for child in (place.serving, place.following):
            if child:
                self._hear(child)
        if place.serving and place.following and place.following.is_ready:
            self._stop(place.serving)
            place.serving, place.following, place.failures = place.following, None, 0
        is_due = now >= place.start_at
        if not place.serving and is_due:
            place.serving = self._start(place)
        elif place.serving and not place.following and is_due and self._has_done_enough(place.serving):
            place.following = self._start(place)

    def _note_death(self, place: _Place, child: _Child) -> None:
        is_young = self._clock.now() - child.started_at < YOUNG_S
        if not is_young:
            self._deaths = place.failures = 0
        elif child.process.returncode != UNAVAILABLE:  # waiting helps where the store is out of reach
            self._deaths += 1
        if self._deaths >= DEATHS_MAX:
            raise Died(child.process.returncode)
        self._note_failure(place, child, "another one is there" if place.serving else "")

    def _note_failure(self, place: _Place, child: _Child, else_: str) -> None:
        pause_s = min(BACKOFF_S * 2**place.failures, BACKOFF_MAX_S)
        place.failures = min(place.failures + 1, 10)
        place.start_at = self._clock.now() + pause_s
        then = else_ or f"another one starts in {pause_s:g} s"
        say(f"cassq: process {child.process.pid} ended ({child.how}); {then}")

    def _start(self, place: _Place) -> _Child | None:
        """Start a process; None where that failed, which is tried again later."""
        told = telling = -1
        try:
            told, telling = os.pipe()
            process = subprocess.Popen(  # noqa: S603 - this program itself
                [*self._command, str(telling)],
                stdin=subprocess.PIPE,
                pass_fds=(telling,),
                process_group=0,  # Ctrl-C reaches this process alone, which tells the others
            )
        except OSError as error:
            if told >= 0:
                os.close(told)
            place.start_at = self._clock.now() + BACKOFF_MAX_S
            say(f"cassq: no process could be started ({error}); trying again in {BACKOFF_MAX_S:g} s")
            return None
        finally:
            if telling >= 0:
                os.close(telling)
        os.set_blocking(told, False)
        now = self._clock.now()
        most = self._limits.messages_max
        spread = float("inf") if most is None else most * (1 + SPREAD * (2 * self._dice.random() - 1))
        return _Child(process, told, now, spread, now)

    def _hear(self, child: _Child) -> None:
        with suppress(BlockingIOError):
            while data := os.read(child.told, 65536):
                *lines, child.rest = (child.rest + data).split(b"\n")
                if lines:
                    child.tick, child.heard_at = Tick.from_line(lines[-1]), self._clock.now()

    def _has_ended(self, child: _Child) -> bool:
        """Tell whether a process has ended; close what is left of it."""
        if child.process.poll() is None:
            return False
        os.close(child.told)
        if child.process.stdin:
            child.process.stdin.close()
        return True

    def _reap_orphans(self) -> None:
        """Reap what handlers left behind, where this is the first process of a container."""
        own = {child.process.pid for child in self._children}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:  # the next look hears of it, and of those behind it
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _has_done_enough(self, child: _Child) -> bool:
        most, tick = self._limits.memory_max, child.tick
        if tick is None:
            return False
        # One that holds too much before it has done anything would be replaced for ever.
        return tick.done >= child.messages_max or (most is not None and tick.memory > most and tick.done > 0)

    def _stop(self, child: _Child) -> None:
        self._leaving.append(child)
        child.kill_at = self._clock.now() + self._limits.drain_s + KILL_S
        _send(child, signal.SIGTERM)


def _send(child: _Child, number: int) -> None:
    with suppress(ProcessLookupError):
        child.process.send_signal(number)
