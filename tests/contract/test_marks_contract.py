"""What the storage port says of marks, asked of every adapter."""

import pytest
from stored import advance, run, take

from cassq.model.ids import new_pipe_id
from cassq.model.pipe import End, Mark
from cassq.model.progress import Progress


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
