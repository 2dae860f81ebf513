"""The writers in a queue's record: what was decided of each, and which may be forgotten.

Owns what an entry of the record means, and how it changes. Pure. What must not break: a writer with a
manifest is never forgotten, and a batch that was decided stays so.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from math import inf
from uuid import UUID

from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord, Written

#: Writers of one batch only, whose entry in the record goes when all is published; a time-UUID follows.
ONCE = "once-"


def is_decided(record: QueueRecord, writer: str, batch: int) -> bool:
    """Tell whether a batch, or a later one, was decided."""
    written = record.writers.get(writer)
    return written is not None and written.batch >= batch


def is_finished(record: QueueRecord, writer: str, batch: int) -> bool:
    """Tell whether it was decided, and nothing of its writer is left to be published."""
    return is_decided(record, writer, batch) and record.writers[writer].manifest is None


def is_of(entry: PipeEntry, writers: Collection[str]) -> bool:
    """Tell whether a staged pipe was filled for one of these writers."""
    return entry.pusher.partition("/")[0] in writers


def decide(record: QueueRecord, writer: str, batch: int, manifest: UUID | None) -> QueueRecord:
    """Return the record in which this manifest is the batch."""
    return replace(record, writers={**record.writers, writer: Written(batch, manifest)})


def finish(record: QueueRecord, writer: str, written: Written) -> QueueRecord:
    """Return the record in which nothing of this batch is left to be published."""
    if record.writers.get(writer) != written:
        return record  # somebody else did
    writers = {**record.writers, writer: replace(written, manifest=None)}
    return replace(record, writers=writers, publications=record.publications + 1)


def ended(record: QueueRecord) -> set[str]:
    """Return the writers of one batch of which nothing is left to be published."""
    return {
        writer
        for writer, written in record.writers.items()
        if writer.startswith(ONCE) and not written.manifest
    }


def born_before(record: QueueRecord, before_ms: float) -> set[str]:
    """Return the writers without a manifest that began earlier, by their names: they failed, or died."""
    return {
        writer
        for writer, written in record.writers.items()
        if not written.manifest and _born_ms(writer) < before_ms
    }


def without(record: QueueRecord, writers: set[str]) -> QueueRecord:
    """Return the record without these writers."""
    kept = {name: written for name, written in record.writers.items() if name not in writers}
    return replace(record, writers=kept)


def _born_ms(writer: str) -> float:
    """Return when a writer of one batch got its name, by its own clock: good enough for what is days old."""
    with suppress(ValueError):
        if writer.startswith(ONCE):
            return (UUID(writer.removeprefix(ONCE)).time - TICKS_BEFORE_1970) / TICKS_PER_MS
    return inf
