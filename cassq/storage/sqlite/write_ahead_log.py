"""The write-ahead log of a file, under a name that no power cut takes.

Owns that each connection has the log made and its folder synced before it is used. SQLite makes the log with
the first read where there is none, syncs its folder with the first commit, and goes on where that failed.
"""

import sqlite3
import time

from cassq.errors import AccessDeniedError, StorageUnavailableError
from cassq.runtime.files import sync_names
from cassq.storage.sqlite.errors_map import primary_code

_TRIES_MAX = 200
_PAUSE_S = 0.01


def keep_log(connection: sqlite3.Connection, path: str, where: str) -> bool:
    """Have a log for as long as the connection is open; False where its folder cannot be synced at all.

    Args:
        where: names the file.

    Raises:
        AccessDeniedError: the folder may not be read.
        StorageUnavailableError: syncing the folder failed.
    """
    _write_ahead(connection)
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # makes the log
    try:
        return sync_names(path)
    except PermissionError as error:
        raise AccessDeniedError(
            f"{where}: its folder may not be read, and so cannot be synced: a power cut could take "
            f"what is stored; let this user read the folder: {error}"
        ) from error
    except OSError as error:
        raise StorageUnavailableError(
            f"{where}: its folder cannot be synced, and a power cut could take what is stored; "
            f"nothing was written: {error}"
        ) from error


def _write_ahead(connection: sqlite3.Connection) -> None:
    # Switching takes an exclusive lock that SQLite's busy timeout does not wait for.
    for tries_left in reversed(range(_TRIES_MAX)):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or not tries_left:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
