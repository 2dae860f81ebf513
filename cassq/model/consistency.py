"""Whether the rows of one pipe can be true, each for itself and all together.

Owns the checks of what a settled read shows, whatever the database: each value may be one of cassq's, and
their whole still damaged. Refuses to repair. What must not break: nothing is refused that cassq writes
itself, under whatever race, late landing or unknown outcome.
"""

from collections.abc import Iterable
from uuid import UUID

from cassq.errors import DecodeError
from cassq.model.ids import JOURNAL_KINDS
from cassq.model.pipe import TRANSITIONS, End, Head, Mark, Phase, PipeState, Run


def check_head(head: Head) -> Head:
    """Return a head whose numbers and phase do not contradict each other.

    Raises:
        ValueError: they do.
    """
    # A pipe may end inside a batch: then the batch to read on from lies further behind the end.
    is_ahead = head.read_from > head.cursor + 1 and head.cursor < head.last
    is_beyond = head.cursor > head.last and not head.is_window_out
    if not head.floor <= min(head.cursor, head.last) or is_beyond or head.read_from < 1 or is_ahead:
        numbers = head.floor, head.cursor, head.read_from, head.last
        raise ValueError(f"floor, cursor, read_from and last are out of order: {numbers}")
    is_over = head.cursor == head.last or head.phase is not Phase.RETIRED
    if (head.phase, head.is_decided) not in TRANSITIONS or not is_over:
        raise ValueError(f"a head cannot be {head.phase.value} at {head.cursor} of {head.last}")
    if head.journal and head.journal.kind not in JOURNAL_KINDS:
        raise ValueError(f"the journal keeps {head.journal.kind!r} of it, and that is nothing")
    return head


def check_mark(mark: Mark) -> Mark:
    """Return a mark that names another pipe if, and only if, its messages were moved to one.

    Raises:
        ValueError: it does not.
    """
    if (mark.end is End.MOVED) is not (mark.target is not None):
        raise ValueError(f"what ended is {mark.end.value}, and it was moved to {mark.target}")
    return mark


def check_state(pipe: UUID, state: PipeState) -> PipeState:
    """Return the state of a pipe when its head, runs and marks do not contradict each other.

    - Runs are split and never joined, and a take inserts its run together with the cursor: so they are
      disjoint, and end at or before the cursor.
    - The cursor steps over a message by a run, by a purge or by a cancellation: so runs and marks cover what
      is above the floor and not behind the cursor.
    - While a window is out it is the last run, and the cursor is undecided: up to its end anything may be.
    - What was never handed out may have been purged, cancelled or moved, but is neither committed nor dead.
    - A pipe retires when everything in it has ended, and head, runs and marks are deleted together.

    Raises:
        DecodeError: they do.
    """
    head = state.head
    cursor = _cursor_of(pipe, state)
    reached = head.floor
    for run in sorted(state.runs, key=lambda run: run.first):
        if run.first <= reached:
            raise _contradiction(pipe, f"messages {run.first} to {min(run.last, reached)} lie in two runs")
        reached = run.last
    if reached > cursor:
        raise _contradiction(pipe, f"a run ends at {reached}, behind the cursor at {cursor}")
    for mark in state.marks:
        if mark.last > cursor and mark.end not in {End.PURGED, End.MOVED}:
            raise _contradiction(pipe, f"message {mark.last} is {mark.end.value}, and the cursor at {cursor}")
    lost = _first_missing((*state.runs, *state.marks), head.floor)
    if lost <= cursor:
        raise _contradiction(pipe, f"message {lost} was handed out or purged, and no row tells of it")
    if head.phase is Phase.RETIRED:
        left = _first_missing(state.marks, head.floor)
        if left <= head.last:
            raise _contradiction(pipe, f"it is retired, and message {left} has not ended")
    return state


def _cursor_of(pipe: UUID, state: PipeState) -> int:
    """Return how far the pipe can have been handed out: to the end of the window, if one is out."""
    windows = [run for run in state.runs if run.window_ms]
    if len(windows) != int(state.head.is_window_out):
        is_out = "a window is out" if state.head.is_window_out else "no window is out"
        raise _contradiction(pipe, f"{is_out}, and {len(windows)} of its runs are windows")
    return windows[0].last if windows else state.head.cursor


def _first_missing(stretches: Iterable[Run | Mark], floor: int) -> int:
    """Return the first number above the floor that none of the stretches has."""
    reached = floor
    for part in sorted(stretches, key=lambda part: part.first):
        if part.first > reached + 1:
            break
        reached = max(reached, part.last)
    return reached + 1


def _contradiction(pipe: UUID, words: str) -> DecodeError:
    return DecodeError(f"pipe {pipe} holds rows that cassq did not write together: {words}")
