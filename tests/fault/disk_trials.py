"""Trials of a process on a disk that fails, played in forks of this one, which runs under `disk.c`.

Owns what a trial does and what is found after it; the ledgers have it. Refuses to judge. What must not
break: a fork plays one trial and is gone, and nothing of it is known afterwards but its files and its ledger.

    CASSQ_DISK=FOLDER LD_PRELOAD=disk.so python disk_trials.py

Reads a request a line, as JSON, and answers each with a line. `{"play": …}` plays a scene, with a fault or
without; `{"examine": …}` has a new process drain a store, as of now and again a day later.
"""

import json
import os
import signal
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from socket import socket, socketpair
from typing import Any
from uuid import UUID

from disk_scenes import QUEUE, SCENES, Stage, disk
from workers import commit

import cassq
from cassq.bulk.staging import Staging
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.ids import MessageId
from cassq.model.shelf import Shelf
from cassq.observing.dead_letters import DeadLetters
from cassq.queue import Queue
from cassq.storage.sqlite import write_ahead_log
from cassq.storage.sqlite.file import SqliteFile
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.verification.ledger import Kind, Line, read_ledger

#: So few pages in the log, and they go to the file: each step meets checkpoints.
CHECKPOINT_PAGES = 8


# -- bugs, to see whether they are found --------------------------------------------------------------------


def _pragma(words: str) -> None:
    real = SqliteFile._connect

    def connect(file: SqliteFile) -> sqlite3.Connection:
        connection = real(file)
        if file.path:
            connection.execute(f"PRAGMA {words}")
        return connection

    SqliteFile._connect = connect


def _append_later() -> None:
    real = SqliteStorage.append

    def append(storage: SqliteStorage, *what: Any) -> None:
        threading.Timer(0.05, real, (storage, *what)).start()

    SqliteStorage.append = append


def _believe_failed_commits() -> None:
    real = SqliteFile._commit

    def commit_anyway(file: SqliteFile, connection: sqlite3.Connection) -> None:
        with suppress(OutcomeUnknownError):
            real(file, connection)

    SqliteFile._commit = commit_anyway


def _remove_before_pushing() -> None:
    def put_back(letters: DeadLetters, message_id: MessageId) -> None:
        for letter in letters._find([message_id], []):
            letters._remove([letter])
            letters._push([(letter.body, letter.headers)])

    DeadLetters.put_back = put_back


def _publish_undecided() -> None:
    def publish(staging: Staging, _writer: str, _batch: int, pipes: Sequence[UUID]) -> bool:
        for entry in staging._storage.list_pipes(staging._queue, shelf=Shelf.STAGED).entries:
            if entry.pipe in pipes:
                staging._storage.publish_pipes(staging._queue, [entry])
        return True

    Staging.publish = publish


def _leave_the_folder() -> None:
    write_ahead_log.sync_names = lambda _path: None


PLANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "nothing waits for the disk": lambda: _pragma("synchronous=OFF"),
    "a commit does not wait for the disk": lambda: _pragma("synchronous=NORMAL"),
    "the folder of the log is left to SQLite": _leave_the_folder,
    "a push is acknowledged before it is written": _append_later,
    "a commit that failed is taken for one that was made": _believe_failed_commits,
    "a dead letter is removed before it is pushed again": _remove_before_pushing,
    "a bulk write is published pipe by pipe, and never decided": _publish_undecided,
}


# -- the processes ------------------------------------------------------------------------------------------


def play(
    given: dict[str, Any], answer: Callable[[Any], None], meet: Callable[[], object] = lambda: None
) -> None:
    """Play a scene; answers how many calls changed files under it, then ends as it was told to."""
    PLANTS[given.get("plant", "")]()
    stage = Stage(given["url"], Path(given["ledger"]), given.get("who", "actor"), given["scene"], meet)
    scene = SCENES[given["scene"]](stage)
    if "record" in given:
        disk.disk_record(given["record"].encode())
    store = next(scene)
    if "arm" in given:
        disk.disk_arm(*given["arm"])
    try:
        store = next(scene)
    except CassqError as error:
        stage.ledger.note(Kind.REAPED, words=f"raised {error!r}")
    except BaseException as error:
        stage.trouble(error)
    counted = disk.disk_disarm()
    if given.get("goes_on"):
        try:
            _go_on(stage, store)
        except BaseException as error:
            stage.trouble(error)
    answer(counted)
    os.kill(os.getpid(), signal.SIGKILL)


def _go_on(stage: Stage, store: cassq.Store | None) -> None:
    """Push, pop and commit once more, and end in order: the disk is well again."""
    if store is None or store.is_closed:
        store = stage.open()
    queue = stage.queue(store)
    stage.push(queue)
    popped = stage.pop(stage.popper(queue))
    if not popped:
        stage.ledger.note(Kind.TROUBLE, words="nothing comes, though the disk is well again")
    commit(stage.ledger, stage.popper(queue), popped)
    stage.ledger.note(Kind.CLOSING)
    store.close()
    stage.ledger.note(Kind.DONE)


def examine(
    given: dict[str, Any], answer: Callable[[Any], None], wait: Callable[[], object] | None = None
) -> None:
    """Drain a store, now and a day later, and answer what is left in it.

    Args:
        wait: where it is a neighbour, which has the store open before: returns once it is to look.
    """
    if "boot" in given:
        disk.disk_reboot(given["boot"].encode())
    path = given["url"].removeprefix("sqlite:///").partition("?")[0]
    stage = Stage(given["url"], Path(given["found"]), "finder", given["scene"])
    try:
        if not wait:
            # Before the store has a clock: that of a new boot begins where it is opened.
            stage.catch_up(_lines(given["after"]))
        with stage.open() as store:
            if wait:
                stage.queue(store).stats()
                wait()
                stage.catch_up(_lines(given["after"]))
            stage.hear_of_letters(_lines(given["after"]))
            is_there = QUEUE in store.queues()
            queue = stage.queue(store)
            _drain(stage, queue)
            for _ in range(6):
                stage.let_a_day_pass()
                store.reap()
                if not _pipes(store):
                    break
                _drain(stage, queue)
            stage.letters(queue)
            left, stats = _pipes(store), queue.stats()
        with closing(sqlite3.connect(path)) as db:
            integrity = [row[0] for row in db.execute("PRAGMA integrity_check")]
        figures = {name: getattr(stats, name) for name in FIGURES}
        answer({"is_there": is_there, "stats": figures, "left": left, "integrity": integrity})
    except BaseException as error:
        answer({"error": "".join(traceback.format_exception(error))})


FIGURES = ("pushed", "popped", "committed", "waiting", "pending", "delayed", "dead", "pipes")


def _lines(ledgers: Sequence[str]) -> list[Line]:
    return [line for ledger in ledgers for line in read_ledger(Path(ledger))]


def _pipes(store: cassq.Store) -> int:
    """Return how many pipes are listed, those that nobody sees yet among them."""
    listings = (store.storage.list_pipes(QUEUE, shelf=shelf) for shelf in Shelf)
    return sum(len(listing.entries) for listing in listings)


def _drain(stage: Stage, queue: Queue) -> None:
    with queue.popper() as popper:
        while popped := stage.pop(popper, 100, timeout=0):
            commit(stage.ledger, popper, popped)


def _fork(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, int]:
    """Have a fork do something; return it and what its answer can be read from."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    try:
        os.close(reads)
        work(lambda told: os.write(writes, json.dumps(told).encode()) and None)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _await(child: int, reads: int) -> Any:
    with os.fdopen(reads, "rb") as answers:
        told = answers.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else None


def _trial(given: dict[str, Any]) -> dict[str, Any]:
    """Play, and have a new process or a neighbour examine what is there after it."""
    if "play" not in given:
        return {"found": _await(*_fork(lambda answer: examine(given["examine"], answer)))}
    if "beside" in given:
        return {"calls": _play_both(given["play"], given["beside"])}
    if not given.get("is_neighbour"):
        calls = _await(*_fork(lambda answer: play(given["play"], answer)))
        if "examine" not in given:
            return {"calls": calls}
        return {"calls": calls, **_trial({"examine": given["examine"]})}
    is_ready, may_look = os.pipe(), os.pipe()

    def wait() -> None:
        os.write(is_ready[1], b"!")
        os.read(may_look[0], 1)

    neighbour = _fork(lambda answer: examine(given["examine"], answer, wait))
    os.read(is_ready[0], 1)
    calls = _await(*_fork(lambda answer: play(given["play"], answer)))
    os.write(may_look[1], b"!")
    found = _await(*neighbour)
    for end in (*is_ready, *may_look):
        os.close(end)
    return {"calls": calls, "found": found}


def _play_both(*scenes: dict[str, Any]) -> list[int | None]:
    """Play two scenes at once."""
    ends = socketpair()

    def playing(
        given: dict[str, Any], mine: socket, other: socket
    ) -> Callable[[Callable[[Any], None]], None]:
        def meet() -> None:
            with suppress(OSError):  # the other is dead
                mine.send(b"!")
                mine.recv(1)

        def work(answer: Callable[[Any], None]) -> None:
            other.close()
            play(given, answer, meet)

        return work

    forks = [_fork(playing(given, *each)) for given, each in zip(scenes, (ends, ends[::-1]), strict=True)]
    for end in ends:
        end.close()
    return [_await(*each) for each in forks]


def main() -> None:
    """Answer requests until there are no more."""
    _pragma(f"wal_autocheckpoint={CHECKPOINT_PAGES}")
    for request in sys.stdin:
        print(json.dumps(_trial(json.loads(request))), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
