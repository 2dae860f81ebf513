"""What was taken of one slot, and waits for its key.

Owns what is held under its lease, and what was let out of it. Used by the fetch thread alone. What must not
break: nothing without a running lease is let out, and whatever somebody fell silent with keeps its key until
its run was taken again, or returned.

A message that waits for its key stays leased. Its lease is extended while all that was let out of its run
is young: whoever falls silent with one of them loses it as ever, and the rest goes back.
"""

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, DecodeError
from cassq.model.message import Batch
from cassq.model.pipe import Phase, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.model.take_plan import Taken
from cassq.pipes.batch_reader import BatchReader
from cassq.pipes.expiry import is_limited
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.key_gate import PipeKeys, Place, Standing, judge
from cassq.popping.timing import IDLE_S

_log = logging.getLogger("cassq.popper")

#: What waits for somebody else goes back, and rests for so long.
AGAIN_MS = 500


class _Held(NamedTuple):
    run: HeldRun
    taken: Taken
    part: Batch


class _Out(NamedTuple):
    run: HeldRun
    at: float


class KeyedHand:
    """Messages of the pipes of one slot that this process has leased.

    Args:
        holder: whose the takes are.
        is_ordered: whether a message waits for the earlier ones of its key and source.
    """

    def __init__(self, context: QueueContext, holder: str, *, is_ordered: bool) -> None:
        self._context = context
        self._clock = context.clock
        self._holder = holder
        self._is_ordered = is_ordered
        self._held: dict[Place, _Held] = {}
        self._out: dict[Place, _Out] = {}
        self._own: dict[UUID, set[UUID]] = {}
        self._keys: dict[UUID, dict[int, str]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size(self) -> int:
        """How many bytes are kept for what is held."""
        return sum(part.size for part in {id(held.part): held.part for held in self._held.values()}.values())

    def hold(self, run: HeldRun, taken: Taken) -> None:
        """Hold what a take brought."""
        self._own.setdefault(run.pipe, set()).add(taken.run.lease_id)
        keys = self._keys.setdefault(run.pipe, {})
        for part in taken.parts:
            keys.update(_keys_of(part))
            for seq in range(part.first, part.last + 1):
                self._held[Place(run.pipe, seq)] = _Held(run, taken, part)
                self._out.pop(Place(run.pipe, seq), None)

    def let_out(self, pipes: Iterable[OwnedPipe], wanted: int) -> list[tuple[HeldRun, Taken]]:
        """Let out up to `wanted` messages, no two with one key; give back what waits for somebody else.

        Args:
            pipes: all of the slot, of each source the oldest first.

        Raises: CassqError: the keys of what others have could not be read.
        """
        if not self._held or wanted <= 0:
            return []
        judged = judge([self._known(owned) for owned in pipes], is_ordered=self._is_ordered)
        found: list[tuple[HeldRun, Taken]] = []
        for place in judged.free[:wanted]:
            run, taken, part = self._held.pop(place)
            self._out[place] = _Out(run, self._clock.now())
            if run.is_live:  # else it comes again, and keeps its key until then
                found.append((run, replace(taken, parts=(part.part(place.seq, place.seq),))))
        # A kill would make dead letters of what nobody ever had.
        most = self._context.settings.max_attempts
        last = [place for place, held in self._held.items() if held.run.attempt >= most > 1]
        self._give_back({*judged.hopeless, *last}, Return(AGAIN_MS, is_counted=False))
        return found

    def has_foreign(self, owned: OwnedPipe) -> bool:
        """Tell whether somebody else has messages of a pipe, as it was read last."""
        return any(
            run.state is RunState.LEASED and run.lease_id not in self._own.get(owned.pipe, ())
            for run in owned.progress.runs.values()
        )

    def runs(self) -> list[HeldRun]:
        """Return the runs of what is held, those that were taken first first."""
        return list(dict.fromkeys(held.run for held in self._held.values()))

    def keep_up(self) -> None:
        """Extend the leases of what is held, or give it back."""
        now, may_expire = self._clock.now(), is_limited(self._context.settings)
        for run in self.runs():
            if may_expire and run.left_s < max(run.lease_s - IDLE_S, run.lease_s / 2):
                self._give_back_of(run)  # who takes it anew looks whether it has
                continue
            if not run.is_live or run.left_s >= run.lease_s / 2:
                continue
            if any(out.run is run and now - out.at > run.lease_s / 2 for out in self._out.values()):
                self._give_back_of(run)
                continue
            try:
                run.extend()
            except CassqError as error:
                _log.info("queue %s: a held run was not extended: %s", self._context.queue, error)

    def forget(self, pipe: UUID) -> None:
        """Drop what is known of a pipe that is gone."""
        self._keys.pop(pipe, None)
        self._own.pop(pipe, None)
        for place in [place for place in self._held if place.pipe == pipe]:
            del self._held[place]
        for place in [place for place in self._out if place.pipe == pipe]:
            del self._out[place]

    def give_all_back(self) -> None:
        """Give back what is held."""
        self._give_back(list(self._held))

    def _known(self, owned: OwnedPipe) -> PipeKeys:
        """Return what is known of a pipe; reads the keys of what others took."""
        owned.heed()
        runs = sorted(owned.progress.runs.values(), key=lambda run: run.first)
        self._own[owned.pipe] = self._own.get(owned.pipe, set()) & {run.lease_id for run in runs}
        standings = {
            seq: self._standing(Place(owned.pipe, seq), run)
            for run in runs
            for part in _busy_of(owned, run)
            for seq in range(part.first, part.last + 1)
        }
        for place in [place for place in self._out if place.pipe == owned.pipe]:
            if standings.get(place.seq) is not Standing.OUT:
                del self._out[place]
        known = self._keys.get(owned.pipe, {})
        keys = self._keys[owned.pipe] = {seq: known[seq] for seq in standings if seq in known}
        unknown = standings.keys() - keys.keys()
        for run in runs if unknown else ():
            if any(run.first <= seq <= run.last for seq in unknown):
                outlines = BatchReader(self._context.storage, owned.pipe, is_outline=True)
                try:
                    batches = outlines.read_run(run, run.last)
                except DecodeError:
                    if not self._is_cleared(owned.pipe):
                        raise
                    return PipeKeys(owned.entry.source, owned.pipe, {}, {})  # all of it has ended
                for batch in batches:
                    keys.update(_keys_of(batch))
        return PipeKeys(owned.entry.source, owned.pipe, standings, keys)

    def _is_cleared(self, pipe: UUID) -> bool:
        state = self._context.storage.load_pipe(pipe)
        return state is None or state.head.phase is Phase.RETIRED

    def _standing(self, place: Place, run: Run) -> Standing:
        if run.state is RunState.LEASED and run.lease_id in self._own[place.pipe]:
            return Standing.HELD if place in self._held else Standing.OUT
        if run.is_burial and run.holder == self._holder:
            return Standing.OUT  # it ends in a moment, in this process
        self._held.pop(place, None)
        return Standing.RESTING if run.state is RunState.RETURNED else Standing.FOREIGN

    def _give_back_of(self, run: HeldRun) -> None:
        self._give_back([place for place, held in self._held.items() if held.run is run])

    def _give_back(self, places: Collection[Place], how: Return | None = None) -> None:
        back: dict[HeldRun, dict[Place, _Held]] = {}
        for place in places:
            held = self._held.pop(place)
            back.setdefault(held.run, {})[place] = held
        for run, own in back.items():
            is_back = False
            with suppress(CassqError):
                parts = Ranges((place.seq, place.seq) for place in own)
                is_back = run.give_back(parts, how or Return(is_counted=False))
            if not is_back and run.is_live:
                self._held.update(own)  # they are leased as before


def _busy_of(owned: OwnedPipe, run: Run) -> Iterable[Range]:
    """Return what of a run keeps its keys: what has not ended, or by a mark of another attempt."""
    return sorted((*owned.progress.left_of(run), *owned.progress.ended_before(run)))


def _keys_of(batch: Batch) -> Iterable[tuple[int, str]]:
    """Return the numbers and the keys of a batch; those of one that has lost them count as one key."""
    return zip(range(batch.first, batch.last + 1), batch.keys or [""] * batch.count, strict=True)
