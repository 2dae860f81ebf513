"""Tears a thread out of the library at any of its lines, as Ctrl-C does."""

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cassq

LIBRARY = str(Path(cassq.__file__).parent)


class Interruption:
    """Tears this thread out of the library at its n-th line, as Ctrl-C does.

    Python looks for signals after calls; at a `try:`, and between a block and the end of its `with` or its
    `finally`, it never does, so neither does this.
    """

    def __init__(self, line: int, where: str) -> None:
        self._where = where
        self._left = line
        self._entered: set[tuple[FrameType, int]] = set()

    @property
    def has_struck(self) -> bool:
        """Whether it came to that line."""
        return self._left <= 0

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(self._where):
            return None
        if event == "line" and not self._is_exempt(frame):
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self

    def _is_exempt(self, frame: FrameType) -> bool:
        before = linecache.getline(frame.f_code.co_filename, frame.f_lineno - 1).strip()
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if not line.startswith("with "):
            return line == "try:" or before == "finally:"
        is_leaving = (frame, frame.f_lineno) in self._entered
        self._entered.add((frame, frame.f_lineno))
        return is_leaving


def is_ended_before(line: int, call: Callable[[], object], where: str = LIBRARY) -> bool:
    """Call, interrupted at a line of the library; return whether the call ended before it came to that.

    Args:
        where: what the paths of the files begin with whose lines count.
    """
    interruption = Interruption(line, where)
    before = sys.gettrace()
    sys.settrace(interruption)
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    assert not interruption.has_struck
    return True
