"""One process of `cassq demo`: a pusher or a popper.

Owns what such a process does; told what to do by one line of JSON on stdin, and to end by its end. The
store's URL comes in CASSQ_URL, where no process list shows a password. What must not break: an outcome is
written down only after it is one, and a popped message before it is committed.
"""

import json
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import cassq
from cassq.verification.ledger import Kind, LedgerWriter, Line

#: Files pushed, and messages popped, at once.
PUSH_CHUNK = 40
POP_CHUNK = 20

#: How soon a popper that finds nothing notices that it may end.
TICK_S = 0.2


def main() -> int:
    """Push or pop, as stdin says."""
    # Ctrl-C goes to the whole terminal; the demo's own process ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger().addHandler(logging.NullHandler())
    work = json.loads(_read_line())
    ledger = LedgerWriter(Path(work["ledger"]), work["name"])
    try:
        with cassq.connect(os.environ["CASSQ_URL"]) as store:
            queue = store.find_queue(work["queue"])
            if "files" in work:
                _push(queue, work, ledger)
            else:
                _pop(queue, work["stall_after"], ledger)
    except cassq.CassqError as error:
        sys.stderr.write(f"cassq: {work['name']}: {error}\n")
        return error.exit_code
    return 0


def _push(queue: cassq.Queue, work: dict[str, Any], ledger: LedgerWriter) -> None:
    ledger.note(Kind.READY)
    for chunk in _chunks(work["files"], work["root"], work["copies"]):
        ids = queue.push_many(chunk)
        hashes = [headers["sha256"] for _, headers in chunk]
        at = ledger.now()
        ledger.append(
            Line(at, ledger.who, Kind.ACKNOWLEDGED, str(each), pipe=str(each.pipe), digest=digest)
            for each, digest in zip(ids, hashes, strict=True)
        )


def _chunks(files: list[str], root: str, copies: int) -> Iterator[list[tuple[bytes, dict[str, str]]]]:
    chunk: list[tuple[bytes, dict[str, str]]] = []
    for copy in range(copies):
        for name in files:
            body = (Path(root) / name).read_bytes()
            headers = {"path": name, "copy": str(copy), "sha256": sha256(body).hexdigest()}
            chunk.append((body, headers))
            if len(chunk) == PUSH_CHUNK:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _pop(queue: cassq.Queue, stall_after: int | None, ledger: LedgerWriter) -> None:
    handled = 0
    with queue.popper() as popper:
        ledger.note(Kind.READY, words=popper.name)
        while not _is_over():
            try:
                deliveries = popper.pop_many(POP_CHUNK, TICK_S)
            except cassq.UnavailableError:
                continue
            if not deliveries:
                continue
            _note(ledger, Kind.DELIVERED, deliveries)
            if stall_after is not None and handled >= stall_after:
                ledger.note(Kind.HOLDING)
                while True:
                    signal.pause()  # like a worker that hangs; it is killed here
            # Run by run: then what a call ends with is true of all that it names.
            for _, each in groupby(deliveries, key=lambda delivery: delivery.run):
                _commit(ledger, popper, list(each))
            handled += len(deliveries)
        ledger.note(Kind.CLOSING)


def _commit(ledger: LedgerWriter, popper: cassq.Popper, deliveries: Sequence[cassq.Delivery]) -> None:
    _note(ledger, Kind.COMMITTING, deliveries)
    try:
        popper.commit_many(deliveries)
    except cassq.DeliveryExpiredError:
        kind = Kind.EXPIRED
    except cassq.CassqError:
        kind = Kind.UNKNOWN_COMMIT
    else:
        kind = Kind.COMMITTED
    _note(ledger, kind, deliveries)


def _note(ledger: LedgerWriter, kind: Kind, deliveries: Sequence[cassq.Delivery]) -> None:
    at = ledger.now()
    ledger.append(_line(at, ledger.who, kind, each) for each in deliveries)


def _line(at: float, who: str, kind: Kind, delivery: cassq.Delivery) -> Line:
    message = delivery.message_id
    if kind is not Kind.DELIVERED:
        return Line(at, who, kind, str(message), delivery.attempt)
    return Line(
        at,
        who,
        kind,
        str(message),
        delivery.attempt,
        until=at + delivery.run.left_s,
        pipe=str(message.pipe),
        seq=message.seq,
        digest=sha256(delivery.body).hexdigest(),
    )


def _read_line() -> bytes:
    # Unbuffered: `_is_over` asks the operating system whether there is more.
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        return stdin.readline()


def _is_over() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main())
