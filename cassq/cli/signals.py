"""How SIGINT and SIGTERM end a command.

Owns the two handlers. The first signal asks a command that listens to come to its end (`politely`); a
command that does not listen, or a second signal, is interrupted where it stands. What must not break: in
both cases stores are closed on the way out, so that messages in hand go back at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cassq.cli.exit_codes import BY_SIGNAL

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """Raised when a signal ends the command.

    Attributes:
        exit_code: 128 + the number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = BY_SIGNAL + number


class Wish:
    """Whether somebody wished the command to end."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None


class Ending:
    """The signals of this process, from `install` on."""

    def __init__(self) -> None:
        self._listening: Wish | None = None

    def install(self) -> None:
        """Take the signals over, except those that whoever started this process had ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    @contextmanager
    def politely(self) -> Iterator[Wish]:
        """Let the first signal only be noted while the block runs, and end the command after it."""
        wish = self._listening = Wish()
        try:
            yield wish
        finally:
            self._listening = None
        if wish.number is not None:
            raise Stopped(wish.number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._listening is None or self._listening:
            raise Stopped(number)
        self._listening.number = number
