"""The clock of a file store.

Owns the offset of the machine's elapsed time to the time of day. The time of day is asked once for each boot
of the machine; from then on only elapsed time counts. What must not break: setting the machine's clock
neither ends a lease early nor keeps it for ever.
"""

import sqlite3
import time
from pathlib import Path

from cassq.errors import DecodeError
from cassq.model.ids import shorten
from cassq.runtime.clock import Clock


class StoreClock:
    """Shows the same time to all processes that use a file.

    Args:
        clock: the machine's elapsed time.
        where: names the file.
    """

    def __init__(self, clock: Clock, where: str) -> None:
        self._clock = clock
        self._where = where
        self._boot = _boot_id()
        self._offset_ms = 0

    def now_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return self._offset_ms + self._elapsed_ms()

    def resume(self, db: sqlite3.Connection) -> bool:
        """Go on with the clock that stands in the file; False where none of this boot does.

        Where the system does not tell one boot from the next, a clock that would show less than the file
        knows is of an earlier one. One that would not is as good: no lease in the file ends early by it.
        """
        row = db.execute("SELECT offset_ms FROM clock WHERE boot = ?", (self._boot,)).fetchone()
        if row is None:
            return False
        self._offset_ms = self._check_ms(row[0])
        return bool(self._boot) or self.now_ms() >= self._newest_ms(db)

    def begin(self, db: sqlite3.Connection) -> None:
        """Set the clock by the time of day, inside a write; another process may have done it meanwhile."""
        if self.resume(db):
            return
        self._offset_ms = max(round(time.time() * 1000), self._newest_ms(db)) - self._elapsed_ms()
        db.execute("DELETE FROM clock")
        db.execute("INSERT INTO clock (boot, offset_ms) VALUES (?, ?)", (self._boot, self._offset_ms))

    def _newest_ms(self, db: sqlite3.Connection) -> int:
        newest = db.execute(
            "SELECT max(coalesce((SELECT max(created_at_ms) FROM pipes), 0),"
            " coalesce((SELECT max(leased_at_ms) FROM runs), 0))"
        ).fetchone()
        return self._check_ms(newest[0])

    def _elapsed_ms(self) -> int:
        return round(self._clock.now() * 1000)

    def _check_ms(self, stored: object) -> int:
        if not isinstance(stored, int):
            raise DecodeError(f"{self._where}: {shorten(stored)} is no time, so the store has no clock")
        return stored


def _boot_id() -> str:
    source = Path("/proc/sys/kernel/random/boot_id")
    try:
        return source.read_text(encoding="ascii").strip()
    except OSError:
        return ""
