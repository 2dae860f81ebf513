"""What a failure of SQLite means.

Owns the one place where SQLite's errors become cassq errors, but for a busy file and a failed commit: those
depend on what was waited for, and are the file's.
"""

import sqlite3

from cassq.errors import CassqError, CorruptError, StorageUnavailableError

_NOT_OURS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; is its folder there, and writable?",
}


def primary_code(error: sqlite3.Error) -> int:
    """Return the error's primary code: the low byte; what is above it only refines it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def explain(error: sqlite3.Error, where: str) -> CassqError:
    """Return what an error of a file means; `where` names the file."""
    code = primary_code(error)
    if code in _NOT_OURS:
        return CorruptError(f"{where} is not an SQLite database, or damaged: {error}")
    return StorageUnavailableError(f"{where}: {_REASONS.get(code, str(error))}; nothing was written")
