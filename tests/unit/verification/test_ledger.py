"""Ledgers: what was written is read again, whole lines only, also while somebody writes."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.errors import CorruptError
from cassq.runtime.clock import SystemClock
from cassq.verification.ledger import Kind, LedgerReader, LedgerWriter, Line, read_ledger

quietly = settings(derandomize=True, deadline=None)

numbers = st.integers(0, 2**53)
seconds = st.floats(0, 1e9)
texts = st.text()

LINES = st.lists(
    st.builds(
        Line,
        at=seconds,
        who=texts,
        kind=st.sampled_from(Kind),
        message=texts,
        attempt=numbers,
        until=seconds,
        pipe=texts,
        seq=numbers,
        digest=texts,
        words=texts,
    )
)

#: Notes one line after the other, until it is killed.
SCRIBBLER = """
import sys
from pathlib import Path
from cassq.verification.ledger import Kind, LedgerWriter
ledger = LedgerWriter(Path(sys.argv[1]), "scribbler")
number = 0
while True:
    ledger.note(Kind.DELIVERED, *(f"{number}-{place}" for place in range(50)))
    print(number, flush=True)
    number += 1
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ledger"


@quietly
@given(LINES)
def test_what_was_written_is_read_again(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("ledgers") / "a.ledger"
    writer = LedgerWriter(path, "a")

    writer.append(lines)
    writer.close()

    assert list(read_ledger(path)) == lines


def test_a_note_carries_the_writer_and_the_machines_elapsed_time(path):
    clock = SystemClock()
    before = clock.now()

    LedgerWriter(path, "a").note(Kind.COMMITTED, "m1", "m2", attempt=3, words="well")

    lines = list(read_ledger(path))
    assert [(line.who, line.kind, line.message, line.attempt, line.words) for line in lines] == [
        ("a", Kind.COMMITTED, "m1", 3, "well"),
        ("a", Kind.COMMITTED, "m2", 3, "well"),
    ]
    assert before <= lines[0].at == lines[1].at <= clock.now()


def test_a_note_about_no_message_is_one_line(path):
    LedgerWriter(path, "a").note(Kind.READY)

    assert [(line.kind, line.message) for line in read_ledger(path)] == [(Kind.READY, "")]


def test_a_ledger_that_was_never_begun_is_empty(path):
    reader = LedgerReader(path)
    reader.read_on()

    assert list(read_ledger(path)) == reader.lines == []


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_last_line_that_a_kill_cut_short_is_dropped(path, cut):
    LedgerWriter(path, "a").note(Kind.DELIVERED, "m1", "m2")
    path.write_bytes(path.read_bytes()[:-cut])

    reader = LedgerReader(path)
    reader.read_on()

    assert [line.message for line in read_ledger(path)] == ["m1"]
    assert [line.message for line in reader.lines] == ["m1"]


@pytest.mark.parametrize("size", [3, 70_000, 200_000])
def test_who_goes_on_in_a_torn_ledger_begins_on_a_line_of_its_own(path, size):
    writer = LedgerWriter(path, "a")
    writer.note(Kind.ATTEMPTED, "m1")
    with path.open("ab") as file:
        file.write(b"[" + b"x" * size)

    LedgerWriter(path, "a").note(Kind.ACKNOWLEDGED, "m1")

    assert [line.kind for line in read_ledger(path)] == [Kind.ATTEMPTED, Kind.ACKNOWLEDGED]


def test_a_torn_first_line_leaves_an_empty_ledger(path):
    path.write_bytes(b'[1.0, "a"')

    LedgerWriter(path, "a")

    assert path.read_bytes() == b""


def test_who_goes_on_in_a_whole_ledger_loses_nothing(path):
    LedgerWriter(path, "a").note(Kind.ATTEMPTED, "m1")
    LedgerWriter(path, "a").note(Kind.ACKNOWLEDGED, "m1")

    assert [line.kind for line in read_ledger(path)] == [Kind.ATTEMPTED, Kind.ACKNOWLEDGED]


def test_a_reader_reads_on_and_waits_for_the_end_of_a_line(path):
    writer = LedgerWriter(path, "a")
    reader = LedgerReader(path)
    writer.note(Kind.DELIVERED, "m1")
    reader.read_on()
    whole = path.read_bytes()
    writer.note(Kind.DELIVERED, "m2")
    both = path.read_bytes()

    # When half of the second line is there, and then all of it
    path.write_bytes(both[: len(whole) + 9])
    reader.read_on()
    assert [line.message for line in reader.lines] == ["m1"]
    path.write_bytes(both)
    reader.read_on()

    assert [line.message for line in reader.of_kind(Kind.DELIVERED)] == ["m1", "m2"]
    assert (reader.count(Kind.DELIVERED), reader.count(Kind.COMMITTED)) == (2, 0)


def test_a_line_that_no_writer_wrote_is_told(path):
    for text in (b"nonsense\n", b"[1.0]\n", b'[1, "a", "dropped", "", 0, 0, "", 0, "", "", 0]\n', b"\n"):
        path.write_bytes(text)

        with pytest.raises(CorruptError, match="not a line of a ledger"):
            list(read_ledger(path))


def test_a_disk_that_takes_half_a_line_is_an_error(path, monkeypatch):
    writer = LedgerWriter(path, "a")
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, text[: len(text) // 2]))

    with pytest.raises(OSError, match=r"a\.ledger took"):
        writer.note(Kind.DELIVERED, "m1")


def test_what_a_killed_process_noted_before_it_went_on_is_there(path):
    command = [sys.executable, "-c", SCRIBBLER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as scribbler:
        for _ in range(20):
            scribbler.stdout.readline()
        scribbler.send_signal(signal.SIGKILL)
        gone_on_to = int(([b"19", *scribbler.stdout.read().splitlines()])[-1])

    noted = [line.message for line in read_ledger(path)]

    assert noted[: 50 * (gone_on_to + 1)] == [
        f"{number}-{place}" for number in range(gone_on_to + 1) for place in range(50)
    ]
