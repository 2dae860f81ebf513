"""What clients do with leases that tokens name, at whatever process: commit, settle, extend.

Owns what a caller is told, and what this process knows of leases without a read: those that it leased, or
read before, while its clock says that they run. What must not break: a lease is settled once; what was told
as committed was acknowledged while the lease ran.
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
    DeliveryExpiredError,
    InvalidOptionError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.model.lease import INCARNATION_BYTES, Extension, Lease, Rollback, Settled
from cassq.model.pipe import Run
from cassq.model.ranges import Ranges
from cassq.model.uses import EVERY_POPPER
from cassq.pipes.lent_rows import LentRow, LentRows, Seen
from cassq.popping.lease_marks import LeaseCommit, LeaseMarks
from cassq.popping.lease_returns import to_returns, without
from cassq.runtime.background_thread import BackgroundThread

#: So often a row is read again that changed between a read and what was conditional on it.
ATTEMPTS = 5


class Leases:
    """The leases of one queue, by their tokens; threads may share it.

    Args:
        check_usable: raises where the queue is closed or was deleted.
    """

    def __init__(self, context: QueueContext, check_usable: Callable[[], None]) -> None:
        self._context = context
        self._clock = context.clock
        self._check_usable = check_usable
        self._rows = LentRows(context)
        self._marks = LeaseMarks(context)
        self._known: OrderedDict[Lease, LentRow] = OrderedDict()  # about in the order in which they end
        self._lock = threading.RLock()
        self._is_inside: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._soon: list[tuple[Lease, Future[Settled]]] = []
        self._thread = BackgroundThread("cassq-commit")

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
        leases = self._checked(leases)
        events, told = self._context.events, dict[Lease, Settled]()
        begun_at = events.now() if events else 0.0
        live = ((lease, self._live(lease)) for lease in dict.fromkeys(leases))
        begun = [LeaseCommit(lease, lent, lent.parts) for lease, lent in live if lent]
        late = self._marks.write(begun, told)
        home = {each.lease for each in begun}
        away = [lease for lease in dict.fromkeys(leases) if lease not in home] + [each.lease for each in late]
        for each in self._marks.write(self._begin_away(away, told), told):
            told[each.lease] = Settled.UNKNOWN
        self._forget(lease for lease, how in told.items() if how is not Settled.UNKNOWN)
        if events:
            done = (lease.count for lease, how in told.items() if how is Settled.COMMITTED)
            events.note_committed(begun_at, sum(done))
        return [told[lease] for lease in leases]

    def commit_soon(self, lease: Lease) -> "Future[Settled]":
        """Commit together with others, without waiting; return the future of what it comes to.

        Raises: as `commit`, what is wrong with the lease or the queue.
        """
        self._checked((lease,))
        future: Future[Settled] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._soon.append((lease, future))
            is_first = len(self._soon) == 1
        if is_first:  # who comes while these are written is written next, with all who come until then
            self._thread.submit(self._commit_waiting)
        return future

    def _commit_waiting(self) -> None:
        with self._lock:
            waiting, self._soon = self._soon, []
        try:
            told = self.commit([lease for lease, _ in waiting])
        except BaseException as error:  # each of them is told
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), how in zip(waiting, told, strict=True):
            future.set_result(how)

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

        Returns: COMMITTED, or ENDED where all that is not to go back had ended before.

        Raises:
            DeliveryExpiredError: the lease had ended, was settled before, or nobody knows it: messages that
                have not ended are delivered again.
            OutcomeUnknownError: it may have happened, or a part of it; call again.
            StorageUnavailableError: the database does not answer; call again.
            InvalidOptionError: a number, a delay or a reason breaks a rule, a message is named twice, or the
                lease is of another queue; nothing was written.
        """
        self._checked((lease,))
        back = to_returns(self._context.settings, lease, rolled_back or {}, rejected or {})
        may_have_begun = False
        for _ in range(ATTEMPTS):
            seen = self._rows.read((lease,))[lease]
            kept = Ranges(part for left in seen.left for part in without(left, back))
            if seen.row is None:
                return self._told(
                    lease, kept, is_gone=bool(seen.left) and len(back) == lease.count and not may_have_begun
                )
            try:
                if kept:
                    lent = self._lend(lease, seen)
                    if lent is None:
                        continue
                    self._commit_one(lease, lent, kept)
                    if seen.is_short and back:
                        continue  # it began anew: its leased_at is to be read
                going = {seq: how for seq, how in back.items() if seq in seen.left}
                rows = self._rows.settle(lease, seen, going) if going else []
            except OutcomeUnknownError:
                may_have_begun = True
                continue
            if rows is not None:
                known = self._known.get(lease)
                (known.note if known else self._wake)(*rows)
                self._forget((lease,))
                return Settled.COMMITTED
        raise OutcomeUnknownError(f"{lease}: nobody knows whether it was settled; settle it again")

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
            while (oldest := next(iter(self._known.items()))) and oldest[1].ends_at <= now:
                del self._known[oldest[0]]
                if not self._known:
                    break

    def close(self) -> None:
        """Write the commits that nobody waits for; what interrupted a call of its thread does not wait."""
        self._thread.shutdown(wait=not self._is_inside())

    def _checked(self, leases: Iterable[Lease]) -> Sequence[Lease]:
        self._check_usable()
        checked = list(leases)
        for lease in checked:
            if not isinstance(lease, Lease):
                raise InvalidOptionError(f"{lease!r:.80} is no lease: read a text with Lease.parse(text)")
            if lease.incarnation != self.incarnation:
                raise InvalidOptionError(
                    f"{lease} is of another queue than {self._context.queue!r}, or of an earlier one of that "
                    "name: send it where it was leased"
                )
        return checked

    def _live(self, lease: Lease) -> LentRow | None:
        lent = self._known.get(lease)
        return lent if lent and self._clock.latest() < lent.ends_at else None

    def forget(self, lease: Lease) -> None:
        """Know a lease no more: it goes back, and its client must not act under it here without a read."""
        self._forget((lease,))

    def _forget(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._known.pop(lease, None)

    def _begin_away(self, leases: Sequence[Lease], told: dict[Lease, Settled]) -> list[LeaseCommit]:
        """Read leases that are not known here, or whose time is over; tell of those that are settled."""
        begun: list[LeaseCommit] = []
        left = list(leases)
        for _ in range(ATTEMPTS):
            try:
                found = self._rows.read(left) if left else {}
            except (StorageUnavailableError, OutcomeUnknownError):
                break
            for lease, seen in found.items():
                if not seen.left or seen.row is None:
                    told[lease] = Settled.EXPIRED if seen.left else Settled.ENDED
                    continue
                try:
                    lent = self._lend(lease, seen)
                except (StorageUnavailableError, OutcomeUnknownError):
                    continue
                if lent:
                    begun.append(LeaseCommit(lease, lent, seen.left))
            begun_with = {each.lease for each in begun}
            left = [lease for lease in left if lease not in told and lease not in begun_with]
        told.update(dict.fromkeys(left, Settled.UNKNOWN))
        return begun

    def _lend(self, lease: Lease, seen: Seen) -> LentRow | None:
        """Be at home in a lease; None where its row has changed. Raises as `LentRows.begin_anew`."""
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
        lent = LentRow(seen.row, seen.left, ends_at, known.note if known else lambda *_: None)
        self.note(lease, lent)
        return lent

    def _commit_one(self, lease: Lease, lent: LentRow, parts: Ranges) -> None:
        told: dict[Lease, Settled] = {}
        late = self._marks.write([LeaseCommit(lease, lent, parts)], told)
        if late or told[lease] is not Settled.COMMITTED:
            raise OutcomeUnknownError(f"{lease}: its time was over before a commit was acknowledged")

    def _wake(self, *rows: Run) -> None:
        """Wake somebody who waits, of whatever type, for what may be taken again; its owner is elsewhere."""
        if any(row.reason and not row.not_before_ms for row in rows):
            coordinator, queue = self._context.coordinator, self._context.queue
            with suppress(CoordinationUnavailableError, AccessDeniedError):
                if coordinator.hungry(queue, types=EVERY_POPPER):
                    coordinator.wake(queue, 1, types=EVERY_POPPER)

    def _told(self, lease: Lease, kept: Ranges, *, is_gone: bool) -> Settled:
        """Tell of a lease of which no row stands; what was to go back comes again in any case."""
        self._forget((lease,))
        if kept or is_gone:
            raise DeliveryExpiredError(
                f"{lease} had ended, was settled before, or is not known: its messages that have not ended "
                "are delivered again"
            )
        return Settled.ENDED
