"""How SIGINT, SIGTERM and SIGHUP end a command.

Owns the handlers. The first signal asks a command that listens to come to its end (`politely`); a command
that does not listen, or a second signal, is interrupted where it stands. A supervisor may tell a process and
its group, so what comes again within a moment is the same signal. A command that runs until it is told to
end has done its work when SIGTERM comes, however early: it ends with 0, or a supervisor would call that a
failure. Ctrl-C is 130 even then, because a loop in a shell goes on after a 0. SIGHUP, of a terminal that has
gone, is a SIGTERM. What must not break: stores are closed on the way out in every case, so that messages in
hand go back at once.
"""

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

from cassq.cli.exit_codes import BY_SIGNAL, DONE
from cassq.runtime.clock import Clock, SystemClock

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: They say the same.
TERM = (signal.SIGTERM, signal.SIGHUP)

#: A signal that comes again so soon says nothing new.
AGAIN_S = 1.0


class Stopped(BaseException):
    """Raised when a signal ends the command.

    Attributes:
        exit_code: what the command ends with.
    """

    def __init__(self, number: int, exit_code: int | None = None) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = BY_SIGNAL + number if exit_code is None else exit_code


class Wish:
    """Whether somebody wished the command to end."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_held = False
        self._insisted: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None

    def insist(self, number: int) -> None:
        """Hear of a second signal."""
        if not self._is_held:
            raise Stopped(number)
        self._insisted = number

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a second signal interrupt only after the block, which starts what would be forgotten."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._insisted is not None:
            raise Stopped(self._insisted)


class Ending:
    """The signals of this process, from `install` on.

    Until `begin` they are only noted: what the command is, and so what they mean, is not known.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._heard: tuple[bool, float] | None = None
        self._noted: int | None = None
        self._has_begun = False
        self._is_endless = False
        self._has_listened = False
        self._listening: Wish | None = None

    def install(self, mask: Collection[int] | None = None) -> None:
        """Take the signals over, except those that the process was started to ignore.

        Args:
            mask: the signals to block from then on; those that were blocked until then, and came, are heard.
        """
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_signal)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def begin(self, *, is_endless: bool, reloads: bool = False) -> None:
        """Begin a command.

        Args:
            is_endless: it runs until a signal; SIGTERM is then how it ends well.
            reloads: SIGHUP does not end it; what came so far came before there was anything to reload.
        """
        self._is_endless = is_endless
        if reloads:
            signal.signal(signal.SIGHUP, lambda *_: None)
            if self._noted == signal.SIGHUP:
                self._noted = self._heard = None
        self._has_begun = True
        if self._noted is not None:
            self._stop(self._noted)

    @contextmanager
    def politely(self) -> Iterator[Wish]:
        """Let the first signal only be noted while the block runs, and end the command after it."""
        wish = self._listening = Wish()
        self._has_listened = True
        try:
            yield wish
        finally:
            self._listening = None
        if wish.number is not None and not (self._is_endless and wish.number in TERM):
            raise Stopped(wish.number)

    def on_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """Hear of a signal."""
        if self._is_again(number):
            return
        if not self._has_begun and self._noted is None:
            self._noted = number
        elif self._listening is None:
            self._stop(number)
        elif self._listening:
            self._listening.insist(number)
        else:
            self._listening.number = number

    def _is_again(self, number: int) -> bool:
        kind, now = number in TERM, self._clock.now()
        if self._heard and self._heard[0] == kind and now - self._heard[1] < AGAIN_S:
            return True
        self._heard = kind, now
        return False

    def _stop(self, number: int) -> None:
        is_well = self._is_endless and not self._has_listened and number in TERM
        raise Stopped(number, DONE if is_well else None)
