"""The schema of a file store, step by step.

Owns which steps a file still needs, and that a newer file, or one of another program, is refused.
"""

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources

from cassq.errors import SchemaMismatchError


def is_migrated(db: sqlite3.Connection) -> bool:
    """Return whether a file has the schema of this version of cassq."""
    return _version(db) == len(_scripts())


def migrate(db: sqlite3.Connection, where: str) -> None:
    """Take the steps that a file still needs, inside the transaction of the caller.

    Raises:
        SchemaMismatchError: a newer version of cassq made the file, or another program did.
    """
    version, scripts = _version(db), _scripts()
    if version > len(scripts):
        raise SchemaMismatchError(
            f"{where} has schema {version}; this cassq knows up to {len(scripts)}: upgrade cassq"
        )
    if version == 0 and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise SchemaMismatchError(f"{where} holds another program's tables; name a file of cassq's own")
    for script in scripts[version:]:
        for statement in _statements(script):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(scripts)}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@cache
def _scripts() -> tuple[str, ...]:
    folder = resources.files("cassq") / "schema" / "migrations" / "sqlite"
    steps = sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda s: s.name)
    return tuple(each.read_text(encoding="utf-8") for each in steps)


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
