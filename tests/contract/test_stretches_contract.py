"""What the storage port says of a stretch of a pipe, asked of every adapter."""

from dataclasses import replace

from stored import advance, run, take

from cassq.model.ids import new_pipe_id
from cassq.model.pipe import End, Mark
from cassq.model.transaction import RunChange, Transaction


class TestAStretch:
    def test_has_the_runs_and_marks_that_begin_in_it_and_no_others(self, storage, pipe):
        runs = [run(1, 3), run(4, 6), run(7, 9)]
        for each in runs:
            take(storage, pipe, each)
        storage.mark(pipe, [Mark(1, 1, End.COMMITTED), Mark(4, 5, End.COMMITTED), Mark(7, 7, End.DEAD)])

        stretch = storage.read_stretch(pipe, 4, 6)

        assert [(each.first, each.last, each.lease_id) for each in stretch.runs] == [(4, 6, runs[1].lease_id)]
        assert stretch.marks == (Mark(4, 5, End.COMMITTED),)

    def test_has_the_database_s_clock_of_now(self, storage, pipe):
        take(storage, pipe, run(1, 3))
        before_ms = storage.load_pipe(pipe).now_ms

        now_ms = storage.read_stretch(pipe, 1, 3).now_ms

        assert before_ms <= now_ms <= storage.load_pipe(pipe).now_ms

    def test_shows_a_transaction_and_a_mark_that_returned_before(self, storage, pipe):
        taken = run(1, 3)
        take(storage, pipe, taken)
        seen = storage.read_stretch(pipe, 1, 3).runs[0]
        change = RunChange(
            replace(seen, reason="later"), seen.lease_id, seen.leased_at_ms, is_leased_now=True
        )

        assert storage.transact(pipe, Transaction(runs=(change,))).is_applied
        storage.mark(pipe, [Mark(2, 3, End.COMMITTED)])

        stretch = storage.read_stretch(pipe, 1, 3)
        assert stretch.runs[0].reason == "later"
        assert stretch.marks == (Mark(2, 3, End.COMMITTED),)

    def test_has_what_lies_below_the_floor_too(self, storage, pipe):
        take(storage, pipe, run(1, 3))
        storage.mark(pipe, [Mark(1, 3, End.COMMITTED)])
        advance(storage, pipe, floor=3)

        assert storage.load_pipe(pipe).marks == ()
        assert storage.read_stretch(pipe, 1, 3).marks == (Mark(1, 3, End.COMMITTED),)

    def test_in_which_nothing_stands_is_empty(self, storage, pipe):
        for place in (pipe, new_pipe_id()):
            stretch = storage.read_stretch(place, 1, 3)
            assert (stretch.runs, stretch.marks) == ((), ())
