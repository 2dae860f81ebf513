"""Leases runs for a consumer that writes down what it has, dies, and comes again under the same name.

Owns the leases that such a reader holds: takes them, keeps them alive, finds them again after a restart, and
commits them when it is told that what was written down is done. It refuses to read messages; `read_leased`
does, in whatever process. A stream processor's checkpoint is the writing it is made for:

    the stream                       this reader                    the database
    | what comes next? ------------->| take R, for ten minutes ---->| R leased to "reader orders"
    | writes R down                  | (keeps R alive)
    | works on R; is killed
    | again: works on R ------------>| R, by its lease id: extend ->| still leased to it, or refused
    | what comes next? R is done --->| mark R --------------------->|
    |                                | what it took and nobody wrote down: found by its name, comes next

What must not break: a run is committed only under the lease that was written down, and a lease that somebody
else has by now is never used again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from uuid import UUID, uuid5

from cassq.clock import Clock
from cassq.coordination.port import Coordinator
from cassq.errors import (
    DecodeError,
    DeliveryExpiredError,
    InvalidOptionError,
    OutcomeUnknownError,
    UnavailableError,
)
from cassq.feeder import Feeder
from cassq.held_run import HeldRun
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.loop import Loop
from cassq.model.message import Batch
from cassq.model.pipe import PipeState, Run, RunState
from cassq.model.progress import Progress
from cassq.model.stretches import Stretch, Stretches
from cassq.model.taking import Taken
from cassq.model.transaction import RunChange, Transaction
from cassq.observation import find_pushed
from cassq.process import Birthplace
from cassq.storage.port import BatchQuery, Storage

_log = logging.getLogger("cassq.reader")

#: A reader that found nothing and that nobody wakes looks again after so long.
POLL_S = 0.25

#: Leases are extended this often in their time.
EXTEND_PER_LEASE = 3

#: How long a reader waits for the claim on its name: longer than a dead process keeps its session.
NAME_PATIENCE_S = 60.0

REVIVE_ATTEMPTS = 5
_BATCHES_READ = 16
_NAMES = UUID("6e4a7f0c-0d0f-4c3b-9b59-2f6f6d1f5a11")


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """A run as it is written down.

    Attributes:
        pipe: where it is.
        lease_id: the lease under which it may be committed.
        attempt: how many times it was handed out, this time included.
        read_from: first number of the batch that holds its first message.
        parts: the messages of it that had not ended when it was taken.
    """

    pipe: UUID
    lease_id: UUID
    attempt: int
    read_from: int
    parts: tuple[Stretch, ...]

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(part.size for part in self.parts)

    def to_json(self) -> list[Any]:
        """Return it as JSON values."""
        parts = [list(part) for part in self.parts]
        return [str(self.pipe), str(self.lease_id), self.attempt, self.read_from, parts]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> Self:
        """Read it back.

        Raises: InvalidOptionError: it is not one.
        """
        try:
            pipe, lease_id, attempt, read_from, parts = found
            stretches = tuple(Stretch(*part) for part in parts)
            return cls(UUID(pipe), UUID(lease_id), int(attempt), int(read_from), stretches)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidOptionError(
                f"{str(found)[:80]} is not a run that cassq wrote down: {error}"
            ) from None


def read_leased(storage: Storage, run: LeasedRun) -> Iterator[Batch]:
    """Yield the messages of a run, in order; the same ones however often.

    Raises: DecodeError: they are gone. The lease had ended, others took the run, and its pipe was retired.
    """
    first, last = run.read_from, run.parts[-1].last
    missing = Stretches(run.parts)
    while first <= last:
        batches = storage.read_batches(run.pipe, BatchQuery(first, last, limit=_BATCHES_READ))
        if not batches:
            break
        for batch in batches:
            for part in missing.within(batch.first, batch.last):
                yield batch.part(*part)
        first = batches[-1].last + 1
    if first <= last:
        raise DecodeError(
            f"pipe {run.pipe}: messages {first} to {last} are gone: others took and committed them, because "
            "the lease of this reader had ended; give it a longer lease"
        )


class RunReader:
    """Leases runs under a stable name. One thread calls it; a loop of its own keeps the leases alive.

    Args:
        feeder: takes, under the name that `tag` makes of `name`.
        name: the reader's name, the same after every restart.
        holder: the name of this process's claims, unique.
        check_takes: returns False while the queue is paused, raises `QueueNotFoundError` once it is deleted.

    Raises: InvalidOptionError: another process reads under this name.
    """

    def __init__(  # noqa: PLR0913 - collaborators are passed in
        self,
        feeder: Feeder,
        storage: Storage,
        coordinator: Coordinator,
        *,
        queue: str,
        name: str,
        holder: str,
        lease_s: float,
        check_takes: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._feeder = feeder
        self._storage = storage
        self._coordinator = coordinator
        self._queue = queue
        self._name = name
        self._holder = holder
        self._lease_s = lease_s
        self._check_takes = check_takes
        self._clock = clock
        self._hold = partial(HeldRun, storage, clock=clock, told=lambda _: None, birthplace=Birthplace())
        self._held: dict[UUID, HeldRun] = {}
        self._lock = threading.Lock()
        self._pause = threading.Condition()
        self._is_closed = False
        self._is_woken = True
        self._looked_at = float("-inf")
        self._until: Mapping[UUID, int] | None = None
        self._seat = uuid5(_NAMES, name)
        self._sit_down()
        self._loop = Loop(f"cassq-reader-{name}", self.keep_alive, lease_s / EXTEND_PER_LEASE, clock)

    def take(self, wanted: int | None) -> list[LeasedRun]:
        """Lease up to about `wanted` messages; everything there is for None. Empty when there is nothing now.

        Trouble with a service is no error here: it is logged, and the next call tries again.

        Raises: QueueNotFoundError, CorruptError.
        """
        found: list[LeasedRun] = []
        if not self._is_worth_a_look():
            return found
        is_woken, self._is_woken = self._is_woken, False
        self._looked_at = self._clock.now()
        left = wanted
        try:
            if not self._check_takes():
                return found
            while left is None or left > 0:
                most = TAKE_MESSAGES_MAX if left is None else min(left, TAKE_MESSAGES_MAX)
                haul = self._feeder.feed(most, is_woken=is_woken, is_retry=not is_woken)
                if not haul:
                    break
                is_woken = False
                found += [self._note(held, taken) for held, taken in haul]
                if left is not None:
                    left -= sum(taken.count for _, taken in haul)
                self._feeder.share()
            if found:
                self._looked_at = float("-inf")  # there may be more at once
                self._coordinator.withdraw_hunger(self._queue, self._holder)
            else:
                self._coordinator.announce_hunger(self._queue, self._holder, self._wake)
        except (UnavailableError, OutcomeUnknownError) as error:
            _log.warning("queue %s: reader %s takes nothing for now: %s", self._queue, self._name, error)
        return found

    def adopt(self, written: Iterable[LeasedRun]) -> list[LeasedRun]:
        """Return what an earlier process of this name leased and did not write down.

        Args:
            written: what it wrote down last.
        """
        known = {run.lease_id for run in written} | set(self._held)
        found: list[LeasedRun] = []
        for entry in self._storage.list_pipes(self._queue).entries:
            state = self._storage.load_pipe(entry.pipe)
            for row in state.runs if state else ():
                if row.holder == tag(self._name) and row.lease_id not in known and state:
                    run = _left_of(entry.pipe, state, row)
                    if run and self._revive(run):
                        found.append(run)
        return found

    def hold(self, runs: Iterable[LeasedRun]) -> list[LeasedRun]:
        """Make sure that runs which were written down are leased to this reader; return those that are not.

        A lease that ran out, and that nobody took since, begins anew.
        """
        return [run for run in runs if not (self._is_held(run) or self._revive(run))]

    def commit(self, runs: Iterable[LeasedRun]) -> None:
        """Commit runs that were written down and are done; again does no harm.

        What others took because a lease had ended is logged: it comes to them, too.

        Raises: OutcomeUnknownError, StorageUnavailableError: not known to be committed; call it again.
        """
        for run in runs:
            held = self._held_of(run) or self._revive(run)
            if held:
                try:
                    held.commit(Stretches(run.parts))
                except DeliveryExpiredError:
                    held = self._revive(run)
                    if held:
                        held.commit(Stretches(run.parts))
            if not held and not self._has_ended(run):
                _log.warning(
                    "queue %s: %d messages of pipe %s were done by reader %s after their lease had ended: "
                    "others have them, too; give the reader a longer lease",
                    *(self._queue, run.count, run.pipe, self._name),
                )
            with self._lock:
                self._held.pop(run.lease_id, None)

    def stop_at_present(self) -> None:
        """Take nothing from now on that is pushed after this call."""
        until: dict[UUID, int] = {}
        for entry in self._storage.list_pipes(self._queue).entries:
            state = self._storage.load_pipe(entry.pipe)
            if state:
                until[entry.pipe] = min(state.head.last, find_pushed(self._storage, entry.pipe, state.head))
        self._until = until
        self._feeder.stop_at(until)

    def is_at_stop(self) -> bool:
        """Tell whether everything up to `stop_at_present` was handed out, by whomever."""
        for pipe, last in (self._until or {}).items():
            state = self._storage.load_pipe(pipe)
            cursor = 0
            if state:
                window = state.window
                cursor = window.first - 1 if window else state.head.cursor
            if state and cursor < last:
                return False
        return True

    def wait(self) -> None:
        """Wait until it is worth taking again."""
        with self._pause:
            if not self._is_woken:
                self._clock.wait(self._pause, POLL_S)

    def keep_alive(self) -> None:
        """Extend every lease that is held; one that others have is given up."""
        with self._lock:
            held = dict(self._held)
        for lease_id, run in held.items():
            try:
                run.extend()
            except DeliveryExpiredError:
                with self._lock:
                    self._held.pop(lease_id, None)  # whoever needs it looks whether it can begin anew
            except (UnavailableError, OutcomeUnknownError) as error:
                _log.warning("queue %s: a lease of reader %s: %s", self._queue, self._name, error)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Give the claims up; the leases stay, for whoever comes under this name. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.close()
        self._coordinator.withdraw_hunger(self._queue, self._holder)
        self._feeder.close()
        self._coordinator.release(self._queue, self._seat, self._holder)

    def _sit_down(self) -> None:
        until = self._clock.now() + NAME_PATIENCE_S
        while not self._coordinator.claim(self._queue, self._seat, self._holder):
            if self._clock.now() >= until:
                raise InvalidOptionError(
                    f"queue {self._queue!r} is read under the name {self._name!r} by another process: "
                    "stop that one, or read under a name of your own"
                )
            with self._pause:
                self._clock.wait(self._pause, POLL_S)

    def _is_worth_a_look(self) -> bool:
        return self._is_woken or self._clock.now() - self._looked_at >= POLL_S

    def _wake(self) -> None:
        with self._pause:
            self._is_woken = True
            self._pause.notify_all()

    def _note(self, held: HeldRun, taken: Taken) -> LeasedRun:
        with self._lock:
            self._held[taken.run.lease_id] = held
        parts = Stretches((part.first, part.last) for part in taken.parts)
        run = taken.run
        return LeasedRun(held.pipe, run.lease_id, run.attempt, run.read_from, tuple(parts))

    def _held_of(self, run: LeasedRun) -> HeldRun | None:
        with self._lock:
            return self._held.get(run.lease_id)

    def _is_held(self, run: LeasedRun) -> bool:
        held = self._held_of(run)
        return held is not None and held.is_live

    def _revive(self, run: LeasedRun) -> HeldRun | None:
        """Begin a lease anew that stands as it was written down; None when it does not stand any more."""
        for _ in range(REVIVE_ATTEMPTS):
            row = self._row_of(run)
            if row is None:
                return None
            sent_at = self._clock.now()
            change = RunChange(row, row.lease_id, row.leased_at_ms, is_leased_now=True)
            try:
                is_applied = self._storage.transact(run.pipe, Transaction(runs=(change,))).is_applied
            except OutcomeUnknownError:
                continue  # applied or not, the next attempt is conditional on what it then reads
            if is_applied:
                held = self._hold(run.pipe, Taken(row, (), (row.read_from,)), sent_at + row.lease_ms / 1000)
                with self._lock:
                    self._held[run.lease_id] = held
                return held
        raise OutcomeUnknownError(f"pipe {run.pipe}: a lease of reader {self._name!r} could not be settled")

    def _row_of(self, run: LeasedRun) -> Run | None:
        state = self._storage.load_pipe(run.pipe)
        for row in state.runs if state else ():
            if row.lease_id == run.lease_id and row.state is RunState.LEASED:
                return row
        return None

    def _has_ended(self, run: LeasedRun) -> bool:
        state = self._storage.load_pipe(run.pipe)
        if state is None:
            return True
        progress = Progress(state)
        return all(
            part.last <= state.head.floor
            or not any(progress.missing(max(part.first, state.head.floor + 1), part.last))
            for part in run.parts
        )


def tag(name: str) -> str:
    """Return what stands as the holder in the runs of a reader."""
    return f"reader {name}"


def _left_of(pipe: UUID, state: PipeState, row: Run) -> LeasedRun | None:
    if row.state is not RunState.LEASED or row.window_ms:
        return None
    parts = tuple(Progress(state).left_of(row))
    return LeasedRun(pipe, row.lease_id, row.attempt, row.read_from, parts) if parts else None
