"""How `cassq bench` tells how far it is: a bar on a terminal, elsewhere a line every second.

Owns the thread that writes the lines. What must not break: a store that hangs is seen to hang, so the lines
do not wait for it.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cassq.cli.output import Bar, progress_bar, say

LINE_EVERY_S = 1.0


@contextmanager
def progress(what: str, total: int) -> Iterator[Bar]:
    """Tell how far a measurement is while the block runs."""
    if sys.stderr.isatty():
        with progress_bar(what, total) as bar:
            yield bar
        return
    lines = _Lines(what, total)
    thread = threading.Thread(target=lines.tell, name="cassq-bench-lines", daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        lines.over.set()
        thread.join()


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self.over = threading.Event()

    def update(self, count: int) -> None:
        self._done += count

    def tell(self) -> None:
        while not self.over.wait(LINE_EVERY_S):
            try:
                say(f"{self._what}: {self._done} of {self._total} messages")
            except OSError:
                return  # nobody reads them any more
