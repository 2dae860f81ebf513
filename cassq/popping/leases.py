"""What clients do with leases that tokens name, at whatever process: commit, settle, extend.

Owns what callers are told, and which leases need no read: those leased or read here that run by our clock.
What must not break: a lease is settled once; what was told as committed was acknowledged while it ran.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    AccessDeniedError,
    CoordinationUnavailableError,
    InvalidOptionError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.model.lease import INCARNATION_BYTES, Extension, Lease, Rollback, Settled
from cassq.model.pipe import Run
from cassq.model.ranges import Ranges
from cassq.model.uses import EVERY_POPPER
from cassq.pipes.lent_rows import LentRow, LentRows, Seen
from cassq.pipes.run_rows import Return
from cassq.popping.lease_futures import LeaseFutures
from cassq.popping.lease_marks import LeaseCommit, LeaseMarks
from cassq.popping.lease_returns import check_settled, to_returns, without

#: So often a row is read again that changed between a read and what was conditional on it.
ATTEMPTS = 5


class Leases:
    """The leases of one queue, by their tokens; threads may share it.

    Args:
        check_open, check_usable: raise where the queue is closed; the first one also reads whether it stands.
    """

    def __init__(
        self, context: QueueContext, check_open: Callable[[], None], check_usable: Callable[[], None]
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._check_open = check_open
        self._check_usable = check_usable
        self._rows = LentRows(context)
        self._marks = LeaseMarks(context)
        self._known: OrderedDict[Lease, LentRow] = OrderedDict()  # about in the order in which they end
        self._lock = threading.RLock()
        self._futures = LeaseFutures(self._commit_there)

    @property
    def incarnation(self) -> bytes:
        """What leases of this queue have of its incarnation."""
        return self._context.record.incarnation.bytes[:INCARNATION_BYTES]

    def commit(self, leases: Iterable[Lease]) -> list[Settled]:
        """End all messages of leases; return what each came to, in their order.

        Nothing is raised for some of them. A lease that had ended, and that nobody took since, begins anew.

        Raises:
            InvalidOptionError: one is of another queue, or of an earlier one of its name; nothing was begun.
            ClosedError, QueueNotFoundError, AccessDeniedError: nothing more was written.
        """
        leases, told = self._checked(leases), dict[Lease, Settled]()
        self._commit(leases, told)
        return [told[lease] for lease in leases]

    def _commit(self, leases: Sequence[Lease], told: dict[Lease, Settled]) -> None:
        events = self._context.events
        begun_at = events.now() if events else 0.0
        lent = {lease: self._live(lease) for lease in leases}
        begun = {lease: LeaseCommit(lease, row, row.parts) for lease, row in lent.items() if row}
        late = {each.lease for each in self._marks.write(list(begun.values()), told)}
        away = [lease for lease in lent if lease not in begun or lease in late]
        begun.update(self._commit_away(away, told))
        self._forget(lease for lease, how in told.items() if how is not Settled.UNKNOWN)
        if events:
            done = (each.count for lease, each in begun.items() if told[lease] is Settled.COMMITTED)
            events.note_committed(begun_at, sum(done))

    def commit_soon(self, lease: Lease) -> "Future[Settled]":
        """Commit together with others, without waiting or reading; return the future of what it comes to.

        Its callbacks are called one after the other, by a thread that writes nothing.

        Raises: InvalidOptionError, ClosedError: as `commit`; the future ends with what else is wrong.
        """
        self._check_usable()
        self._check_own((lease,))
        return self._futures.commit_soon(lease)

    def _commit_there(self, leases: Sequence[Lease], told: dict[Lease, Settled]) -> None:
        self._check_open()
        self._commit(leases, told)

    def settle(
        self,
        lease: Lease,
        rolled_back: Mapping[int, Rollback] | None = None,
        rejected: Mapping[int, str] | None = None,
    ) -> Settled:
        """End a lease: some of its messages go back, some are given up, all others are committed.

        Args:
            rolled_back: how messages go back, by their numbers (`message.seq`); after the last attempt a
                message becomes a dead letter.
            rejected: why messages become dead letters, by their numbers.

        Returns: COMMITTED: what was to be committed is, and the rest goes back. ENDED: this call committed
            nothing; what was to be committed had ended before, by whoever's call, what was rejected is or
            becomes a dead letter, and what was rolled back is delivered again, or had ended. It does not say
            that its delay and its reason stand: the lease may have run out instead.

        Raises:
            DeliveryExpiredError: the lease had ended, was settled before, or nobody knows it: messages that
                have not ended are delivered again, also some that were rejected.
            OutcomeUnknownError: it may have happened; call again.
            StorageUnavailableError: the database does not answer; call again.
            InvalidOptionError: a number, a delay or a reason breaks a rule, a message is named twice, they go
                back in too many ways, or the lease is of another queue; nothing was written.
        """
        self._checked((lease,))
        back = to_returns(self._context.settings, lease, rolled_back or {}, rejected or {})
        done, may_have_begun = Settled.ENDED, False
        for _ in range(ATTEMPTS):
            seen = self._rows.read((lease,))[lease]
            kept = Ranges(part for left in seen.left for part in without(left, back))
            going = {seq: how for seq, how in back.items() if seq in seen.left}
            if seen.row is None:
                self._forget((lease,))
                is_gone = bool(kept or (going and len(back) == lease.count and not may_have_begun))
                check_settled(lease, seen, going, is_gone=is_gone)
                return done
            if kept:
                if not self._commit_kept(lease, seen, kept):
                    continue
                done = Settled.COMMITTED
                if seen.is_short and going:
                    continue  # it began anew: its leased_at is to be read
            try:
                rows = self._rows.settle(lease, seen, going) if going else []
            except OutcomeUnknownError:
                may_have_begun = True
                continue
            if rows is not None:
                self._note_returned(self._known.pop(lease, None), rows, going)
                return Settled.COMMITTED if going else done
        raise OutcomeUnknownError(
            f"{lease}: nobody knows whether it was settled; settle it again, or all else comes again"
        )

    def give_back(self, lease: Lease) -> None:
        """Give a lease back of which no client heard; that counts as no attempt.

        What was not written comes again when the lease ends.

        Raises: AccessDeniedError: the role may not write.
        """
        known = self._known.pop(lease, None)  # its client must not act under it here without a read
        for _ in range(ATTEMPTS):
            with suppress(OutcomeUnknownError, StorageUnavailableError):
                seen = self._rows.read((lease,))[lease]
                back = Return(is_counted=False)
                going = {seq: back for part in seen.left for seq in range(part.first, part.last + 1)}
                rows = self._rows.settle(lease, seen, going) if seen.row and going else []
                if rows is not None:
                    self._note_returned(known, rows, going)
                    return

    def extend(self, leases: Iterable[Lease]) -> list[Extension]:
        """Begin leases anew; return what each came to, in their order. Nothing is raised for some of them.

        Raises: as `commit`.
        """
        leases = self._checked(leases)
        told = dict.fromkeys(leases, Extension.UNKNOWN)
        left = list(told)
        for _ in range(ATTEMPTS):
            try:
                seen = self._rows.read(left) if left else {}
            except (StorageUnavailableError, OutcomeUnknownError):
                break
            for lease, each in seen.items():
                if each.row is None or not each.left:
                    told[lease] = Extension.EXPIRED if each.left else Extension.ENDED
                    self._forget((lease,))
                elif self._begin_anew(lease, each):
                    told[lease] = Extension.EXTENDED
            left = [lease for lease in left if told[lease] is Extension.UNKNOWN]
        return [told[lease] for lease in leases]

    def left_s(self, lease: Lease) -> float:
        """Return for how many seconds a lease runs from now on, as far as this process knows."""
        return lent.ends_at - self._clock.latest() if (lent := self._live(lease)) else 0.0

    def note(self, lease: Lease, lent: LentRow) -> None:
        """Know a lease that this process has from now on."""
        now = self._clock.latest()
        with self._lock:
            self._known[lease] = lent
            self._known.move_to_end(lease)
            while (oldest := next(iter(self._known.items()), None)) and oldest[1].ends_at <= now:
                self._known.pop(oldest[0], None)  # a call that interrupted this one may have taken it out

    def close(self) -> None:
        """Write the commits that nobody waits for, and end their futures."""
        self._futures.close()

    def _checked(self, leases: Iterable[Lease]) -> Sequence[Lease]:
        self._check_open()
        if isinstance(leases, Lease | str):
            raise InvalidOptionError(f"{leases!s:.20} is to be one of a list: call it with [lease]")
        self._check_own(checked := list(leases))
        return checked

    def _check_own(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if not isinstance(lease, Lease):
                raise InvalidOptionError(f"{lease!r:.80} is no lease: read a text with Lease.parse(text)")
            if lease.incarnation != self.incarnation:
                raise InvalidOptionError(
                    f"{lease} is of another queue than {self._context.queue!r}, or of an earlier one of that "
                    "name: send it where it was leased"
                )

    def _live(self, lease: Lease) -> LentRow | None:
        lent = self._known.get(lease)
        return lent if lent and self._clock.latest() < lent.ends_at else None

    def _forget(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._known.pop(lease, None)

    def _commit_away(self, leases: Sequence[Lease], told: dict[Lease, Settled]) -> dict[Lease, LeaseCommit]:
        """Commit leases that are not known here, or whose time is over; return what was begun."""
        begun: dict[Lease, LeaseCommit] = {}
        left = list(leases)
        for _ in range(ATTEMPTS):
            try:
                found = self._rows.read(left) if left else {}
            except (StorageUnavailableError, OutcomeUnknownError):
                break
            for lease, seen in found.items():
                if not seen.left or seen.row is None:
                    told[lease] = Settled.EXPIRED if seen.left else Settled.ENDED
            # Those that run are marked before others begin anew, which takes a transaction for each.
            for is_short in (False, True):
                own: dict[Lease, LeaseCommit] = {}
                for lease, seen in found.items():
                    if lease not in told and seen.is_short is is_short and (lent := self._lend(lease, seen)):
                        own[lease] = LeaseCommit(lease, lent, seen.left)
                self._marks.write(list(own.values()), told)
                begun.update(own)
            left = [lease for lease in left if lease not in told]
        told.update(dict.fromkeys(left, Settled.UNKNOWN))
        return begun

    def _lend(self, lease: Lease, seen: Seen) -> LentRow | None:
        """Be at home in a lease; None where its row has changed, or may have."""
        if seen.is_short:
            return self._begin_anew(lease, seen)
        return self._be_home(lease, seen, seen.ends_at)

    def _begin_anew(self, lease: Lease, seen: Seen) -> LentRow | None:
        assert seen.row  # noqa: S101 - for type checkers
        try:
            ends_at = self._rows.begin_anew(lease, seen.row)
        except (OutcomeUnknownError, StorageUnavailableError):
            return None  # applied or not, the next attempt is conditional on what it then reads
        return None if ends_at is None else self._be_home(lease, seen, ends_at)

    def _be_home(self, lease: Lease, seen: Seen, ends_at: float) -> LentRow:
        assert seen.row  # noqa: S101 - as above
        known = self._known.get(lease)
        lent = LentRow(seen.row, seen.left, ends_at, known.note if known else None)
        self.note(lease, lent)
        return lent

    def _commit_kept(self, lease: Lease, seen: Seen, parts: Ranges) -> bool:
        """Commit a part of a lease; False where its row has changed, or it may have been too late."""
        told: dict[Lease, Settled] = {}
        if lent := self._lend(lease, seen):
            self._marks.write([LeaseCommit(lease, lent, parts)], told)
        return told.get(lease) is Settled.COMMITTED

    def _note_returned(self, known: LentRow | None, rows: Sequence[Run], back: Mapping[int, Return]) -> None:
        """Tell the owner where it is here; else wake somebody, of whatever type, for what need not rest."""
        if known and known.note:
            known.note(*rows)
        elif not all(how.delay_ms for how in back.values()):
            coordinator, queue = self._context.coordinator, self._context.queue
            with suppress(CoordinationUnavailableError, AccessDeniedError):
                if coordinator.hungry(queue, types=EVERY_POPPER):
                    coordinator.wake(queue, 1, types=EVERY_POPPER)
