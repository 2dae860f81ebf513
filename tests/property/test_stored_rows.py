"""Whatever stands in a row: it is read as what would be written there, or refused with `DecodeError`."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.errors import DecodeError
from cassq.limits import SEQ_MAX, UNDECIDED
from cassq.model.ids import MessageId, new_pipe_id, time_key
from cassq.model.key import NO_SLOT
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Phase, Run, RunState
from cassq.model.queue_record import QueueRecord, Sample
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.tally import Tally
from cassq.storage.cassandra import rows as cassandra_rows
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite import rows as sqlite_rows

quietly = settings(derandomize=True, deadline=None, max_examples=300)

PIPE = new_pipe_id()
HEAD = Head(uuid4(), 7, 8, 3, Phase.SEALED, 9, 1, 1, 1, 1)
RUN = Run(4, 7, 2, RunState.RETURNED, 2, uuid4(), 0, 30_000, 5_000, "me", 1)
BATCH = Batch(4, (b"one", b"two"), ({"a": "b"}, {}), 2, 1_000, 60_000)
LETTER = DeadLetter(
    MessageId(PIPE, 4), b"one", {"a": "b"}, 1_000, 2, "it was given up", 2_000, 3, "refund", "a key"
)
RECORD = QueueRecord(
    "orders",
    uuid4(),
    QueueSettings(),
    uuid4(),
    totals=Tally(6, 5, 4, 1, 1, 1),
    counted=frozenset({PIPE}),
    samples=(Sample(1_000, 3, 2, 1),),
)

#: What SQLite can store.
CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 12),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(
        ["", "[]", "{}", "[[]]", "null", "NaN", "1e999", '{"a": null}', '[{"a": "b"}, 1]', "[" * 9999]
    ),
    st.sampled_from(["open", "sealed", "retired", "leased", "returned", "committed", "active", "deleted"]),
    st.binary(max_size=20),
    st.uuids().map(lambda each: each.bytes),
)


def spoilt(row: tuple) -> st.SearchStrategy[tuple]:
    """Return rows like this one with some of their cells changed."""
    changes = st.dictionaries(st.integers(0, len(row) - 1), CELLS, min_size=1, max_size=3)
    return changes.map(lambda change: tuple(change.get(place, cell) for place, cell in enumerate(row)))


def written_again(kind: str, row: tuple) -> tuple:
    """Read a row and return what would be written for what was read."""
    match kind:
        case "head":
            return sqlite_rows.head_row(sqlite_rows.to_head(row))
        case "run":
            run = sqlite_rows.to_run(row)
            return sqlite_rows.run_row(run, run.leased_at_ms)
        case "mark":
            mark = sqlite_rows.to_mark(row)
            return mark.first, mark.last, mark.end.value, mark.target, mark.attempt, mark.ended_at_ms
        case "batch" | "keyed":
            batch = sqlite_rows.to_batch(row)
            return sqlite_rows.batch_row(batch, batch.pushed_at_ms)
        case "letter":
            letter = sqlite_rows.to_letter(row)
            return sqlite_rows.letter_row(letter, letter.died_at_ms)
    record = sqlite_rows.to_record(row)
    return record.name, *sqlite_rows.record_row(record)


ROWS = {
    "head": sqlite_rows.head_row(HEAD),
    "run": sqlite_rows.run_row(RUN, 0),
    "mark": (4, 7, "dead", None, 0, 2_000),
    "batch": sqlite_rows.batch_row(BATCH, 1_000),
    "keyed": sqlite_rows.batch_row(replace(BATCH, keys=("a", "b")), 1_000),
    "letter": sqlite_rows.letter_row(LETTER, 2_000),
    "record": ("orders", *sqlite_rows.record_row(RECORD)),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_sound_row_of_a_file_is_written_as_it_was_read(kind):
    assert written_again(kind, ROWS[kind]) == ROWS[kind]


@quietly
@given(st.sampled_from(sorted(ROWS)).flatmap(lambda kind: st.tuples(st.just(kind), spoilt(ROWS[kind]))))
def test_a_row_of_a_file_is_read_as_it_stands_or_refused(case):
    kind, row = case
    try:
        again = written_again(kind, row)
    except DecodeError as error:
        assert len(str(error)) < 500
        return
    if kind == "record":  # JSON may be spaced as it likes, and settings may be those of an older version
        assert again[:4] == row[:4]
    else:
        assert again[:4] == row[:4]
        assert again[-1] == row[-1]


@quietly
@given(spoilt((time_key(PIPE), "me", 0, 0, 1_000, "a type", 3, time_key(PIPE), 7)))
def test_an_entry_of_a_file_is_read_as_it_stands_or_refused(row):
    try:
        entry = sqlite_rows.to_entry(row, Shelf.DUE)
    except DecodeError:
        return
    assert sqlite_rows.entry_row(entry, entry.created_at_ms) == row


def test_a_sound_entry_is_read():
    row = (time_key(PIPE), "me", 0, 0, 1_000, "a type", 3, None, NO_SLOT)
    assert sqlite_rows.entry_row(sqlite_rows.to_entry(row, Shelf.DUE), 1_000) == row


#: What the driver may make of a column.
COLUMNS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 12),
    st.text(max_size=8),
    st.sampled_from(["open", "sealed", "retired", "leased", "committed", "moved"]),
    st.uuids(),
    st.datetimes(),
    st.binary(max_size=8),
)
_TIME = datetime(2026, 1, 1)  # noqa: DTZ001 - as the driver returns it
_HEAD_ROW = (-1, 0, *cassandra_rows.head_values(HEAD), *[None] * 10, 3, None, uuid4(), 7, None, None, None)
_RUN_ROW = (
    *(4, 1, None, None, 2, None, None, 7, None, None, None, 1, "returned", 2, uuid4()),
    *(_TIME, 30_000, _TIME, "me", None, 0, "no route", *[None] * 7),
)
_MARK_ROW = (4, 2, *[None] * 5, 7, *[None] * 11, "dead", *[None] * 9)


@quietly
@given(
    st.sampled_from([_HEAD_ROW, _RUN_ROW, _MARK_ROW]).flatmap(
        lambda row: st.dictionaries(st.integers(2, 25), COLUMNS, min_size=1, max_size=3).map(
            lambda change: tuple(change.get(place, cell) for place, cell in enumerate(row))
        )
    )
)
def test_a_row_of_pending_is_read_as_what_it_says_or_refused(row):
    try:
        head = cassandra_rows.find_head([row])
        runs, marks = cassandra_rows.to_runs_and_marks([row], 0)
    except DecodeError as error:
        assert "cassq" in str(error)
        return
    if head:
        assert (-1, 0, *cassandra_rows.head_values(head)) == row[:12]
        assert head.expired == (row[22] or 0)
        assert (head.journal or (None, None))[:2] == row[24:26]
        assert 0 <= head.floor <= head.cursor <= head.last <= SEQ_MAX
    for run in runs:
        assert (run.first, run.last, run.read_from, run.state.value) == (row[0], row[7], row[4], row[12])
        assert 1 <= run.read_from <= run.first <= run.last
        assert (run.window_ms, run.reason) == (row[20] or 0, row[21] or "")
        assert datetime(1970, 1, 1) + timedelta(milliseconds=run.leased_at_ms) <= row[15]  # noqa: DTZ001
    for mark in marks:
        assert (mark.first, mark.last, mark.end.value, mark.target) == (row[0], row[7], row[19], row[23])
        assert mark.attempt == (row[13] or 0)
    assert len(runs) + len(marks) + bool(head) == 1


@pytest.mark.parametrize("last", [4, 7])
def test_where_messages_were_moved_stands_beside_a_commit_that_landed_later(last):
    target = uuid4()
    committed = (4, 2, *[None] * 5, last, *[None] * 11, "committed", *[None] * 9)
    moved = (4, 3, *[None] * 5, 4, *[None] * 11, "moved", *[None] * 3, target, *[None] * 5)

    _, marks = cassandra_rows.to_runs_and_marks([committed, moved], 0)

    assert {mark.target for mark in marks} == {None, target}


def test_a_head_that_no_step_leads_to_is_refused():
    impossible = [
        replace(HEAD, phase=Phase.OPEN),  # and its end is decided
        replace(HEAD, phase=Phase.RETIRED),  # and messages wait behind the cursor
        replace(HEAD, phase=Phase.RETIRED, last=UNDECIDED),
        replace(HEAD, cursor=10, read_from=9),
        replace(HEAD, floor=8),
        replace(HEAD, read_from=9),
        replace(HEAD, read_from=0),
    ]
    for head in impossible:
        with pytest.raises(DecodeError):
            sqlite_rows.to_head(sqlite_rows.head_row(head))
        with pytest.raises(DecodeError):
            cassandra_rows.find_head([(-1, 0, *cassandra_rows.head_values(head), *[None] * 17)])


def test_every_ending_is_one_that_both_stores_know():
    for end in End:
        assert (
            sqlite_rows.to_mark((1, 2, end.value, time_key(PIPE) if end is End.MOVED else None, 0, None)).end
            is end
        )
