"""A history for people to read.

Owns the words: short names for ids, in the order in which they appear, statements by the names that they have
in `cassq.storage.cassandra.statements`, and values by their columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from cassandra.query import UNSET_VALUE
from cluster import EPOCH_MS, Answer
from cql import Select, Term, Write, parse

from cassq.limits import SEQ_MAX
from cassq.storage.cassandra import row_statements, statements, topic_statements
from cassq.storage.cassandra.statement import Statement
from cassq.storage.cassandra.values import to_ms
from cassq.verification.ledger import Line

Event = tuple[float, str, Any]

#: What says little in a history that is to be read.
_BORING = ("READ_CLOCK", "READ_QUEUE", "READ_ENTRIES", "INSERT_QUEUE", "releases", "is refused the claim")

#: Columns that say little here.
_DULL = {"settings", "samples", "shard", "queue", "lease_ms", "holder", "priority", "incarnation"}


@cache
def _names() -> dict[int, str]:
    found: dict[int, str] = {}
    for name, value in {**vars(topic_statements), **vars(row_statements), **vars(statements)}.items():
        for each in value.values() if isinstance(value, dict) else [value]:
            if isinstance(each, Statement):
                found[id(parse(each.cql))] = name
    return found


class Storyteller:
    """Tells one history; ids keep their short names throughout."""

    def __init__(self) -> None:
        self._short: dict[UUID, str] = {}
        self._counts: dict[str, int] = {}

    def tell(self, events: Sequence[Event], *, is_brief: bool = False) -> Iterator[str]:
        """Yield a line for each event.

        Args:
            is_brief: leave out clocks, looks at the list of pipes, and the requests after the last fault.
        """
        is_after = False
        for at, who, what in events:
            words = self._words(what)
            is_after = is_after or what == "all faults end"
            is_request = isinstance(what, tuple)
            if is_brief and is_request and (is_after or words.startswith(_BORING)):
                continue
            yield f"{at:9.4f}  {who:<9} {words}"

    def _words(self, what: Any) -> str:
        if isinstance(what, Line):
            place = f" {self.short(UUID(what.pipe))}:{what.seq}" if what.pipe else ""
            until = f" until {what.until:.3f}" if what.until else ""
            attempt = f" attempt {what.attempt}" if what.attempt else ""
            return f"   {what.kind} {what.message}{place}{attempt}{until}"
        if not isinstance(what, tuple):
            return f"*** {what}"
        if len(what) == 2:
            return f"{what[0]} {self.short(what[1])}"
        _, work, answer = what
        sent = "; ".join(self._statement(*each) for each in work)
        return f"{sent} -> {self._answer(answer)}"

    def _statement(self, statement: Select | Write, values: Sequence[Any]) -> str:
        name = _names().get(id(statement), "?")
        if isinstance(statement, Select):
            terms = [(r.columns[0] + r.sign, r.terms[0]) for r in statement.where]
            return " ".join([name, *self._pairs(terms, values, "")])
        terms = [*statement.key.items(), *(statement.cells or ())]
        conditions = [(r.columns[0] + r.sign, r.terms[0]) for r in statement.conditions or ()]
        # Bound values come in the order of the text; a term knows its place.
        words = [name, *self._pairs(terms, values, "=")]
        return " ".join(words + (["IF", *self._pairs(conditions, values, "")] if conditions else []))

    def _pairs(self, terms: Iterable[tuple[str, Term]], values: Sequence[Any], sign: str) -> Iterator[str]:
        for column, term in terms:
            bound = "now" if term.is_now else term.of(values, 0)
            if column.rstrip("=<>") in _DULL or bound is UNSET_VALUE:
                continue
            value = self.value(bound)
            yield value if column.rstrip("=") == "pipe" else f"{column}{sign}{value}"

    def _answer(self, answer: Any) -> str:
        if isinstance(answer, Answer):
            if answer[0][0]:
                return "applied"
            told = zip(answer.column_names[1:], answer[0][1:], strict=True)
            return "refused " + " ".join(f"{name}={self.value(value)}" for name, value in told)
        if isinstance(answer, BaseException):
            return f"{type(answer).__name__}"
        rows = [" ".join(self.value(value) for value in row if value is not None) for row in answer or ()]
        return f"[{' | '.join(rows)}]" if rows else "ok"

    def value(self, value: Any) -> str:
        """Return a value in a few characters."""
        match value:
            case UUID():
                return self.short(value)
            case bytes():
                return value.decode(errors="replace")
            case datetime():
                ms = to_ms(value)
                return f"{(ms - EPOCH_MS) / 1000:.3f}s" if ms else "0"
            case int() if value == SEQ_MAX:
                return "MAX"
            case tuple() | list() | set() | frozenset():
                return f"({','.join(map(self.value, value))})"
            case _:
                return str(value)

    def short(self, uuid: UUID) -> str:
        """Return an id's short name."""
        if uuid not in self._short:
            kind = "P" if uuid.version == 1 else "u"
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._short[uuid] = f"{kind}{self._counts[kind]}"
        return self._short[uuid]
