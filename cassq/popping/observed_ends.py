"""Rollbacks, rejections and extensions by consumers, of which an observer is told where there is one.

Owns which of a run's changes were a consumer's call. Decides nothing.
"""

from collections.abc import Iterable

from cassq.model.ranges import Ranges
from cassq.model.take_plan import Handout
from cassq.pipes.held_run import HeldRun
from cassq.pipes.run_rows import Return


def give_back(
    run: HeldRun, parts: Ranges, how: Return, messages: Iterable[Handout], *, is_rejected: bool = False
) -> bool:
    """Return messages of a run as `HeldRun.give_back` does."""
    events = run.events
    if events is None:
        return run.give_back(parts, how, messages)
    begun, is_written, error = events.now(), False, None
    try:
        is_written = run.give_back(parts, how, messages)
    except BaseException as raised:
        error = raised
        raise
    finally:
        count = sum(part.size for part in parts)
        if is_rejected:
            events.note_rejected(begun, count, is_written=is_written, error=error)
        else:
            is_counted = how.is_counted
            events.note_returned(begun, count, is_counted=is_counted, is_written=is_written, error=error)
    return is_written


def extend(run: HeldRun) -> None:
    """Begin the lease of a run anew as `HeldRun.extend` does."""
    events = run.events
    if events is None:
        run.extend()
        return
    begun = events.now()
    try:
        run.extend()
    except BaseException as error:
        events.note_extended(begun, error)
        raise
    events.note_extended(begun)
