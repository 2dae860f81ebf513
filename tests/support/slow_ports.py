"""Ports whose calls take time, under a clock that a test moves.

Owns how much time passes between the sending of a call and its answer, and what happens meanwhile. Refuses to
choose which call that is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Delay:
    """How long one call takes.

    Attributes:
        there_s: seconds until it is carried out.
        back_s: seconds from then until its answer is here.
        meanwhile: happens right after it was carried out.
    """

    there_s: float = 0.0
    back_s: float = 0.0
    meanwhile: Callable[[], None] = lambda: None


class Slow:
    """A port of which each call takes the time that a test gives it; no time where it gives none.

    Args:
        passes: lets so many seconds pass.

    Attributes:
        calls: the names of the calls that were made, in their order, since the last `delay`.
    """

    def __init__(self, real: Any, passes: Callable[[float], None]) -> None:
        self.real = real
        self.calls: list[str] = []
        self._passes = passes
        self._delays: dict[int, Delay] = {}

    def delay(self, number: int, delay: Delay) -> None:
        """Let the call of this number, counted from now on and from 0, take its time."""
        self.calls = []
        self._delays = {number: delay}

    def __str__(self) -> str:
        return str(self.real)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.real, name)

        def call(*values: Any, **named: Any) -> Any:
            delay = self._delays.pop(len(self.calls), Delay())
            self.calls.append(name)
            self._passes(delay.there_s)
            answer = method(*values, **named)
            delay.meanwhile()
            self._passes(delay.back_s)
            return answer

        return call
