"""What the tests of the storage contract make, read and compare."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cassq.errors import OutcomeUnknownError
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry, Run, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.transaction import (
    Advance,
    RunChange,
    Transaction,
)
from cassq.storage.forms import DeadLetter

EARLY_MS = 1_600_000_000_000


def batch(first, *bodies, headers=None):
    return Batch(first, bodies, headers, len(bodies))


def run(first, last, **changes):
    values = {
        "read_from": first,
        "state": RunState.LEASED,
        "attempt": 1,
        "lease_id": new_token(),
        "leased_at_ms": EARLY_MS,
        "lease_ms": 30_000,
        "not_before_ms": 0,
        "holder": "a popper",
        "rolled_back": 0,
    }
    return Run(first, last, **(values | changes))


def record(name, **changes):
    return replace(QueueRecord(name, new_token(), QueueSettings(), new_token()), **changes)


def letter(pipe, seq, **changes):
    values = {"body": b"a body", "headers": {"type": "new"}, "pushed_at_ms": EARLY_MS, "attempts": 5}
    return DeadLetter(
        MessageId(pipe, seq),
        **(values | {"reason": "it failed", "priority": 3, "type": "refund", "key": "k"} | changes),
    )


def undated(letters):
    return [replace(found, died_at_ms=0) for found in letters]


def created(storage, queue, **head):
    pipe = new_pipe_id()
    storage.create_pipe(queue, PipeEntry(pipe, "a pusher"), Head(new_token(), **head))
    return pipe


def head_of(storage, pipe):
    return storage.load_pipe(pipe).head


def advance(storage, pipe, *, runs=(), marks=(), **head):
    """Apply an owner's change that does hold, and return the head that it leaves."""
    seen = head_of(storage, pipe)
    wanted = replace(seen, op=new_token(), **head)
    answer = storage.transact(pipe, Transaction(Advance(seen.op, wanted), tuple(runs), tuple(marks)))
    assert answer.is_applied
    return wanted


def take(storage, pipe, taken):
    """Hand a run out."""
    return advance(storage, pipe, cursor=taken.last, runs=[RunChange(taken)])


def race(change, wanted):
    """Make all changes at the same moment; return those applied, and those of unknown outcome."""
    start = threading.Barrier(len(wanted))

    def run_one(mine):
        start.wait()
        try:
            return change(mine)
        except OutcomeUnknownError:
            return None  # replicas that are contended for may not say; what is stored tells

    with ThreadPoolExecutor(len(wanted)) as pool:
        answers = list(zip(pool.map(run_one, wanted), wanted, strict=True))
    return [mine for said, mine in answers if said], [mine for said, mine in answers if said is None]


def check_one_winner(applied, unknown, left, seen):
    """Check that at most one was told that it won, and that what is left is what the winner wrote."""
    assert len(applied) <= 1
    assert left in (applied or [*unknown, seen])
    assert applied or unknown
