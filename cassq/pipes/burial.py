"""Messages that nobody gets: they become dead letters and are marked after that, or are dropped.

Owns what a letter says, whoever buries: the consumer that gave a message up, or the pipe's next owner. What
must not break: no mark before its letter. After a crash in between the same rows are written again.
"""

import logging
from collections.abc import Iterable
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.model.ids import MessageId
from cassq.model.pipe import End, Mark, PipeEntry, Run
from cassq.model.ranges import Ranges
from cassq.model.retrying import NO_REASON, in_one_line
from cassq.model.take_plan import Handout, Taken
from cassq.pipes.batch_reader import BatchReader
from cassq.storage.forms import DeadLetter
from cassq.storage.port import Storage

_log = logging.getLogger("cassq.popper")


def bury(context: QueueContext, entry: PipeEntry, run: Run, messages: Iterable[Handout]) -> list[Mark]:
    """Write the messages of a run to the dead letters, and mark them; return the marks.

    Raises: StorageUnavailableError, OutcomeUnknownError, AccessDeniedError: it is to be done once more.
    """
    storage, queue, reason = context.storage, context.queue, run.reason or NO_REASON
    keys = _keys_of(storage, entry.pipe, run) if entry.is_keyed else {}
    letters: list[DeadLetter] = []
    buried = Ranges()
    for seq, body, headers, pushed_at_ms, message_id in messages:
        what = message_id or MessageId(entry.pipe, seq), body, headers, pushed_at_ms, run.attempts, reason
        key = keys.get(seq, "")
        letters.append(DeadLetter(*what, priority=entry.priority, type=entry.type, key=key))
        buried.add(seq, seq)
    storage.change_dead(queue, added=letters)
    marks = [Mark(*part, End.DEAD, attempt=entry.attempt_of(run)) for part in buried]
    storage.mark(entry.pipe, context.timed(marks))
    if letters:
        first, last = letters[0].message_id, letters[-1].message_id
        told = f"message {first} is a dead letter"
        if len(letters) > 1:
            told = f"{len(letters)} messages from {first} to {last} are dead letters"
        _log.warning("queue %s: %s now, after attempt %d: %s", queue, told, run.attempts, in_one_line(reason))
    return marks


def drop(context: QueueContext, entry: PipeEntry, taken: Taken) -> list[Mark]:
    """Mark the messages of a run that has expired; return the marks.

    Raises: StorageUnavailableError, OutcomeUnknownError, AccessDeniedError: it is to be done once more.
    """
    dropped = Ranges((part.first, part.last) for part in taken.parts)
    marks = [Mark(*part, End.EXPIRED, attempt=entry.attempt_of(taken.run)) for part in dropped]
    context.storage.mark(entry.pipe, context.timed(marks))
    _log.info("queue %s: %d messages of pipe %s have expired", context.queue, taken.count, entry.pipe)
    return marks


def _keys_of(storage: Storage, pipe: UUID, run: Run) -> dict[int, str]:
    """Read the keys of a run's messages, by their numbers."""
    batches = BatchReader(storage, pipe, is_outline=True).read_run(run, run.last)
    return {batch.first + place: key for batch in batches for place, key in enumerate(batch.keys or ())}
