"""The part of CQL that cassq speaks, read from cassq's own statements.

Owns turning a statement's text into what is to be read or written: so that the simulation runs the words that
a cluster gets, and a word that is missing there is missing here. Refuses every word that it does not know.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[2] / "schema" / "cassandra.cql"

_TOKEN = re.compile(r"'[^']*'|-?\d+|[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?|<=|>=|[=<>(),?*]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the schema.

    Attributes:
        is_repaired: a read answers once those that it asked have what it shows: `read_repair` is BLOCKING.
    """

    name: str
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    types: Mapping[str, str]
    gc_grace_s: int
    is_repaired: bool


@dataclass(frozen=True, slots=True)
class Term:
    """A value in a statement: bound, written out, or the coordinator's clock."""

    place: int = -1
    literal: Any = None
    is_now: bool = False

    def of(self, values: Sequence[Any], now_ms: int) -> Any:
        if self.is_now:
            return now_ms
        return self.literal if self.place < 0 else values[self.place]


@dataclass(frozen=True, slots=True)
class Relation:
    """A comparison of columns with terms; several columns are compared as a tuple, one with any of IN (…)."""

    columns: tuple[str, ...]
    sign: str
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """A read of one table; `table` is None for the node's clock.

    Attributes:
        columns: what each row is answered with: a column, or `writetime(column)`.
        named: the columns that read repair writes back; None for all of them.
        has_clock: the coordinator's clock comes with each row, behind its columns.
    """

    table: Table | None
    columns: tuple[str, ...] = ()
    named: frozenset[str] | None = None
    where: tuple[Relation, ...] = ()
    is_descending: bool = False
    limit: Term | None = None
    has_clock: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one row, or the deletion of a row, a range or a partition.

    Attributes:
        cells: what is written; None for a deletion.
        timestamp: None leaves it to the coordinator, or to the transaction.
        conditions: None for a plain write.
        is_insert: an insert makes the row exist.
        is_if_absent: INSERT … IF NOT EXISTS.
        within: of the deletion of a range: the last column of its key, from which value on, and up to which.
    """

    table: Table
    key: Mapping[str, Term]
    cells: tuple[tuple[str, Term], ...] | None
    timestamp: Term | None = None
    conditions: tuple[Relation, ...] | None = None
    is_insert: bool = False
    is_if_absent: bool = False
    within: tuple[str, Term, Term] | None = None


@cache
def tables() -> Mapping[str, Table]:
    """Read the tables of the schema that users load."""
    text = re.sub(r"--.*", "", SCHEMA.read_text(encoding="utf-8"))
    found: dict[str, Table] = {}
    created = r"CREATE TABLE IF NOT EXISTS cassq\.(\w+) \((.*?)\n\)(.*? gc_grace_seconds = (\d+).*?);\n"
    for name, body, options, gc_grace_s in re.findall(created, text, re.DOTALL):
        key = re.search(r"PRIMARY KEY \(\(([\w, ]+)\)([\w, ]*)\)", body)
        if key is None:
            raise ValueError(f"table {name} has no key that is understood")
        columns = re.findall(r"^\s+(\w+) (\w[\w<>, ]*?),?$", body.replace(key.group(0), ""), re.MULTILINE)
        found[name] = Table(
            name,
            tuple(re.findall(r"\w+", key.group(1))),
            tuple(re.findall(r"\w+", key.group(2))),
            dict(columns),
            int(gc_grace_s),
            "read_repair = 'NONE'" not in options,
        )
    return found


def written_in(column: str) -> str | None:
    """Return the column whose time of writing is asked for; None where its value is."""
    return column[len("writetime(") : -1] if column.startswith("writetime(") else None


@cache
def parse(text: str) -> Select | Write:
    """Read one statement of cassq's.

    Raises:
        ValueError: it has a word that is not understood.
    """
    return _Parser(text.replace("{ks}", "cassq")).statement()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._bound = 0

    def statement(self) -> Select | Write:
        kinds = {
            "SELECT": self._select,
            "INSERT": self._insert,
            "UPDATE": self._update,
            "DELETE": self._delete,
        }
        word = self._next()
        if word not in kinds:
            raise ValueError(f"{word} is not understood: {self._text}")
        found = kinds[word]()
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at]} is not understood: {self._text}")
        return found

    def _select(self) -> Select:
        columns, has_clock = self._columns()
        self._expect("FROM")
        if not columns:
            self._expect("system.local")
            return Select(None)
        table = self._table()
        where = self._relations() if self._is("WHERE") else ()
        is_descending = False
        if self._is("ORDER"):
            self._expect("BY")
            self._next()
            is_descending = self._next() == "DESC"
        limit = self._term() if self._is("LIMIT") else None
        named = frozenset(written_in(column) or column for column in columns)
        is_whole = named >= table.types.keys() - {*table.partition, *table.clustering}
        return Select(table, columns, None if is_whole else named, where, is_descending, limit, has_clock)

    def _insert(self) -> Write:
        self._expect("INTO")
        table = self._table()
        self._expect("(")
        columns = self._names()
        for word in (")", "VALUES", "("):
            self._expect(word)
        terms = self._terms()
        self._expect(")")
        is_if_absent = self._is("IF")
        if is_if_absent:
            self._expect("NOT")
            self._expect("EXISTS")
        timestamp = self._timestamp()
        keys = (*table.partition, *table.clustering)
        pairs = list(zip(columns, terms, strict=True))
        return Write(
            table,
            key={column: term for column, term in pairs if column in keys},
            cells=tuple((column, term) for column, term in pairs if column not in keys),
            timestamp=timestamp,
            conditions=() if is_if_absent else None,
            is_insert=True,
            is_if_absent=is_if_absent,
        )

    def _update(self) -> Write:
        table = self._table()
        timestamp = self._timestamp()
        self._expect("SET")
        cells: list[tuple[str, Term]] = []
        while not cells or self._is(","):
            column = self._next()
            self._expect("=")
            cells.append((column, self._term()))
        self._expect("WHERE")
        key = {relation.columns[0]: relation.terms[0] for relation in self._relations()}
        conditions = self._relations() if self._is("IF") else None
        return Write(table, key, tuple(cells), timestamp, conditions)

    def _delete(self) -> Write:
        self._expect("FROM")
        table = self._table()
        timestamp = self._timestamp()
        self._expect("WHERE")
        relations = self._relations()
        key = {each.columns[0]: each.terms[0] for each in relations if each.sign == "="}
        bounds = [each for each in relations if each.sign != "="]
        if not bounds:
            conditions = self._relations() if self._is("IF") else None
            return Write(table, key, None, timestamp, conditions)
        first, last = bounds
        if (first.sign, last.sign, first.columns) != (">=", "<=", last.columns):
            raise ValueError(f"the range is not understood: {self._text}")
        return Write(table, key, None, timestamp, within=(*first.columns, *first.terms, *last.terms))

    def _timestamp(self) -> Term | None:
        if not self._is("USING"):
            return None
        self._expect("TIMESTAMP")
        return self._term()

    def _relations(self) -> tuple[Relation, ...]:
        found: list[Relation] = []
        while not found or self._is("AND"):
            if self._is("("):
                columns = self._names()
                self._expect(")")
                sign = self._next()
                self._expect("(")
                found.append(Relation(columns, sign, self._terms()))
                self._expect(")")
            else:
                column = self._next()
                sign = self._next()
                is_any = sign == "IN"
                if is_any:
                    self._expect("(")
                found.append(Relation((column,), sign, self._terms() if is_any else (self._term(),)))
                if is_any:
                    self._expect(")")
        return tuple(found)

    def _columns(self) -> tuple[tuple[str, ...], bool]:
        """Read the names of columns, and whether the clock is asked for behind them."""
        names = []
        while not self._is("to_timestamp"):
            name = self._next()
            if name == "writetime":
                self._expect("(")
                name = f"writetime({self._next()})"
                self._expect(")")
            names.append(name)
            if not self._is(","):
                return tuple(names), False
        self._expect_now()
        return tuple(names), True

    def _expect_now(self) -> None:
        for word in ("(", "now", "(", ")", ")"):
            self._expect(word)

    def _names(self) -> tuple[str, ...]:
        names = [self._next()]
        while self._is(","):
            names.append(self._next())
        return tuple(names)

    def _terms(self) -> tuple[Term, ...]:
        terms = [self._term()]
        while self._is(","):
            terms.append(self._term())
        return tuple(terms)

    def _term(self) -> Term:
        word = self._next()
        if word == "?":
            self._bound += 1
            return Term(place=self._bound - 1)
        if word == "to_timestamp":
            self._expect_now()
            return Term(is_now=True)
        if word.startswith("'"):
            return Term(literal=word[1:-1])
        return Term(literal=int(word))

    def _table(self) -> Table:
        return tables()[self._next().removeprefix("cassq.")]

    def _next(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def _is(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == word:
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._is(word):
            found = self._tokens[self._at] if self._at < len(self._tokens) else "the end"
            raise ValueError(f"{word} was expected, not {found}: {self._text}")
