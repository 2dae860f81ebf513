"""The pipes of a queue, as one process sees them.

Owns the remembered floor that keeps retired pipes from costing anything, and since when a pipe is known.
What must not break: a pipe is seen however late its entry comes. The floor is a cache: an id is made before
its entry, by any pusher's clock, so a pipe may turn up below it:

    pusher A                    the list                        popper
    | makes the id 1 |          |                               |
    |                |          | <-- pusher B: entry 2         |
    |                           |  --- 2 ---------------------> | the floor is 2
    | entry 1 ----------------> |                               | reads from 2 on: 1 is not among that

So a look reads from some way before the floor, and now and then everything is read.

And a list is no snapshot: it may have a pipe, and not the older one of the same source, which came while it
was read. Who is to take from them one after the other lists once more, and goes by the second list as far as
the first one went: what is older than that was acknowledged before the second began.
"""

from collections.abc import Container
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.model.ids import Source, just_before, new_pipe_id, time_key
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_due, uses_keys
from cassq.pipes.pipe_order import as_far_as, in_order, is_younger, newest_of
from cassq.pipes.relayed import is_named
from cassq.storage.forms import Listing

#: So long nobody asks again whether a relay goes on from a pipe.
NAMED_S = 1.0


class PipeList:
    """The live pipes of one queue, in the order in which poppers should look at them.

    Args:
        has_keyed: also those of slots, which are taken from in a way of their own.

    Attributes:
        types: it lists pipes of these; None for all.
    """

    def __init__(self, context: QueueContext, *, has_keyed: bool = False) -> None:
        self.types: Container[str] | None = None
        self._storage = context.storage
        self._queue = context.queue
        self._context = context
        self._clock = context.clock
        self._entries: dict[UUID, PipeEntry] = {}
        self._first_seen: dict[UUID, float] = {}
        self._named_until: dict[UUID, float] = {}
        self._newest: dict[Source, UUID] = {}
        self._has_keyed = has_keyed
        # Of the lists beside the first one, which not every queue has.
        self._beside: dict[Shelf, dict[UUID, PipeEntry]] = {Shelf.DUE: {}, Shelf.KEYED: {}}
        self._is_in_turn = False
        self._floor: UUID | None = None
        self._full_read_at: float | None = None
        self._read_at = 0.0
        self._publications = 0
        self._now_ms, self._now_at = 0, 0.0

    @property
    def entries(self) -> tuple[PipeEntry, ...]:
        """The pipes, in the order in which poppers should look at them."""
        return tuple(self._entries.values())

    def refresh(self, publications: int) -> Listing:
        """Read the list, from before the floor or, once per lifetime of a pipe, all of it; return it whole.

        Args:
            publications: how often staged pipes were published; when that has changed all is read, too,
                because their ids are older than their entries.
        """
        now = self._clock.now()
        is_in_turn = self._context.settings.pop_width == 1
        if is_in_turn and not self._is_in_turn:  # what it missed of late was not looked for
            self._full_read_at, self._newest = None, {}
        self._is_in_turn = is_in_turn
        is_full = self._full_read_at is None or now - self._full_read_at >= self._gone_after_s
        is_full = is_full or publications != self._publications
        since = None if is_full else self._since(now)
        listing = self._storage.list_pipes(self._queue, since)
        if is_in_turn:
            listing = self._with_older(listing, since)
        self._read_at = now
        now = self._clock.now()  # a pipe is first seen when the answer is here, not when it was asked for
        if is_full:
            self._full_read_at = now
            self._publications = publications
        # None that lives lies before where this look began: the floor was the oldest of them.
        entries = listing.entries
        if uses_due(self._context.settings):
            entries += self._read_beside(Shelf.DUE, listing.now_ms, is_full=is_full)
        if self._has_keyed and uses_keys(self._context.settings):
            entries += self._read_beside(Shelf.KEYED, listing.now_ms, is_full=is_full)
        meant = [entry for entry in entries if self.types is None or entry.type in self.types]
        found = in_order(meant, self._context.settings.ageing)
        if listing.entries:
            self._floor = min((entry.pipe for entry in listing.entries), key=time_key)
        self._entries = {entry.pipe: entry for entry in found}
        self._first_seen = {pipe: self._first_seen.get(pipe, now) for pipe in self._entries}
        self._named_until = {pipe: at for pipe, at in self._named_until.items() if pipe in self._entries}
        self._newest = (self._newest if is_in_turn and not is_full else {}) | newest_of(entries)
        self._now_ms, self._now_at = listing.now_ms, now
        return Listing(self.entries, listing.now_ms)

    def is_read_within(self, seconds: float) -> bool:
        """Tell whether the list was read so short a while ago."""
        return self._full_read_at is not None and self._clock.now() - self._read_at < seconds

    def estimate_now_ms(self) -> int:
        """Estimate the database's clock, from the last reading of the list on."""
        return self._now_ms + round(1000 * (self._clock.now() - self._now_at))

    def forget(self, pipe: UUID) -> None:
        """Drop a pipe that turned out to be gone."""
        self._entries.pop(pipe, None)
        for beside in self._beside.values():
            beside.pop(pipe, None)

    def has_successor(self, entry: PipeEntry) -> bool:
        """Tell whether its pusher has opened a newer pipe since."""
        return self._newest.get(entry.source, entry.pipe) != entry.pipe

    def is_abandoned(self, entry: PipeEntry, *, is_open: bool = True) -> bool:
        """Tell whether the pipe is so old that its pusher must have sealed it, if it lives.

        By this process's clock since it first saw the pipe, or between two readings of the database's. A
        relay's is left alone while it is open, and its progress names it.

        Args:
            is_open: whether it is not sealed, by its head.
        """
        now = self._clock.now()
        skew_s = self._context.settings.clock_skew_max.total_seconds()
        is_old = (
            now - self._first_seen.get(entry.pipe, now) > self._gone_after_s
            or (self._now_ms - entry.created_at_ms) / 1000 > self._gone_after_s + skew_s
        )
        return is_old and not (is_open and self._is_named(entry, now))

    def _is_named(self, entry: PipeEntry, now: float) -> bool:
        """Tell whether a relay goes on from a pipe; a name only ever goes away, so an old answer is safe."""
        if now < self._named_until.get(entry.pipe, now):
            return True
        if not is_named(self._storage, entry):
            return False
        self._named_until[entry.pipe] = now + NAMED_S
        return True

    def _read_beside(self, shelf: Shelf, now_ms: int, *, is_full: bool) -> tuple[PipeEntry, ...]:
        """Read another list, whole or what came of late; the older pipes are remembered.

        A pipe comes to it about when its id says, and may stay for long: deletions of others lie behind.
        """
        since = None if is_full else new_pipe_id(now_ms - round(1000 * self._gone_after_s))
        listing = self._storage.list_pipes(self._queue, since, shelf=shelf)
        seen = [] if since is None else self._beside[shelf].values()
        before = [entry for entry in seen if since and time_key(entry.pipe) < time_key(since)]
        self._beside[shelf] = {entry.pipe: entry for entry in (*before, *listing.entries)}
        return tuple(self._beside[shelf].values())

    def _with_older(self, listing: Listing, since: UUID | None) -> Listing:
        """Return a list that has each pipe of a source only with all of the older ones."""
        news = [entry for entry in listing.entries if is_younger(entry, self._newest)]
        if not news:
            return listing
        known = [pipe for entry in news if (pipe := self._newest.get(entry.source))]
        # What is older than the news of a source may lie before the floor, not before what was known of it.
        since = min((since, *known), key=time_key) if since and len(known) == len(news) else None
        again = self._storage.list_pipes(self._queue, since)
        return Listing(as_far_as(listing.entries, again.entries), again.now_ms)

    def _since(self, now: float) -> UUID | None:
        """Return where a look begins: `clock_skew_max` before the floor, and as far again as a ruler tells.

        That is twice the largest power of two milliseconds of which a multiple has passed since the look
        before: longer than since that look, and what is twice as far away is read half as often.
        """
        passed = int(now * 1000) ^ int(self._read_at * 1000)
        margin_s = self._context.settings.clock_skew_max.total_seconds() + (1 << passed.bit_length()) / 1000
        return just_before(self._floor, margin_s) if self._floor else None

    @property
    def _gone_after_s(self) -> float:
        return (self._context.settings.push_age_max + self._context.settings.push_grace).total_seconds()
