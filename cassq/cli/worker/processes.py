"""Processes that work, and when each is started, replaced and stopped.

Owns how many there are: a worker has so many places, and in each one process that serves, and at times
another one that is to follow it. Knows a process by its ticks alone. What must not break: a process that
serves is told to stop only once the next one of its place is ready; and no fault of starting another one
costs those that work.
"""

import os
import random
import select
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cassq.cli.exit_codes import UNAVAILABLE
from cassq.cli.output import say
from cassq.cli.worker.process import Process
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
class _Place:
    start_at: float
    failures: int = 0
    serving: Process | None = None
    following: Process | None = None


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
        self._leaving: list[Process] = []
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
            for process in (place.serving, place.following):
                if process:
                    self._stop(process)
        self._places = []
        if at_once:
            for process in self._leaving:
                process.stop_at_once()

    def kill_all(self) -> None:
        """Kill those that are left."""
        for process in self._all:
            process.kill()
            process.wait()

    @property
    def are_healthy(self) -> bool:
        """Whether each place has a process that is ready, was heard of, and is not late with all it does."""
        now = self._clock.now()
        return bool(self._places) and all(
            (process := place.serving)
            and (tick := process.tick)
            and tick.is_ready
            and now - process.heard_at < SILENT_S
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
        for process in self._all:
            poll.register(process.told, select.POLLIN)
        poll.poll(1000 * seconds)

    @property
    def _all(self) -> list[Process]:
        own = [process for place in self._places for process in (place.serving, place.following) if process]
        return [*own, *self._leaving]

    def _look_at_leaving(self) -> None:
        for process in list(self._leaving):
            process.hear()
            if process.has_ended():
                self._leaving.remove(process)
                if process.ended_badly:
                    self.ended_badly += 1
                    say(f"cassq: process {process.pid} did not stop well ({process.how})")
            elif self._clock.now() >= process.kill_at:
                process.kill()

    def _look_at(self, place: _Place) -> None:
        now = self._clock.now()
        if (following := place.following) and following.has_ended():
            place.following = None
            self._note_failure(place, following, "the old one goes on")
        if (serving := place.serving) and serving.has_ended():
            place.serving, place.following = place.following, None
            self._note_death(place, serving)
        for process in (place.serving, place.following):
            if process:
                process.hear()
        if place.serving and place.following and place.following.is_ready:
            self._stop(place.serving)
            place.serving, place.following, place.failures = place.following, None, 0
        is_due = now >= place.start_at
        if not place.serving and is_due:
            place.serving = self._start(place)
        elif place.serving and not place.following and is_due and self._has_done_enough(place.serving):
            place.following = self._start(place)

    def _note_death(self, place: _Place, process: Process) -> None:
        is_young = self._clock.now() - process.started_at < YOUNG_S
        if not is_young:
            self._deaths = place.failures = 0
        elif process.exit_code != UNAVAILABLE:  # waiting helps where the store is out of reach
            self._deaths += 1
        if self._deaths >= DEATHS_MAX:
            raise Died(process.exit_code)
        self._note_failure(place, process, "another one is there" if place.serving else "")

    def _note_failure(self, place: _Place, process: Process, else_: str) -> None:
        pause_s = min(BACKOFF_S * 2**place.failures, BACKOFF_MAX_S)
        place.failures = min(place.failures + 1, 10)
        place.start_at = self._clock.now() + pause_s
        then = else_ or f"another one starts in {pause_s:g} s"
        say(f"cassq: process {process.pid} ended ({process.how}); {then}")

    def _start(self, place: _Place) -> Process | None:
        """Start a process; None where that failed, which is tried again later."""
        most = self._limits.messages_max
        spread = float("inf") if most is None else most * (1 + SPREAD * (2 * self._dice.random() - 1))
        try:
            return Process(self._command, spread, self._clock)
        except OSError as error:
            place.start_at = self._clock.now() + BACKOFF_MAX_S
            say(f"cassq: no process could be started ({error}); trying again in {BACKOFF_MAX_S:g} s")
            return None

    def _reap_orphans(self) -> None:
        """Reap what handlers left behind, where this is the first process of a container."""
        own = {process.pid for process in self._all}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:  # the next look hears of it, and of those behind it
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _has_done_enough(self, process: Process) -> bool:
        most, tick = self._limits.memory_max, process.tick
        if tick is None:
            return False
        # One that holds too much before it has done anything would be replaced for ever.
        return tick.done >= process.messages_max or (
            most is not None and tick.memory > most and tick.done > 0
        )

    def _stop(self, process: Process) -> None:
        self._leaving.append(process)
        process.stop(self._limits.drain_s + KILL_S)
