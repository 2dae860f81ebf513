"""What a whole pipe looks like: each message once, with what became of it."""

from dataclasses import replace

import pytest
from support.clocks import HandClock

from cassq.bulk import snapshot
from cassq.bulk.snapshot import Fate, read_sections
from cassq.model.ids import MessageId, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import BURIAL, End, Head, Mark, PipeEntry, Run, RunState
from cassq.model.transaction import Advance, RunChange, Transaction
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.storage import SqliteStorage


@pytest.fixture
def storage():
    made = SqliteStorage(None, is_synced=False, clock=HandClock())
    yield made
    made.close()


@pytest.fixture
def pipe(storage):
    """A pipe with three batches of four; what was handed out lies across them."""
    entry = PipeEntry(new_pipe_id(), "a pusher")
    head = Head(new_token())
    storage.create_pipe("q", entry, head)
    for first in (1, 5, 9):
        bodies = tuple(b"%d" % seq for seq in range(first, first + 4))
        storage.append(entry.pipe, Batch(first, bodies, None, 4))
    runs = [
        _run(1, 2, read_from=1),
        _run(3, 6, read_from=1, state=RunState.RETURNED, attempt=2),
        _run(7, 7, read_from=5, attempt=BURIAL + 3),
        _run(8, 8, read_from=5, attempt=3),
    ]
    moved = Head(new_token(), cursor=8, read_from=9)
    marks = (
        Mark(1, 1, End.COMMITTED),
        Mark(4, 4, End.DEAD),
        Mark(5, 5, End.COMMITTED),
        Mark(12, 12, End.PURGED),
    )
    changes = tuple(RunChange(run) for run in runs)
    assert storage.transact(entry.pipe, Transaction(Advance(head.op, moved), changes, marks)).is_applied
    return entry.pipe


def _run(first, last, *, read_from, state=RunState.LEASED, attempt=1):
    return Run(first, last, read_from, state, attempt, new_token(), 1000, 1000, 0, "somebody")


def shown(sections):
    return {
        section.batch.first + place: (section.fate, body)
        for section in sections
        for place, body in enumerate(section.batch.bodies)
    }


def test_each_message_is_shown_once_with_what_became_of_it(storage, pipe):
    sections = list(read_sections(storage, pipe))
    expected = {
        1: Fate.COMMITTED,
        2: Fate.LEASED,
        3: Fate.RETURNED,
        5: Fate.COMMITTED,
        6: Fate.RETURNED,
        8: Fate.LEASED,  # its last attempt is still somebody's; that of 7 is over, so it is a letter
        9: Fate.WAITING,
        10: Fate.WAITING,
        11: Fate.WAITING,
    }
    assert shown(sections) == {seq: (fate, b"%d" % seq) for seq, fate in expected.items()}
    assert sum(section.batch.count for section in sections) == len(expected)
    assert [section.batch.first for section in sections] == sorted(
        section.batch.first for section in sections
    )


def test_a_stretch_that_lies_in_two_batches_is_cut_at_their_edge(storage, pipe):
    storage.mark(pipe, [Mark(3, 6, End.COMMITTED)])
    sections = read_sections(storage, pipe, fates=[Fate.COMMITTED])
    assert list(shown(sections)) == [1, 3, 5, 6]


@pytest.mark.parametrize("fate", list(Fate))
def test_what_is_not_asked_for_is_left_out(storage, pipe, fate):
    everything = shown(read_sections(storage, pipe))
    wanted = {seq: found for seq, found in everything.items() if found[0] is fate}
    assert shown(read_sections(storage, pipe, fates=[fate])) == wanted


def test_the_outline_counts_the_same_messages_without_their_bodies(storage, pipe):
    whole = read_sections(storage, pipe)
    outline = list(read_sections(storage, pipe, is_outline=True))
    assert [(each.batch.first, each.batch.count) for each in outline] == [
        (each.batch.first, each.batch.count) for each in whole
    ]
    assert all(each.batch.bodies == () for each in outline)


def test_what_waits_from_the_middle_of_a_batch_on_is_shown(storage, pipe):
    # As behind a window that ended among what was pushed
    op = storage.load_pipe(pipe).head.op
    moved = Head(new_token(), cursor=10, read_from=9)
    assert storage.transact(pipe, Transaction(Advance(op, moved))).is_applied
    waiting = read_sections(storage, pipe, fates=[Fate.WAITING])
    assert shown(waiting) == {11: (Fate.WAITING, b"11")}


def test_what_ended_below_the_floor_is_shown_too(storage, pipe):
    op = storage.load_pipe(pipe).head.op
    moved = Head(new_token(), floor=1, cursor=8, read_from=9)
    assert storage.transact(pipe, Transaction(Advance(op, moved))).is_applied
    assert shown(read_sections(storage, pipe))[1] == (Fate.COMMITTED, b"1")


def test_it_is_read_page_by_page(storage, pipe, monkeypatch):
    whole = shown(read_sections(storage, pipe))
    monkeypatch.setattr(snapshot, "_BATCHES_READ", 1)
    assert shown(read_sections(storage, pipe)) == whole


def test_a_run_that_was_split_while_its_pages_were_read_is_shown_once(storage, pipe, monkeypatch):
    # Given a row from before the split beside its rest
    state = storage.load_pipe(pipe, is_whole=True)
    before = _run(3, 8, read_from=1)
    runs = tuple(before if run.first == 3 else run for run in state.runs)
    monkeypatch.setattr(storage, "load_pipe", lambda *_, **__: replace(state, runs=runs))
    sections = list(read_sections(storage, pipe))
    numbers = [seq for each in sections for seq in range(each.batch.first, each.batch.last + 1)]
    assert len(numbers) == len(set(numbers))


def test_of_a_pipe_that_is_gone_nothing_is_shown(storage):
    assert list(read_sections(storage, new_pipe_id())) == []


def test_all_letters_are_read_however_many_there_are(storage, monkeypatch):
    pipe = new_pipe_id()
    letters = [DeadLetter(MessageId(pipe, seq), b"", {}, 0, 1, "why") for seq in range(1, 8)]
    storage.change_dead("q", added=letters)
    monkeypatch.setattr(snapshot, "_LETTERS_READ", 3)
    assert [each.message_id.seq for each in snapshot.read_letters(storage, "q")] == list(range(1, 8))
