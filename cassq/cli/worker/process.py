"""One process that works, for the one that watches it.

Owns how it is started, heard and told to stop. Refuses to decide when. What must not break: it has an end of
its ticks and of its standard input for as long as it is watched, and for no longer.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from cassq.cli.exit_codes import INTERNAL, UNAVAILABLE
from cassq.cli.worker.child import AT_ONCE, Tick
from cassq.runtime.clock import Clock


class Process:
    """A process that was started.

    Args:
        command: what starts it; the number of the file for its ticks is added.
        messages_max: it is replaced after so many.

    Attributes:
        told: the file that its ticks come from.
        started_at: when it was started.
        tick: what it told last; None: nothing so far.
        heard_at: when that was, or when it was started.
        kill_at: when it is killed, once it is told to stop.

    Raises: OSError: none could be started.
    """

    def __init__(self, command: Sequence[str], messages_max: float, clock: Clock) -> None:
        self._clock = clock
        self.messages_max = messages_max
        self.told, telling = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [*command, str(telling)],
                stdin=subprocess.PIPE,
                pass_fds=(telling,),
                process_group=0,  # Ctrl-C reaches this process alone, which tells the others
            )
        except BaseException:
            os.close(self.told)
            raise
        finally:
            os.close(telling)
        os.set_blocking(self.told, False)
        self.pid = self._process.pid
        self.started_at = self.heard_at = clock.now()
        self.tick: Tick | None = None
        self.kill_at = float("inf")
        self._rest = b""

    @property
    def is_ready(self) -> bool:
        """Whether its poppers pop."""
        return self.tick is not None and self.tick.is_ready

    @property
    def exit_code(self) -> int:
        """What it ended with, once it has; the number of a signal, negative."""
        return self._process.returncode

    @property
    def ended_badly(self) -> bool:
        """Whether it was cut off, or failed, where it may have had messages, told of them or not."""
        code = self.exit_code
        return code != 0 and (self.tick is not None or code not in {-signal.SIGTERM, UNAVAILABLE, INTERNAL})

    @property
    def how(self) -> str:
        """How it ended, in words."""
        code = self.exit_code
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def hear(self) -> None:
        """Hear what it told since."""
        with suppress(BlockingIOError):
            while data := os.read(self.told, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                if lines:
                    self.tick, self.heard_at = Tick.from_line(lines[-1]), self._clock.now()

    def has_ended(self) -> bool:
        """Tell whether it has ended; close what is left of it."""
        if self._process.poll() is None:
            return False
        os.close(self.told)
        if self._process.stdin:
            self._process.stdin.close()
        return True

    def stop(self, patience_s: float) -> None:
        """Tell it to stop, and to be killed where it has not ended after so long."""
        self.kill_at = self._clock.now() + patience_s
        self._send(signal.SIGTERM)

    def stop_at_once(self) -> None:
        """Tell it to stop at once."""
        self._send(AT_ONCE)

    def kill(self) -> None:
        """Kill it."""
        self.kill_at = float("inf")
        self._process.kill()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
