"""What an owner knows of its pipe between two reads."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import End, Head, Mark, Phase, PipeState, Run, RunState
from cassq.model.progress import Progress

quietly = settings(derandomize=True, deadline=None)


def a_run(first, last, **changes):
    run = Run(first, last, first, RunState.LEASED, 1, new_token(), 1000, 500, 0, "me")
    return replace(run, **changes)


def progress_of(runs, marks=(), **head):
    cursor = max((run.last for run in runs), default=0)
    return Progress(PipeState(Head(new_token(), cursor=cursor, **head), tuple(runs), tuple(marks), 0))


def test_a_run_is_over_when_marks_cover_it_in_any_order_and_overlap():
    progress = progress_of([a_run(1, 10)])

    progress.note_marks([Mark(6, 10, End.COMMITTED), Mark(1, 3, End.COMMITTED)])
    assert list(progress.left_of(progress.runs[1])) == [(4, 5)]
    progress.note_marks([Mark(2, 7, End.COMMITTED)])

    assert not progress.runs


def test_the_floor_never_cuts_a_run_that_is_not_over():
    progress = progress_of([a_run(1, 4), a_run(5, 9), a_run(10, 12)])

    progress.note_marks([Mark(1, 4, End.COMMITTED), Mark(5, 8, End.COMMITTED), Mark(10, 12, End.COMMITTED)])

    assert progress.raise_floor().floor == 4


def test_the_floor_never_passes_the_cursor():
    progress = progress_of([a_run(1, 4)], [Mark(1, 4, End.COMMITTED), Mark(5, 5, End.PURGED)])

    assert progress.raise_floor().floor == 4


def test_the_counts_stay_the_same_when_the_floor_rises():
    runs = [a_run(1, 4, rolled_back=2), a_run(5, 8), a_run(9, 12, rolled_back=1)]
    marks = [
        Mark(1, 2, End.DEAD),
        Mark(3, 4, End.COMMITTED),
        Mark(5, 6, End.PURGED),
        Mark(7, 8, End.COMMITTED),
    ]
    progress = progress_of(runs, marks)
    before = progress.tally(pushed=20)

    progress.note_head(progress.raise_floor())

    assert progress.head.floor == 8
    assert progress.tally(pushed=20) == before
    assert (before.committed, before.dead, before.purged, before.rolled_back) == (4, 2, 2, 3)


def test_a_message_that_died_and_was_also_committed_late_counts_once():
    progress = progress_of([a_run(1, 2)], [Mark(1, 2, End.COMMITTED), Mark(1, 1, End.DEAD)])

    tally = progress.tally(pushed=2)

    assert (tally.committed, tally.dead) == (1, 1)


def test_a_pipe_is_over_only_when_its_end_is_decided_reached_and_everything_ended():
    run = a_run(1, 3)
    mark = Mark(1, 3, End.COMMITTED)

    assert not progress_of([run], [mark]).is_over
    assert not progress_of([run], [mark], phase=Phase.SEALED, last=4).is_over
    assert not progress_of([run], phase=Phase.SEALED, last=3).is_over
    assert progress_of([run], [mark], phase=Phase.SEALED, last=3).is_over
    assert progress_of([], phase=Phase.SEALED, last=0).is_over


@quietly
@given(st.data())
def test_however_marks_come_in_the_tally_adds_up(data):
    count = data.draw(st.integers(1, 30))
    edges = sorted(data.draw(st.sets(st.integers(1, count))) | {count})
    runs = [a_run(before + 1, last) for before, last in zip([0, *edges], edges, strict=False)]
    progress = progress_of(runs)
    for _ in range(data.draw(st.integers(0, 12))):
        run = data.draw(st.sampled_from(runs))
        first = data.draw(st.integers(run.first, run.last))
        last = data.draw(st.integers(first, run.last))
        progress.note_marks([Mark(first, last, data.draw(st.sampled_from(End)))])
        if data.draw(st.booleans()):
            progress.note_head(progress.raise_floor())

    tally = progress.tally(pushed=count)
    left = sum(part.size for run in progress.runs.values() for part in progress.left_of(run))

    assert tally.committed + tally.dead + tally.purged + tally.expired + left == count
    assert progress.first_left == min(
        (part.first for run in progress.runs.values() for part in progress.left_of(run)), default=count + 1
    )


@quietly
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(1, 3), st.sampled_from(End)), max_size=12
    ),
    st.booleans(),
)
def test_a_leased_run_of_a_slot_is_over_once_each_message_ended_in_its_attempt_or_in_nobodys_hands(
    ended, is_leased
):
    run = a_run(1, 6, attempt=2, state=RunState.LEASED if is_leased else RunState.RETURNED)
    marks = [
        Mark(first, min(6, first + more), end, new_pipe_id() if end is End.MOVED else None, attempt)
        for first, more, attempt, end in ended
    ]
    frees = [mark for mark in marks if mark.attempt == 2 or mark.end is not End.COMMITTED or not is_leased]

    def covers(some):
        return all(any(mark.first <= seq <= mark.last for mark in some) for seq in range(1, 7))

    read, told = progress_of([run], marks), progress_of([run])
    for mark in marks:
        told.note_marks([mark])
    for progress in (read, told):
        assert progress.runs == ({} if covers(frees) else {1: run})
        assert progress.count_left(1, 6) == 0 or not covers(marks)
        assert progress.raise_floor().floor == 0 or covers(frees)
