"""What `cassq doctor` says of an SQLite file.

Owns the judgement; `cassq.installation` reads the facts.
"""

from collections.abc import Iterator
from pathlib import Path

import cassq
from cassq import installation
from cassq.cli.doctor.finding import Finding, Level
from cassq.limits import MIB

#: Below so much room, or below the size of the file, a backlog soon has nowhere to go.
DISK_FREE_MIN = 256 * MIB

#: A log that grows beyond this is never checkpointed: some process keeps an old read open.
LOG_MAX = 512 * MIB

#: The first versions of SQLite without the WAL-reset bug (https://sqlite.org/wal.html#walresetbug), each with
#: the one from which on it is back.
MENDED = (((3, 44, 6), (3, 45, 0)), ((3, 50, 7), (3, 51, 0)), ((3, 51, 3), (4, 0, 0)))


def is_there(target: installation.SqliteTarget) -> bool:
    """Tell whether there is a file; opening a store would make one."""
    return target.path is not None and Path(target.path).exists()


def examine(target: installation.SqliteTarget) -> Iterator[Finding]:
    """Yield what is to be said of a file."""
    if target.path is None:
        yield Finding("file", Level.OK, "memory: lives in one process and ends with it")
        return
    try:
        found = installation.read_sqlite(target)
    except cassq.CorruptError as error:
        yield Finding("file", Level.FAIL, str(error), "name another file, or bring back a copy of this one")
        return
    except cassq.StorageUnavailableError as error:
        yield Finding("file", Level.FAIL, str(error), "make the folder, or take the file's owner's account")
        return
    if found is None:
        yield Finding("file", Level.HINT, f"{target.path!r} is not there yet", "the first command makes it")
        return
    facts, differences = found
    yield _judge_access(target, facts)
    yield _judge_soundness(facts)
    yield _judge_schema(differences)
    yield _judge_journal(facts)
    yield _judge_library(facts)
    yield _judge_durability(target, facts)
    yield _judge_disk(facts)


def _judge_access(target: installation.SqliteTarget, facts: installation.SqliteFacts) -> Finding:
    if facts.is_writable:
        return Finding("file", Level.OK, f"{target.path!r}, {facts.file_bytes / MIB:.1f} MiB")
    return Finding(
        "file",
        Level.FAIL,
        f"{target.path!r}, or its folder, cannot be written by this user",
        "SQLite writes beside the file too: give the user both",
    )


def _judge_soundness(facts: installation.SqliteFacts) -> Finding:
    if not facts.damage:
        return Finding("integrity", Level.OK, "the quick check found nothing")
    return Finding(
        "integrity",
        Level.FAIL,
        "; ".join(facts.damage),
        "stop all processes, copy the file, and recover it with `sqlite3 FILE .recover`",
    )


def _judge_schema(differences: list[str]) -> Finding:
    if not differences:
        return Finding("schema", Level.OK, "is what this cassq needs")
    return Finding(
        "schema", Level.FAIL, "; ".join(differences), "run `cassq schema apply`: it puts missing tables back"
    )


def _judge_journal(facts: installation.SqliteFacts) -> Finding:
    if facts.journal_mode != "wal":
        return Finding(
            "journal",
            Level.WARN,
            f"the journal is {facts.journal_mode!r}, not 'wal': readers and writers wait for each other",
            "any cassq command that opens the store sets it; network file systems cannot, use a local disk",
        )
    if facts.wal_bytes > LOG_MAX:
        return Finding(
            "journal",
            Level.WARN,
            f"the write-ahead log has {facts.wal_bytes / MIB:.0f} MiB",
            "some process keeps a read open for ever; find it with `fuser FILE`",
        )
    return Finding("journal", Level.OK, f"write-ahead log, {facts.wal_bytes / MIB:.1f} MiB")


def _judge_library(facts: installation.SqliteFacts) -> Finding:
    told = f"SQLite {'.'.join(map(str, facts.library))}"
    if any(first <= facts.library < end for first, end in MENDED):
        return Finding("library", Level.OK, told)
    return Finding(
        "library",
        Level.WARN,
        f"{told} has a rare bug: a checkpoint beside a commit of another process may damage the file",
        "use a Python with SQLite 3.51.3 or later, 3.50.7 or 3.44.6, unless its packager has mended this "
        "one; until then let one process at a time use the store",
    )


def _judge_durability(target: installation.SqliteTarget, facts: installation.SqliteFacts) -> Finding:
    if not facts.keeps_names:
        return Finding(
            "durability",
            Level.WARN,
            "the file's folder cannot be synced: a power cut could take what is stored",
            "let this user read the folder, and use a local disk",
        )
    if target.is_durable:
        return Finding("durability", Level.OK, "every write waits for the disk")
    return Finding(
        "durability",
        Level.HINT,
        "durability=normal: a power cut may lose the last moments; a crash of a process loses nothing",
        "leave durability=normal out of the URL where that matters",
    )


def _judge_disk(facts: installation.SqliteFacts) -> Finding:
    told = f"{facts.disk_free_bytes / MIB:,.0f} MiB free"
    if facts.disk_free_bytes >= max(DISK_FREE_MIN, facts.file_bytes):
        return Finding("disk", Level.OK, told)
    return Finding("disk", Level.WARN, told, "make room: pushes fail on a full disk, and nothing is lost")
