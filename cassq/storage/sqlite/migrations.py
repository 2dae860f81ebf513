"""The schema of a file store, step by step.

Owns which steps a file still needs, and that a newer file, or one of another program, is refused.
"""

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources

from cassq.errors import SchemaMismatchError

#: The last step that an older cassq cannot work beside. Later ones only add.
MUST_KNOW = 5


def is_migrated(db: sqlite3.Connection) -> bool:
    """Return whether a file has what this version of cassq needs, and nothing that it must know besides."""
    current, must_know = versions(db)
    return current >= len(_scripts()) and must_know <= len(_scripts())


def last_step() -> int:
    """Return the number of the last step that this version of cassq knows."""
    return len(_scripts())


def versions(db: sqlite3.Connection) -> tuple[int, int]:
    """Return which version a file has (0: none), and which one a cassq must know to work on it."""
    must_know = int(db.execute("PRAGMA user_version").fetchone()[0])
    has_table = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
    added = has_table and db.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    return max(must_know, added or 0), must_know


def migrate(db: sqlite3.Connection, where: str) -> None:
    """Take the steps that a file still needs, inside the transaction of the caller.

    Raises:
        SchemaMismatchError: a newer version of cassq made the file, or another program did.
    """
    (current, must_know), scripts = versions(db), _scripts()
    if must_know > len(scripts):
        raise SchemaMismatchError(
            f"{where} has schema {must_know}; this cassq knows up to {len(scripts)}: upgrade cassq"
        )
    if current == 0 and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise SchemaMismatchError(f"{where} holds another program's tables; name a file of cassq's own")
    for script in scripts[current:]:
        for statement in _statements(script):
            db.execute(statement)
    if current < len(scripts):
        db.execute(f"PRAGMA user_version = {max(must_know, MUST_KNOW)}")
        db.execute("INSERT OR REPLACE INTO schema_version VALUES ('added', ?)", (len(scripts),))


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
