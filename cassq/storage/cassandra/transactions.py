"""The model's transactions as conditional batches, and what a refused one says.

Owns the translation only. What must not break: every batch carries at least one condition (without one,
Cassandra writes it whatever is there), and no row is both deleted and written in one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from uuid import UUID

from cassandra.query import UNSET_VALUE

from cassq.errors import InvalidOptionError
from cassq.limits import NO_LIMIT, UNDECIDED
from cassq.model.pipe import Mark, Phase
from cassq.model.transaction import (
    Advance,
    Answer,
    Cancel,
    Drain,
    ForceSeal,
    HeadChange,
    Retire,
    RunChange,
    Seal,
    Transaction,
)
from cassq.storage.cassandra import rows
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.session import Work
from cassq.storage.cassandra.statement import Statement
from cassq.storage.cassandra.values import Values


def to_work(pipe: UUID, transaction: Transaction) -> list[Work]:
    """Return the statements of a transaction.

    Raises:
        InvalidOptionError: no part of it has a condition.
    """
    head = transaction.head
    if head is None and all(change.if_lease_id is None for change in transaction.runs):
        raise InvalidOptionError("a transaction without a condition would be written whatever is there")
    work: list[Work] = [] if head is None else [_head_work(pipe, head)]
    work.extend(_run_work(pipe, change) for change in transaction.runs)
    set_mark = cql.SET_FIRST_MARK if isinstance(head, Cancel) else cql.SET_MARK
    work.extend((timed(set_mark, mark), rows.mark_values(pipe, mark)) for mark in transaction.marks)
    return work


def timed(statement: Statement, mark: Mark) -> Statement:
    """Return the statement that writes a mark, with when it does where the mark asks for that."""
    return statement if mark.ended_at_ms is None else cql.TIMED[statement]


def to_answer(transaction: Transaction, reply: Sequence[Mapping[str, Any]]) -> Answer:
    """Read the database's reply: one row that says applied, or one row for each row with a condition."""
    if reply[0]["[applied]"]:
        return Answer(is_applied=True)
    if not isinstance(transaction.head, Seal):
        return Answer(is_applied=False)
    for row in reply:
        # The reply to a lone statement has no key columns.
        if row.get("kind", cql.HEAD_KIND) == cql.HEAD_KIND and row.get("last") is not None:
            return Answer(is_applied=False, cursor=row["cursor"], last=row["last"])
    return Answer(is_applied=False)


def _head_work(pipe: UUID, change: HeadChange) -> Work:
    match change:
        case Advance(seen_op, head):
            values = (
                *(head.op, head.cursor, head.read_from, head.floor),
                *(head.skipped, head.dead, head.purged, head.rolled_back),
                head.expired or UNSET_VALUE,  # it never falls, and most queues have none
            )
            return cql.ADVANCE, (*values, pipe, seen_op, head.cursor)
        case Seal(last, is_free):
            return cql.SEAL, (last, Phase.SEALED.value, pipe, UNDECIDED, NO_LIMIT if is_free else last)
        case ForceSeal(seen_op, op):
            return cql.SET_PHASE, (op, Phase.SEALED.value, pipe, seen_op)
        case Drain(seen_op, op, last):
            return cql.DRAIN, (op, last, pipe, seen_op, UNDECIDED)
        case Retire(seen_op, op, journal):
            statement = cql.RETIRE_JOURNALED if journal else cql.SET_PHASE
            return statement, (op, Phase.RETIRED.value, *(journal or ()), pipe, seen_op)
        case Cancel(op, seq):
            return cql.CANCEL, (op, pipe, seq)
        case _:
            assert_never(change)


def _run_work(pipe: UUID, change: RunChange) -> Work:
    written = rows.run_values(change.run)
    leased_at: Values = () if change.is_leased_now else (change.run.leased_at_ms,)
    seen: Values = ()
    condition = ""
    if change.if_lease_id is not None:
        condition, seen = "lease_id = ?", (change.if_lease_id,)
        if change.if_leased_at_ms is not None:
            condition, seen = "lease_id = ? AND leased_at = ?", (*seen, change.if_leased_at_ms)
    key = (pipe, change.run.first)
    return cql.WRITE_RUN[condition, change.is_leased_now], (*written, *leased_at, *key, *seen)
