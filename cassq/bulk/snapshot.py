"""Every message of a pipe with what became of it, for whoever looks at a whole queue at once.

Owns the one reading that shows what lies below a pipe's floor, too. Refuses to change anything: nothing is
claimed, leased or marked. What must not break: no message is shown twice, and none in a state that it did not
have at the time of the read.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from cassq.model.ids import MessageId
from cassq.model.message import Batch
from cassq.model.pipe import End, Phase, PipeState, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.pipes.batch_reader import check_disjoint
from cassq.storage.forms import BatchQuery, DeadLetter
from cassq.storage.port import LetterStorage, PipeStorage

_BATCHES_READ = 16
_OUTLINES_READ = 1000
_LETTERS_READ = 100


class Fate(Enum):
    """What became of a message. `DEAD` ones are read from the dead letters, not from their pipe."""

    WAITING = "waiting"
    LEASED = "leased"
    RETURNED = "returned"
    COMMITTED = "committed"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Section:
    """Messages of one batch that share a fate.

    Attributes:
        batch: the messages; without bodies where only the outline was read.
        fate: what became of them.
        run: how they were handed out last; None of what never was.
        phase: the phase of their pipe.
    """

    batch: Batch
    fate: Fate
    run: Run | None
    phase: Phase


@dataclass(frozen=True, slots=True)
class _Piece:
    stretch: Range
    fate: Fate
    run: Run | None
    read_from: int


def read_sections(
    storage: PipeStorage,
    pipe: UUID,
    *,
    fates: Collection[Fate] = tuple(Fate),
    is_outline: bool = False,
) -> Iterator[Section]:
    """Yield the messages of a pipe in their order; nothing of a pipe that is gone.

    What was purged or went to the dead letters is left out, and so is what is just going there. The states
    are those of one settled read, from which on the messages are read; what is pushed meanwhile may be shown,
    as waiting, or as leased where a window is out. Of a pipe that retires under the reader only the beginning
    may be shown: all of it had ended then.

    Args:
        fates: only messages with one of these.
        is_outline: leave bodies and headers out.
    """
    state = storage.load_pipe(pipe, is_whole=True)
    if state is None:
        return
    pieces = [piece for piece in _pieces(state) if piece.fate in fates]
    if not pieces:
        return
    first = min(piece.read_from for piece in pieces)
    last = pieces[-1].stretch.last
    place = 0
    limit = _OUTLINES_READ if is_outline else _BATCHES_READ
    while batches := storage.read_batches(pipe, BatchQuery(first, last, limit=limit, is_outline=is_outline)):
        check_disjoint(pipe, batches)
        for batch in batches:
            while place < len(pieces) and pieces[place].stretch.last < batch.first:
                place += 1
            at = place
            while at < len(pieces) and pieces[at].stretch.first <= batch.last:
                piece, at = pieces[at], at + 1
                begin = max(piece.stretch.first, batch.first)
                end = min(piece.stretch.last, batch.last)
                yield Section(batch.part(begin, end), piece.fate, piece.run, state.head.phase)
        first = batches[-1].last + 1


def read_letters(storage: LetterStorage, queue: str) -> Iterator[DeadLetter]:
    """Yield the dead letters of a queue, in the order of their ids."""
    after: MessageId | None = None
    while letters := storage.read_dead(queue, after, _LETTERS_READ):
        yield from letters
        after = letters[-1].message_id


def _pieces(state: PipeState) -> list[_Piece]:
    """Cut the numbers of a pipe where the fate of its messages changes."""
    head = state.head
    window = state.window
    cursor = window.last if window else head.cursor
    committed, gone = Ranges(), Ranges()
    for mark in state.marks:
        (committed if mark.end is End.COMMITTED else gone).add(mark.first, mark.last)
    pieces: list[_Piece] = []
    reached = 0
    for run in sorted(state.runs, key=lambda run: run.first):
        held = Fate.LEASED if run.state is RunState.LEASED else Fate.RETURNED
        # Rows of a very large pipe are read page by page: a run that was split in between overlaps its rest.
        begin, reached = max(run.first, reached + 1), max(reached, run.last)
        is_buried = run.state is RunState.LEASED and run.is_burial
        for part in () if is_buried else gone.missing(begin, run.last):
            pieces += [_Piece(each, Fate.COMMITTED, run, run.read_from) for each in committed.within(*part)]
            pieces += [_Piece(each, held, run, run.read_from) for each in committed.missing(*part)]
    # Behind a window a batch may begin inside it; elsewhere the head says where the next one begins.
    read_from = window.read_from if window else head.read_from
    pieces += [
        _Piece(part, Fate.WAITING, None, min(read_from, part.first))
        for part in gone.missing(cursor + 1, head.last)
    ]
    return sorted(pieces, key=lambda piece: piece.stretch)
