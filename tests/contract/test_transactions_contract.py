"""What the storage port says of transactions on one pipe, asked of every adapter."""

from dataclasses import replace

import pytest
from stored import EARLY_MS, advance, check_one_winner, head_of, race, run, take

from cassq.limits import UNDECIDED, WINDOW_OUT
from cassq.model.ids import LogPlace, new_pipe_id, new_token
from cassq.model.pipe import End, Head, Mark, Phase, RunState
from cassq.model.transaction import (
    Advance,
    Cancel,
    Drain,
    ForceSeal,
    Retire,
    RunChange,
    Seal,
    Transaction,
)

HEAD_CHANGES = {
    "advance": lambda: Advance(new_token(), Head(new_token())),
    "seal": lambda: Seal(5),
    "force seal": lambda: ForceSeal(new_token(), new_token()),
    "drain": lambda: Drain(new_token(), new_token(), 5),
    "retire": lambda: Retire(new_token(), new_token()),
    "cancel": lambda: Cancel(new_token(), 5),
}


class TestAdvance:
    def test_it_moves_the_head_and_inserts_the_run(self, storage, pipe):
        taken = run(1, 10, not_before_ms=EARLY_MS + 7, rolled_back=2, read_from=1)

        left = advance(
            storage,
            pipe,
            runs=[RunChange(taken)],
            cursor=10,
            read_from=11,
            skipped=1,
            dead=2,
            purged=3,
            rolled_back=4,
            expired=5,
        )

        state = storage.load_pipe(pipe)
        assert state.head == left
        assert state.runs == (taken,)

    def test_it_writes_the_databases_time_where_the_lease_begins_now(self, storage, pipe):
        taken = run(1, 10, leased_at_ms=0)

        advance(storage, pipe, cursor=10, runs=[RunChange(taken, is_leased_now=True)])

        state = storage.load_pipe(pipe)
        (found,) = state.runs
        assert replace(found, leased_at_ms=0) == taken
        assert abs(state.now_ms - found.leased_at_ms) < 60_000

    def test_it_is_refused_when_the_op_is_not_the_one_seen(self, storage, pipe):
        seen = head_of(storage, pipe)
        moved = Advance(new_token(), replace(seen, op=new_token(), cursor=5))

        answer = storage.transact(pipe, Transaction(moved, (RunChange(run(1, 5)),)))

        assert not answer.is_applied
        assert (answer.cursor, answer.last) == (None, None)
        state = storage.load_pipe(pipe)
        assert (state.head, state.runs) == (seen, ())

    def test_it_is_refused_when_the_pipe_ends_before_the_new_cursor(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Seal(4)))

        answer = storage.transact(
            pipe, Transaction(Advance(seen.op, replace(seen, op=new_token(), cursor=5)))
        )

        assert not answer.is_applied
        assert head_of(storage, pipe).cursor == 0

    def test_it_leaves_the_phase_and_the_end_alone(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Seal(5)))
        blind = Advance(seen.op, replace(seen, op=new_token(), cursor=5))

        assert storage.transact(pipe, Transaction(blind, (RunChange(run(1, 5)),))).is_applied

        head = head_of(storage, pipe)
        assert (head.phase, head.last, head.cursor) == (Phase.SEALED, 5, 5)


class TestSeal:
    def test_it_sets_the_end_and_the_phase_and_moves_no_op(self, storage, pipe):
        seen = head_of(storage, pipe)

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

        assert head_of(storage, pipe) == replace(seen, last=7, phase=Phase.SEALED)

    def test_it_holds_when_the_cursor_is_just_there(self, storage, pipe):
        take(storage, pipe, run(1, 7))

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

    def test_a_refusal_behind_the_cursor_tells_cursor_and_end(self, storage, pipe):
        take(storage, pipe, run(1, 8))

        answer = storage.transact(pipe, Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, 8, UNDECIDED)
        assert head_of(storage, pipe).phase is Phase.OPEN

    def test_a_refusal_after_the_end_is_decided_tells_cursor_and_end(self, storage, pipe):
        storage.transact(pipe, Transaction(Seal(5)))

        answer = storage.transact(pipe, Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, 0, 5)

    def test_a_refusal_by_a_pipe_that_is_gone_tells_neither(self, storage):
        answer = storage.transact(new_pipe_id(), Transaction(Seal(7)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, None, None)

    def test_it_settles_the_end_of_a_pipe_sealed_by_force(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))

        assert storage.transact(pipe, Transaction(Seal(7))).is_applied

        assert head_of(storage, pipe).last == 7


class TestWindow:
    def test_it_stands_as_a_run_while_the_cursor_is_undecided(self, storage, pipe):
        window = run(1, 10_000, window_ms=1000)
        advance(storage, pipe, cursor=WINDOW_OUT, runs=[RunChange(window)])

        state = storage.load_pipe(pipe)

        assert state.head.is_window_out
        assert state.window == window

    def test_it_is_refused_once_the_end_is_decided(self, storage, pipe):
        assert storage.transact(pipe, Transaction(Seal(0))).is_applied
        seen = head_of(storage, pipe)
        begun = Advance(seen.op, replace(seen, op=new_token(), cursor=WINDOW_OUT))
        change = RunChange(run(1, 10_000, window_ms=1000))

        assert not storage.transact(pipe, Transaction(begun, (change,))).is_applied
        assert storage.load_pipe(pipe).runs == ()

    def test_it_refuses_a_seal_but_not_a_free_one(self, storage, pipe):
        advance(storage, pipe, cursor=WINDOW_OUT, runs=[RunChange(run(1, 10_000, window_ms=1000))])

        answer = storage.transact(pipe, Transaction(Seal(3)))
        assert (answer.is_applied, answer.cursor, answer.last) == (False, WINDOW_OUT, UNDECIDED)

        assert storage.transact(pipe, Transaction(Seal(3, is_free=True))).is_applied
        head = head_of(storage, pipe)
        assert (head.is_window_out, head.last, head.phase) == (True, 3, Phase.SEALED)

    def test_a_cut_ends_it_and_the_next_run_takes_the_place_of_an_empty_one(self, storage, pipe):
        window = run(1, 10_000, window_ms=1000)
        advance(storage, pipe, cursor=WINDOW_OUT, runs=[RunChange(window)])
        empty = replace(window, last=0, window_ms=0)
        advance(storage, pipe, cursor=0, runs=[RunChange(empty, window.lease_id)])
        assert storage.load_pipe(pipe).runs == ()

        taken = run(1, 4)
        take(storage, pipe, taken)

        assert storage.load_pipe(pipe).runs == (taken,)


class TestForceSealDrainRetire:
    def test_force_seal_sets_op_and_phase_and_leaves_the_end_open(self, storage, pipe):
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(ForceSeal(seen.op, op))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, phase=Phase.SEALED)

    def test_drain_sets_op_and_end(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(Drain(seen.op, op, 3))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, last=3)

    def test_drain_is_refused_once_the_pusher_decided_the_end(self, storage, pipe):
        storage.transact(pipe, Transaction(ForceSeal(head_of(storage, pipe).op, new_token())))
        storage.transact(pipe, Transaction(Seal(9)))
        seen = head_of(storage, pipe)

        assert not storage.transact(pipe, Transaction(Drain(seen.op, new_token(), 3))).is_applied

        assert head_of(storage, pipe) == seen

    def test_retire_sets_op_and_phase(self, storage, pipe):
        storage.transact(pipe, Transaction(Seal(0)))
        seen = head_of(storage, pipe)
        op = new_token()

        assert storage.transact(pipe, Transaction(Retire(seen.op, op))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, phase=Phase.RETIRED)

    @pytest.mark.parametrize("kept", ["outline", "headers"])
    def test_retire_names_where_the_event_of_the_pipe_is_to_be(self, storage, pipe, kept):
        storage.transact(pipe, Transaction(Seal(0)))
        seen = head_of(storage, pipe)
        op, place = new_token(), LogPlace(new_token(), 17, kept)

        assert storage.transact(pipe, Transaction(Retire(seen.op, op, place))).is_applied

        assert head_of(storage, pipe) == replace(seen, op=op, phase=Phase.RETIRED, journal=place)
        assert storage.load_pipe(pipe, is_whole=True).head.journal == place

    @pytest.mark.parametrize("kind", [ForceSeal, lambda seen, op: Drain(seen, op, 3), Retire])
    def test_each_is_refused_when_the_op_is_not_the_one_seen(self, storage, pipe, kind):
        seen = head_of(storage, pipe)

        assert not storage.transact(pipe, Transaction(kind(new_token(), new_token()))).is_applied

        assert head_of(storage, pipe) == seen


class TestCancel:
    def test_it_moves_the_fence_and_marks_the_message(self, storage, pipe):
        op = new_token()
        mark = Mark(3, 3, End.PURGED)

        assert storage.transact(pipe, Transaction(Cancel(op, 3), marks=(mark,))).is_applied

        state = storage.load_pipe(pipe)
        assert state.head.op == op
        assert state.marks == (mark,)

    def test_it_comes_too_late_once_the_message_was_handed_out(self, storage, pipe):
        seen = take(storage, pipe, run(1, 3))

        answer = storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        assert not answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head, state.marks) == (seen, ())

    def test_it_leaves_the_mark_of_a_message_that_was_moved(self, storage, pipe):
        seen = head_of(storage, pipe)
        moved = Mark(3, 3, End.MOVED, new_pipe_id())
        storage.transact(pipe, Transaction(Advance(seen.op, replace(seen, op=new_token())), marks=(moved,)))

        answer = storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        assert not answer.is_applied
        assert storage.load_pipe(pipe).marks == (moved,)

    def test_a_take_that_did_not_see_it_is_refused(self, storage, pipe):
        seen = head_of(storage, pipe)
        storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        answer = storage.transact(
            pipe, Transaction(Advance(seen.op, replace(seen, op=new_token(), cursor=3)))
        )

        assert not answer.is_applied

    @pytest.mark.parametrize("standing", [Mark(3, 3, End.MOVED, new_pipe_id()), Mark(3, 3, End.PURGED)])
    def test_it_is_refused_where_a_mark_of_the_message_stands_and_changes_nothing(
        self, storage, pipe, standing
    ):
        seen = advance(storage, pipe, marks=[standing])

        answer = storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),)))

        assert not answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head, state.marks) == (seen, (standing,))

    def test_marks_of_its_neighbours_are_not_in_its_way(self, storage, pipe):
        others = (Mark(2, 2, End.MOVED, new_pipe_id()), Mark(4, 4, End.MOVED, new_pipe_id()))
        advance(storage, pipe, marks=others)
        mark = Mark(3, 3, End.PURGED)

        assert storage.transact(pipe, Transaction(Cancel(new_token(), 3), marks=(mark,))).is_applied

        marks = storage.load_pipe(pipe).marks
        assert sorted(marks, key=lambda found: found.first) == [others[0], mark, others[1]]

    def test_of_a_cancellation_and_a_move_that_race_one_is_applied(self, storage, pipe):
        seen = head_of(storage, pipe)
        moved = Transaction(
            Advance(seen.op, replace(seen, op=new_token())), marks=(Mark(3, 3, End.MOVED, new_pipe_id()),)
        )
        cancelled = Transaction(Cancel(new_token(), 3), marks=(Mark(3, 3, End.PURGED),))

        applied, unknown = race(lambda change: storage.transact(pipe, change).is_applied, [moved, cancelled])

        assert len(applied) <= 1
        assert list(storage.load_pipe(pipe).marks) in [
            list(change.marks) for change in applied or [*unknown, Transaction()]
        ]


class TestTransactions:
    @pytest.mark.parametrize("kind", HEAD_CHANGES)
    def test_a_pipe_that_never_was_refuses_each_and_stays_gone(self, storage, kind):
        pipe = new_pipe_id()
        change = Transaction(HEAD_CHANGES[kind](), (RunChange(run(1, 1)),), (Mark(2, 2, End.DEAD),))

        assert not storage.transact(pipe, change).is_applied

        assert storage.load_pipe(pipe) is None

    @pytest.mark.parametrize("kind", HEAD_CHANGES)
    def test_a_deleted_pipe_refuses_each_and_stays_gone(self, storage, queue, pipe, kind):
        storage.delete_pipe(queue, pipe)

        assert not storage.transact(pipe, Transaction(HEAD_CHANGES[kind]())).is_applied

        assert storage.load_pipe(pipe) is None

    def test_a_run_changes_under_its_lease(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        returned = replace(taken, state=RunState.RETURNED, attempt=1, not_before_ms=EARLY_MS, rolled_back=1)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(returned, taken.lease_id),)))

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (returned,)

    def test_a_run_under_another_lease_is_refused(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(run(1, 10), new_token()),)))

        assert (answer.is_applied, answer.cursor, answer.last) == (False, None, None)
        assert storage.load_pipe(pipe).runs == (taken,)

    def test_a_run_whose_lease_was_extended_meanwhile_is_refused(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        again = RunChange(run(1, 10, attempt=2), taken.lease_id, taken.leased_at_ms)
        extended = RunChange(taken, taken.lease_id, taken.leased_at_ms, is_leased_now=True)

        assert storage.transact(pipe, Transaction(runs=(extended,))).is_applied
        assert not storage.transact(pipe, Transaction(runs=(again,))).is_applied

        state = storage.load_pipe(pipe)
        assert abs(state.now_ms - state.runs[0].leased_at_ms) < 60_000
        assert state.runs[0].attempt == 1

    def test_a_lease_that_the_database_dated_can_be_a_condition(self, storage, pipe):
        taken = run(1, 10)
        advance(storage, pipe, cursor=10, runs=[RunChange(taken, is_leased_now=True)])
        (seen,) = storage.load_pipe(pipe).runs
        again = replace(seen, attempt=2, lease_id=new_token())

        answer = storage.transact(
            pipe, Transaction(runs=(RunChange(again, seen.lease_id, seen.leased_at_ms),))
        )

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (again,)

    def test_a_run_that_is_not_there_has_no_lease_to_change(self, storage, pipe):
        answer = storage.transact(pipe, Transaction(runs=(RunChange(run(1, 1), new_token()),)))

        assert not answer.is_applied
        assert storage.load_pipe(pipe).runs == ()

    def test_a_rollback_splits_a_run_in_one_step(self, storage, pipe):
        taken = run(1, 10)
        take(storage, pipe, taken)
        kept = replace(taken, last=4)
        rest = run(5, 10, read_from=1, state=RunState.RETURNED, rolled_back=1)

        answer = storage.transact(pipe, Transaction(runs=(RunChange(kept, taken.lease_id), RunChange(rest))))

        assert answer.is_applied
        assert storage.load_pipe(pipe).runs == (kept, rest)

    def test_all_of_it_happens_when_every_condition_holds(self, storage, pipe):
        old = run(1, 10)
        seen = take(storage, pipe, old)
        again = replace(old, attempt=2, lease_id=new_token())
        fresh = run(11, 20)
        mark = Mark(21, 22, End.PURGED)

        answer = storage.transact(
            pipe,
            Transaction(
                Advance(seen.op, replace(seen, op=new_token(), cursor=22)),
                (RunChange(again, old.lease_id, old.leased_at_ms), RunChange(fresh)),
                (mark,),
            ),
        )

        assert answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head.cursor, state.runs, state.marks) == (22, (again, fresh), (mark,))

    def test_a_mark_may_name_the_pipe_that_messages_were_moved_to(self, storage, pipe):
        seen = head_of(storage, pipe)
        marks = (Mark(1, 2, End.MOVED, new_pipe_id()), Mark(4, 5, End.MOVED, new_pipe_id()))
        cancelled = Mark(3, 3, End.PURGED)
        moved = replace(seen, op=new_token(), cursor=5, skipped=5)
        assert storage.transact(
            pipe, Transaction(Advance(seen.op, moved), marks=(*marks, cancelled))
        ).is_applied
        state = storage.load_pipe(pipe)
        assert sorted(state.marks, key=lambda mark: mark.first) == [marks[0], cancelled, marks[1]]

    @pytest.mark.parametrize("wrong", ["op", "lease", "beginning"])
    def test_none_of_it_happens_when_one_condition_fails(self, storage, pipe, wrong):
        old = run(1, 10)
        seen = take(storage, pipe, old)
        op = new_token() if wrong == "op" else seen.op
        lease_id = new_token() if wrong == "lease" else old.lease_id
        leased_at_ms = old.leased_at_ms + (wrong == "beginning")

        answer = storage.transact(
            pipe,
            Transaction(
                Advance(op, replace(seen, op=new_token(), cursor=20)),
                (RunChange(replace(old, attempt=2), lease_id, leased_at_ms), RunChange(run(11, 20))),
                (Mark(21, 22, End.PURGED),),
            ),
        )

        assert not answer.is_applied
        state = storage.load_pipe(pipe)
        assert (state.head, state.runs, state.marks) == (seen, (old,), ())

    def test_of_eight_racing_owners_exactly_one_is_applied(self, storage, pipe):
        seen = head_of(storage, pipe)
        wanted = [replace(seen, op=new_token(), cursor=place + 1) for place in range(8)]

        def take_up_to(head):
            change = Transaction(Advance(seen.op, head), (RunChange(run(1, head.cursor)),))
            return storage.transact(pipe, change).is_applied

        applied, unknown = race(take_up_to, wanted)

        check_one_winner(applied, unknown, head_of(storage, pipe), seen)
