"""A file of the embedded store, as an operator sees it: its schema, and the state of the file.

Owns reading a file that may be missing, damaged or not cassq's at all; refuses to judge it. What must not
break: looking never changes anything, and never makes a file that was not there.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from cassq.errors import CorruptError, StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.runtime.files import sync_names
from cassq.storage.sqlite.file import SqliteFile
from cassq.storage.sqlite.migrations import last_step, versions


@dataclass(frozen=True, slots=True)
class SqliteFacts:
    """What can be told of a file without changing it.

    Attributes:
        damage: what SQLite's quick check found; empty when the file is sound.
        journal_mode: "wal" once cassq has opened the file.
        version: of the schema.
        library: version of SQLite, as this Python has it.
        wal_bytes: size of the write-ahead log beside the file.
        disk_free_bytes: of the disk it is on.
        is_writable: whether this user may write the file and its folder.
        keeps_names: whether the folder can be synced, so that a power cut takes no file out of it.
    """

    damage: tuple[str, ...]
    journal_mode: str
    version: int
    library: tuple[int, int, int]
    file_bytes: int
    wal_bytes: int
    disk_free_bytes: int
    is_writable: bool
    keeps_names: bool


def read_facts(path: str) -> SqliteFacts | None:
    """Look at a file; None where there is none.

    Raises:
        CorruptError: it is not an SQLite database.
        StorageUnavailableError: it, or its folder, cannot be read.
    """
    file = Path(path)
    if not file.exists():
        if not file.absolute().parent.is_dir():
            raise StorageUnavailableError(f"{path!r}: its folder does not exist")
        return None
    with _opened(path) as db:
        found = [str(row[0]) for row in db.execute("PRAGMA quick_check(5)")]
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        version, _ = versions(db)
    log = Path(f"{path}-wal")
    return SqliteFacts(
        damage=() if found == ["ok"] else tuple(found),
        journal_mode=mode,
        version=version,
        library=sqlite3.sqlite_version_info,
        file_bytes=file.stat().st_size,
        wal_bytes=log.stat().st_size if log.exists() else 0,
        disk_free_bytes=shutil.disk_usage(file.absolute().parent).free,
        is_writable=os.access(file, os.W_OK) and os.access(file.absolute().parent, os.W_OK),
        keeps_names=_keeps_names(path),
    )


def _keeps_names(path: str) -> bool:
    try:
        return sync_names(path)
    except OSError:
        return False


class SqliteSchema:
    """The tables of cassq in one file.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def needed(self) -> int:
        """The version that this code reads and writes."""
        return last_step()

    def version(self) -> int | None:
        """Return the version that is in force, or None where there is no schema of cassq's."""
        return self._versions()[0] or None

    def _versions(self) -> tuple[int, int]:
        if not Path(self._path).exists():
            return 0, 0
        with _opened(self._path) as db:
            return versions(db)

    def apply(self) -> None:
        """Bring an older schema up to this version, and put missing tables back."""
        SqliteFile(self._path, SystemClock()).close()  # opening it does the first
        if self.check():
            with _opened(self._path, "rw") as db:
                db.executescript(read_text())

    def check(self) -> list[str]:
        """Return how the file differs from what this code needs, one phrase each; nothing if it fits."""
        version, must_know = self._versions()
        if version == 0:
            is_there = Path(self._path).exists()
            return ["the file has no tables of cassq's" if is_there else "the file does not exist"]
        differences = []
        if not must_know <= self.needed <= version:
            differences.append(f"the version is {version}, and should be {self.needed}")
        with closing(sqlite3.connect(":memory:")) as wanted, _opened(self._path) as stands:
            wanted.executescript(read_text())
            there, needed = _tables(stands), _tables(wanted)
        for table, columns in needed.items():
            if table not in there:
                differences.append(f"table {table} is missing")
            elif version <= self.needed and there[table] != columns:  # what a newer one added is its own
                differences.append(f"table {table} is ({there[table]}), and should be ({columns})")
        return differences


def read_text() -> str:
    """Return the bundled schema."""
    return (resources.files("cassq") / "schema" / "sqlite.sql").read_text("utf-8")


def _tables(db: sqlite3.Connection) -> Mapping[str, str]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: ", ".join(
            f"{column} {kind}"
            for column, kind in db.execute("SELECT name, type FROM pragma_table_info(?)", (name,))
        )
        for name in names
    }


@contextmanager
def _opened(path: str, mode: str = "ro") -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, timeout=5.0)) as db:
            yield db
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise CorruptError(f"{path!r} is not an SQLite database, or damaged: {error}") from error
        raise StorageUnavailableError(f"{path!r} cannot be read: {error}") from error
