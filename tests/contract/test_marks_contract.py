"""What the storage port says of marks, asked of every adapter."""

from dataclasses import replace

import pytest
from stored import EARLY_MS, advance, run, take

from cassq.limits import AT_WRITE
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.past import Attempt
from cassq.model.pipe import End, Mark
from cassq.model.progress import Progress
from cassq.model.transaction import Cancel, RunChange, Transaction


class TestMarks:
    def test_marks_are_seen_by_the_next_load_in_their_order(self, storage, pipe):
        marks = [Mark(5, 9, End.DEAD), Mark(1, 2, End.COMMITTED), Mark(12, 12, End.PURGED)]
        take(storage, pipe, run(1, 12))

        storage.mark(pipe, marks)

        assert storage.load_pipe(pipe).marks == tuple(sorted(marks, key=lambda mark: mark.first))

    def test_marking_again_changes_nothing(self, storage, pipe):
        take(storage, pipe, run(1, 2))

        for _ in range(2):
            storage.mark(pipe, [Mark(1, 2, End.COMMITTED)])

        assert storage.load_pipe(pipe).marks == (Mark(1, 2, End.COMMITTED),)

    @pytest.mark.parametrize(
        ("longer", "shorter"), [(End.COMMITTED, End.PURGED), (End.PURGED, End.COMMITTED)]
    )
    @pytest.mark.parametrize("order", [1, -1])
    def test_of_two_with_the_same_beginning_the_longer_stands(self, storage, pipe, longer, shorter, order):
        apart = [Mark(1, 9, longer), Mark(1, 5, shorter)][::order]
        together = [Mark(10, 19, longer), Mark(10, 15, shorter)][::order]
        take(storage, pipe, run(1, 19))

        for mark in apart:
            storage.mark(pipe, [mark])
        storage.mark(pipe, together)

        assert storage.load_pipe(pipe).marks == (Mark(1, 9, longer), Mark(10, 19, longer))

    @pytest.mark.parametrize("is_set_first", [False, True])
    def test_a_longer_mark_stands_against_one_set_by_a_transaction(self, storage, pipe, is_set_first):
        take(storage, pipe, run(1, 7))

        def plain():
            storage.mark(pipe, [Mark(3, 7, End.COMMITTED)])

        def purge():
            advance(storage, pipe, marks=[Mark(3, 3, End.PURGED)])

        for step in (purge, plain) if is_set_first else (plain, purge):
            step()

        assert storage.load_pipe(pipe).marks == (Mark(3, 7, End.COMMITTED),)

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_two_that_are_alike_the_one_of_the_later_attempt_stands(self, storage, pipe, order):
        take(storage, pipe, run(1, 9))
        for mark in [Mark(1, 9, End.COMMITTED, attempt=attempt) for attempt in (2, 3)][::order]:
            storage.mark(pipe, [mark])

        assert storage.load_pipe(pipe).marks == (Mark(1, 9, End.COMMITTED, attempt=3),)

    @pytest.mark.parametrize("is_set_first", [False, True])
    def test_also_where_one_of_them_was_set_by_a_transaction(self, storage, pipe, is_set_first):
        take(storage, pipe, run(1, 9))
        plain, set_one = (Mark(1, 9, End.COMMITTED, attempt=2 + place) for place in (0, 1))
        if is_set_first:
            advance(storage, pipe, marks=[set_one])
        storage.mark(pipe, [plain])
        if not is_set_first:
            advance(storage, pipe, marks=[set_one])

        assert storage.load_pipe(pipe).marks == (set_one,)

    @pytest.mark.parametrize("is_moved_first", [False, True])
    @pytest.mark.parametrize("late", [Mark(1, 9, End.COMMITTED), Mark(1, 1, End.COMMITTED, attempt=2)])
    def test_where_messages_were_moved_is_told_whatever_commit_lands(
        self, storage, pipe, late, is_moved_first
    ):
        take(storage, pipe, run(1, 9))
        moved = Mark(1, 1, End.MOVED, target=new_pipe_id())

        def move():
            advance(storage, pipe, marks=[moved])

        def commit():
            storage.mark(pipe, [late])

        for step in (move, commit) if is_moved_first else (commit, move):
            step()

        progress = Progress(storage.load_pipe(pipe))
        assert progress.targets == {moved.target}
        assert progress.tally(9).pushed == 8

    def test_no_marks_are_nothing_to_do(self, storage, pipe):
        storage.mark(pipe, [])

        assert storage.load_pipe(pipe).marks == ()

    def test_thousands_of_marks_in_one_call_are_all_seen(self, storage, pipe):
        marks = [Mark(first, first, End.COMMITTED) for first in range(1, 5000, 2)]
        take(storage, pipe, run(1, 5000))

        storage.mark(pipe, marks)

        assert storage.load_pipe(pipe).marks == tuple(marks)


class TestWhenMessagesEnded:
    def test_it_is_written_by_the_databases_clock_where_a_mark_asks_for_it(self, storage, pipe):
        take(storage, pipe, run(1, 9))
        before = storage.load_pipe(pipe).now_ms
        storage.mark(pipe, [Mark(1, 2, End.COMMITTED, ended_at_ms=AT_WRITE), Mark(3, 4, End.DEAD)])
        advance(storage, pipe, marks=[Mark(5, 6, End.PURGED, ended_at_ms=AT_WRITE), Mark(7, 8, End.PURGED)])

        state = storage.load_pipe(pipe)

        assert [(mark.first, mark.last) for mark in state.marks] == [(1, 2), (3, 4), (5, 6), (7, 8)]
        first, second, third, fourth = (mark.ended_at_ms for mark in state.marks)
        assert (second, fourth) == (None, None)
        # Two reads of the clock may be of two nodes.
        assert before - 2000 <= min(first, third) <= max(first, third) <= state.now_ms + 2000

    def test_also_where_a_message_that_waits_is_cancelled(self, storage, pipe):
        cancel = Transaction(Cancel(new_token(), 4), marks=(Mark(4, 4, End.PURGED, ended_at_ms=AT_WRITE),))
        assert storage.transact(pipe, cancel).is_applied

        (mark,) = storage.load_pipe(pipe).marks

        assert mark.ended_at_ms


def test_a_run_reads_back_with_its_earlier_attempts(storage, pipe):
    past = (Attempt(1, "a popper", EARLY_MS, "lease ended"), Attempt(2, "ü", 0, 'a "reason"'))
    came_back = run(1, 9, past=past)
    take(storage, pipe, came_back)

    (stands,) = storage.load_pipe(pipe).runs
    assert stands.past == past

    longer = (*past, Attempt(3, "a popper", 0, ""))
    again = replace(came_back, lease_id=new_token(), attempt=4, past=longer)
    change = RunChange(again, came_back.lease_id)
    assert storage.transact(pipe, Transaction(runs=(change,))).is_applied
    (stands,) = storage.load_pipe(pipe).runs
    assert (stands.attempt, stands.past) == (4, longer)
