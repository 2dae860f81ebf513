"""Reads what waits in one pipe, a little ahead of what is taken.

Owns the read-ahead: batches are immutable, so a batch that was read once need not be read again for the
messages that were left over. Nothing here decides what may be handed out.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from cassq.errors import CassqError, DecodeError
from cassq.limits import TAKE_BYTES_MAX
from cassq.model.message import Batch
from cassq.model.pipe import Run
from cassq.storage.forms import BatchQuery
from cassq.storage.port import PipeStorage

#: Batches read at once before anything is known of their size, and at most.
FIRST_LIMIT = 4
LIMIT_MAX = 64


class BatchReader:
    """The waiting row of one pipe, as its owner reads it.

    Args:
        beside: reads on while the owner does something else; without it that is not done.
        is_outline: leave bodies and headers out.
    """

    def __init__(
        self, storage: PipeStorage, pipe: UUID, beside: Executor | None = None, *, is_outline: bool = False
    ) -> None:
        self._is_outline = is_outline
        self._beside = beside
        self._storage = storage
        self._pipe = pipe
        self._ahead: list[Batch] = []
        self._limit = FIRST_LIMIT
        self._is_limited = True
        self._following: Future[Sequence[Batch]] | None = None

    def read(self, read_from: int, cursor: int, wanted: int) -> Sequence[Batch]:
        """Return batches without a gap from the one that holds message cursor + 1 on.

        Reads from the database only when what was read ahead does not hold `wanted` messages. Empty when
        nothing waits.
        """
        self._ahead = [batch for batch in self._ahead if batch.last > cursor]
        if self._ahead and self._ahead[0].first > cursor + 1:
            self._ahead = []
        self._is_limited = True
        if self._following:
            following, self._following = self._following, None
            with suppress(CassqError):  # what could not be read ahead is read below, or fails there
                self._add(following.result(), cursor)
        while self._is_limited and not self._has_enough(cursor, wanted):
            first = self._ahead[-1].last + 1 if self._ahead else read_from
            limit = self._limit
            batches = self._storage.read_batches(
                self._pipe, BatchQuery(first, limit=limit, is_outline=self._is_outline)
            )
            is_news = self._add(batches, cursor)
            self._is_limited = len(batches) == limit and is_news
            self._adapt(batches, wanted)
        return self._ahead

    def read_on(self, cursor: int, wanted: int) -> None:
        """Begin to read what follows when less than `wanted` is left behind the cursor; `read` takes it in.

        Only where the last read stopped at its limit: nobody reads in vain where there is nothing.
        """
        if not self._beside or self._following or not (self._is_limited and self._ahead):
            return
        reached = self._ahead[-1].last
        if reached - cursor < wanted:
            query = BatchQuery(reached + 1, limit=self._limit, is_outline=self._is_outline)
            self._following = self._beside.submit(self._storage.read_batches, self._pipe, query)

    def _add(self, batches: Sequence[Batch], cursor: int) -> bool:
        """Take in what was read, up to the first gap; tell whether that is anything new."""
        check_disjoint(self._pipe, batches)
        reached = self._ahead[-1].last if self._ahead else cursor
        following = _without_gap([batch for batch in batches if batch.last > reached], reached)
        self._ahead += following
        return bool(following)

    def _has_enough(self, cursor: int, wanted: int) -> bool:
        if not self._ahead:
            return False
        if self._ahead[-1].last - cursor >= wanted:
            return True
        return sum(batch.size for batch in self._ahead) >= TAKE_BYTES_MAX

    def read_run(self, run: Run, last: int) -> Sequence[Batch]:
        """Return the batches that hold messages run.first … last, which were handed out before.

        Raises:
            DecodeError: one of them is not there (what was once read can always be read again), be it in the
                middle: what is read around a gap is not the run.
        """
        batches: list[Batch] = []
        first, reached = run.read_from, run.first - 1
        while reached < last:
            query = BatchQuery(first, last, limit=LIMIT_MAX, is_outline=self._is_outline)
            found = self._storage.read_batches(self._pipe, query)
            batches += found
            check_disjoint(self._pipe, batches)
            for batch in found:
                if batch.first > reached + 1:
                    raise self._is_gone(reached + 1, batch.first - 1)
                reached = max(reached, batch.last)
            if not found:
                raise self._is_gone(reached + 1, last)
            first = batches[-1].last + 1
        return [batch for batch in batches if batch.last >= run.first]

    def _is_gone(self, first: int, last: int) -> DecodeError:
        return DecodeError(f"pipe {self._pipe}: messages {first} to {last} were handed out, and are gone")

    def is_drained(self, read_from: int, cursor: int) -> bool:
        """Tell, by a fresh read, whether nothing waits behind the cursor."""
        if any(batch.last > cursor for batch in self._ahead):
            return False
        found = self._storage.read_batches(self._pipe, BatchQuery(read_from, limit=2, is_outline=True))
        return all(batch.last <= cursor for batch in found)

    def may_have_more_behind(self, cursor: int) -> bool:
        """Tell whether more is known to wait behind the cursor, or the last read stopped at its limit."""
        return self._is_limited or any(batch.last > cursor for batch in self._ahead)

    @property
    def is_at_end(self) -> bool:
        """Whether the last read saw all that waits."""
        return not self._is_limited

    def _adapt(self, batches: Sequence[Batch], wanted: int) -> None:
        # The next read asks for as many batches as the last ones let expect, by number and by bytes.
        if batches:
            messages = sum(batch.count for batch in batches) / len(batches)
            size = max(1.0, sum(batch.size for batch in batches) / len(batches))
            self._limit = max(1, min(LIMIT_MAX, round(wanted / messages) + 1, round(TAKE_BYTES_MAX / size)))


def read_all(
    storage: PipeStorage, pipe: UUID, last: int, *, is_outline: bool = False, read_from: int = 1
) -> Iterator[Batch]:
    """Yield the batches of a pipe from the one that begins at a number on, up to the first gap."""
    return _read_all(storage, pipe, BatchQuery(read_from, last, LIMIT_MAX, is_outline=is_outline))


def read_headers(storage: PipeStorage, pipe: UUID, last: int) -> Iterator[Batch]:
    """Yield the batches of a pipe in the same way, with their headers, and without their bodies."""
    return _read_all(storage, pipe, BatchQuery(1, last, LIMIT_MAX, is_outline=True, has_headers=True))


def _read_all(storage: PipeStorage, pipe: UUID, query: BatchQuery) -> Iterator[Batch]:
    reached, last = query.first - 1, query.last
    while reached < last:
        found = storage.read_batches(pipe, replace(query, first=reached + 1))
        check_disjoint(pipe, found)
        following = _without_gap(found, reached)
        yield from following
        if not following or len(following) < len(found):
            return
        reached = following[-1].last


def check_disjoint(pipe: UUID, batches: Sequence[Batch]) -> None:
    """Check that batches, in their order, never name a message twice.

    Raises:
        DecodeError: two of them overlap; a pusher gives the next numbers after the last ones only.
    """
    for before, batch in pairwise(batches):
        if batch.first <= before.last:
            raise DecodeError(
                f"pipe {pipe}: messages {before.first} to {before.last} are one batch, "
                f"{batch.first} to {batch.last} another, and a batch never overlaps another"
            )


def _without_gap(batches: Sequence[Batch], reached: int) -> list[Batch]:
    # A read that runs beside two pushes may see the later one only: stop there, the next read sees both.
    following: list[Batch] = []
    for batch in batches:
        if batch.first > reached + 1:
            break
        following.append(batch)
        reached = batch.last
    return following
