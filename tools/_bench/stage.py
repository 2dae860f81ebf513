"""The stage of a benchmark: a folder, and the servers in it until the benchmark ends.

Owns how the words of the command line become servers and contestants. What must not break: whatever was
started is ended, however the benchmark ends.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from _bench.clients.cassq_clients import CassqOnCassandra, CassqOnSqlite
from _bench.clients.contestant import Client
from _bench.servers import CassandraServer


@dataclass(frozen=True, slots=True)
class Stage:
    """A store that is up.

    Attributes:
        opener: makes a client of cassq's.
        told: versions and settings of the store.
        folder: for files.
        server: where the store is on Cassandra.
    """

    opener: Callable[[], Client]
    told: Mapping[str, str]
    folder: Path
    server: CassandraServer | None


@contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[Path]:
    """Lend the folder that was named, or a temporary one."""
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        yield options.folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="cassq-bench-") as made:
        yield Path(made)


@contextmanager
def staged(options: argparse.Namespace, store: str | None = None) -> Iterator[Stage]:
    """Lend the store that was asked for; `store` speaks for commands that use several."""
    store = store or options.store
    with folder_of(options) as folder:
        if store == "sqlite":
            sqlite = CassqOnSqlite()
            sqlite.start(folder)
            told = {**sqlite.versions(), "journal_mode": "WAL", "synchronous": "EXTRA"}
            yield Stage(sqlite.opener(), told, folder, None)
            return
        server = CassandraServer(options.url, is_ring=store == "ring", commitlog_sync=options.commitlog_sync)
        contestant = CassqOnCassandra(server)
        try:
            contestant.start(folder)
            told = {**contestant.versions(), **server.settings()}
            yield Stage(contestant.opener(), told, folder, server)
        finally:
            contestant.stop()
