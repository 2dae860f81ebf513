"""Processes that work, and when each is started, replaced and stopped.

Owns how many there are. Knows a process by its ticks alone. What must not break: a process that is replaced
is told to stop only once the one in its place is ready, so there are never fewer than were asked for.
"""

import os
import random
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cassq.cli.output import say
from cassq.cli.worker.child import Tick
from cassq.runtime.clock import Clock

#: A process that has not told anything for so long is not healthy.
SILENT_S = 15.0

#: A new one is started so long after one has died, twice as long after each, up to a most.
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0

#: One that dies so soon counts; so many in a row, and none will do better.
YOUNG_S = 10.0
DEATHS_MAX = 3

#: Recycling by messages is spread by so much, so that not all are replaced at once.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """When a process has done enough.

    Attributes:
        messages_max: handlers have ended for so many.
        memory_max: it holds more resident memory, in bytes.
    """

    messages_max: int | None = None
    memory_max: int | None = None


class Died(Exception):  # noqa: N818
    """Raised when processes die as soon as they are started.

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
    is_leaving: bool = False
    replaces: "_Child | None" = None
    rest: bytes = field(default=b"")

    @property
    def is_ready(self) -> bool:
        return self.tick is not None and self.tick.is_ready


class Processes:
    """The processes of one worker.

    Args:
        command: what starts one; the number of the file for its ticks is added.
        count: how many there are to be.
    """

    def __init__(self, command: Sequence[str], count: int, limits: Limits, clock: Clock) -> None:
        self._command = command
        self._count = count
        self._limits = limits
        self._clock = clock
        self._children: list[_Child] = []
        self._deaths = 0
        self._start_at = clock.now()
        self._dice = random.Random()

    def look(self) -> None:
        """Hear ticks, note deaths, start and replace what has to be.

        Raises: Died: they die as soon as they are started.
        """
        for child in self._children:
            self._hear(child)
        for child in [each for each in self._children if each.process.poll() is not None]:
            self._note_end(child)
        for child in list(self._children):
            if child.is_ready and child.replaces:
                self._stop(child.replaces)
                child.replaces = None
            if not child.is_leaving and child.tick and self._has_done_enough(child, child.tick):
                self.replace(child)
        missing = self._count - sum(not each.is_leaving for each in self._children)
        if missing > 0 and self._clock.now() >= self._start_at:
            for _ in range(missing):
                self._start()

    def replace_all(self) -> None:
        """Start new ones; each old one stops once a new one is ready."""
        for child in list(self._children):
            if not child.is_leaving:
                self.replace(child)

    def replace(self, child: "_Child") -> None:
        """Start one in the place of another, which goes on until that is ready."""
        child.is_leaving = True
        self._start(replaces=child)

    def stop_all(self) -> None:
        """Tell all to stop; once more: at once."""
        self._count = 0
        for child in self._children:
            self._stop(child)

    def kill_all(self) -> None:
        """Kill those that are left."""
        for child in self._children:
            child.process.kill()
            child.process.wait()

    @property
    def are_healthy(self) -> bool:
        """Whether there are as many as were asked for, all of them ready, heard of, and not all late."""
        now, well = self._clock.now(), 0
        for child in self._children:
            tick = child.tick
            if tick and tick.is_ready and now - child.heard_at < SILENT_S and tick.late < max(1, tick.slots):
                well += 1
        return well >= max(1, self._count)

    def __len__(self) -> int:
        return len(self._children)

    def wait(self, seconds: float) -> None:
        """Wait until all have ended, or so long."""
        end = self._clock.now() + seconds
        while self._children and self._clock.now() < end:
            self.pause(0.1)
            self.look()

    def pause(self, seconds: float) -> None:
        """Wait for ticks, so long at most."""
        select.select([child.told for child in self._children], [], [], seconds)

    def _start(self, replaces: "_Child | None" = None) -> None:
        told, telling = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603 - this program itself
                [*self._command, str(telling)],
                stdin=subprocess.PIPE,
                pass_fds=(telling,),
                process_group=0,  # Ctrl-C reaches this process alone, which tells the others
            )
        finally:
            os.close(telling)
        os.set_blocking(told, False)
        now = self._clock.now()
        most = self._limits.messages_max
        spread = float("inf") if most is None else most * (1 + SPREAD * (2 * self._dice.random() - 1))
        self._children.append(_Child(process, told, now, spread, now, replaces=replaces))

    def _hear(self, child: _Child) -> None:
        with suppress(BlockingIOError):
            while data := os.read(child.told, 65536):
                *lines, child.rest = (child.rest + data).split(b"\n")
                if lines:
                    child.tick, child.heard_at = Tick.from_line(lines[-1]), self._clock.now()

    def _note_end(self, child: _Child) -> None:
        self._children.remove(child)
        os.close(child.told)
        if child.process.stdin:
            child.process.stdin.close()
        if child.replaces in self._children:  # it never came so far
            child.replaces.is_leaving = False
        if child.is_leaving:
            return
        code, now = child.process.returncode, self._clock.now()
        self._deaths = self._deaths + 1 if now - child.started_at < YOUNG_S else 0
        if self._deaths >= DEATHS_MAX:
            raise Died(code)
        pause_s = min(BACKOFF_S * 2 ** max(0, self._deaths - 1), BACKOFF_MAX_S)
        self._start_at = now + pause_s
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        say(f"cassq: process {child.process.pid} ended ({how}); another one starts in {pause_s:g} s")

    def _has_done_enough(self, child: _Child, tick: Tick) -> bool:
        most = self._limits.memory_max
        is_large = (
            most is not None and tick.memory > most and tick.done > 0
        )  # or it would be replaced for ever
        return tick.done >= child.messages_max or is_large

    def _stop(self, child: _Child) -> None:
        child.is_leaving = True
        with suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGTERM)
