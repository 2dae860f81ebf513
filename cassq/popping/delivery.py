"""A message in a consumer's hands.

Owns the one rule of a delivery: it ends once, by a commit or a rollback, and says so when it is asked to
end again. How that is written is the held run's business, or the committer's when commits are grouped.
"""

from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import repeat
from types import TracebackType
from typing import Self

from cassq.errors import AccessDeniedError, ClosedError, UsageError
from cassq.model.ids import MessageId, shorten
from cassq.model.message import Batch, Headers, Origin, to_datetime
from cassq.model.ranges import Ranges
from cassq.model.retrying import NO_REASON_TO_REJECT, reason_of, to_reason
from cassq.model.take_plan import Handout
from cassq.model.tracing import Span
from cassq.pipes.held_run import HeldRun
from cassq.pipes.run_rows import Return
from cassq.popping.committer import Committer
from cassq.popping.observed_ends import extend, give_back

#: Within a delivery, `type` is what its message was pushed as.
ErrorType = type[BaseException]


class BatchSlice:
    """Messages of one batch and one run that are not handed out yet, and what they have in common.

    A message becomes an object of its own only when a consumer has it: until then a thousand cost as much as
    one. The price: a delivery keeps all bodies of its batch in memory for as long as it lives.

    Attributes:
        next: the first number that is left.
        last: the last one.
    """

    __slots__ = ("batch", "committer", "last", "next", "run")

    def __init__(self, run: HeldRun, batch: Batch, committer: Committer) -> None:
        self.run = run
        self.batch = batch
        self.committer = committer
        self.next = batch.first
        self.last = batch.last

    def deliveries(self, first: int, last: int) -> "list[Delivery]":
        """Return messages `first` … `last` for a consumer."""
        begin = self.batch.first
        if first == last:  # as mostly in a loop over a popper: a slice and a map cost more than the message
            return [Delivery(self, first, self.batch.bodies[first - begin])]
        bodies = self.batch.bodies[first - begin : last - begin + 1]
        return list(map(Delivery, repeat(self), range(first, last + 1), bodies))


class Delivery:
    """One message, delivered once; made by a popper.

    Use it as a context manager: the message is committed when the block ends, and rolled back when the
    block raises; the class and the text of the error are the reason. Or call `commit`, `rollback`, `reject`
    and `extend`.

    Attributes:
        message_id: its public id, as push returned it.
        body: the bytes that were pushed.
        headers: str to str.
        attempt: 1 on the first delivery, one more after each rollback or expired lease.
        pushed_at: when it became durable, by the database's clock (UTC).
        due: from when on it could be delivered; None for at once.
        priority, type, key: as it was pushed; None for no type, and for no key.
    """

    __slots__ = ("_batch_slice", "_ending", "_span", "body", "seq")

    def __init__(self, batch_slice: "BatchSlice", seq: int, body: bytes) -> None:
        self._batch_slice = batch_slice
        self.seq = seq
        self.body = body
        self._ending: str | None = None

    @property
    def headers(self) -> Headers:
        """The message's headers."""
        return self._batch_slice.batch.message(self.seq)[1]

    @property
    def run(self) -> HeldRun:
        """The run it was taken with, for those who look at leases."""
        return self._batch_slice.run

    @property
    def message_id(self) -> MessageId:
        """The message's public id."""
        return self._origin.message_id

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, from 1."""
        return self.run.attempt

    @property
    def pushed_at(self) -> datetime:
        """When the push became durable, by the database's clock."""
        return to_datetime(self._origin.pushed_at_ms)

    @property
    def due(self) -> datetime | None:
        """From when on it could be delivered, by the database's clock (UTC); None: at once."""
        due_ms = self._batch_slice.batch.due_ms(self.seq)
        return to_datetime(due_ms) if due_ms else None

    @property
    def _origin(self) -> Origin:
        return self._batch_slice.batch.origin(self.run.pipe, self.seq)

    @property
    def priority(self) -> int:
        """What it was pushed with."""
        return self.run.entry.priority

    @property
    def type(self) -> str | None:
        """What it was pushed as."""
        return self.run.entry.type or None

    @property
    def key(self) -> str | None:
        """What it was pushed with: of all messages with it one at a time is worked on."""
        batch = self._batch_slice.batch
        return batch.keys[self.seq - batch.first] if batch.keys else None

    def commit(self) -> None:
        """End the message: it will never be delivered again.

        Raises:
            ClosedError: it was committed or rolled back before.
            DeliveryExpiredError: its lease ended; it is delivered again.
            OutcomeUnknownError: the lease ended before the commit was acknowledged; it may come again.
        """
        self.finish("committed")
        self._batch_slice.committer.commit((self,))

    def commit_soon(self) -> "Future[None]":
        """End the message together with others, without waiting; its commit goes out within milliseconds.

        Returns: a future that ends when the commit is durable, or with the error that `commit` raises. It
            cannot be cancelled. Callbacks are called on a thread of their own, one after the other.

        Raises: ClosedError: it was committed or rolled back before.
        """
        self.finish("committed")
        return self._batch_slice.committer.commit_soon(self)

    def rollback(self, delay: timedelta | None = None, reason: str = "") -> bool:
        """Give the message back: it is delivered again, or becomes a dead letter after its last attempt.

        Args:
            delay: it is delivered `delay` from now at the earliest, 7 days at most. None: as long as the
                queue's retry settings say, longer after each attempt.
            reason: why, for people; it stands in the dead letter. Cut to 1 KiB.

        Returns: False when that was not written, or nobody knows whether it was: its lease had ended already,
            or the database did not answer. Then it comes again without the delay, when its lease ends at the
            latest.

        Raises:
            ClosedError: it was committed or rolled back before.
            InvalidOptionError: the delay is negative or longer than 7 days, or the reason is no text.
            AccessDeniedError: the role may not write; it can be ended later, while its lease runs.
        """
        return self._return("rolled back", self.run.after_failure(self.seq, reason, delay))

    def reject(self, reason: str) -> bool:
        """Give the message up: it is a dead letter, however many attempts it had left.

        Args:
            reason: why, for people; it stands in the dead letter. Cut to 1 KiB.

        Returns, Raises: as `rollback`; False: it comes again, when its lease ends at the latest.
        """
        return self._return("rejected", Return(reason=to_reason(reason) or NO_REASON_TO_REJECT, is_last=True))

    def give_back(self) -> bool:
        """Give the message back whose work never began: as `rollback`, but it counts as no attempt.

        Returns: as `rollback`; False counts as an attempt, unless it was written after all.

        Raises: ClosedError, AccessDeniedError: as `rollback`.
        """
        return self._return("given back", Return(is_counted=False))

    def _return(self, ending: str, how: Return) -> bool:
        self.finish(ending)
        messages = (self.handout(),) if how.is_last else ()
        own = Ranges(((self.seq, self.seq),))
        try:
            return give_back(self.run, own, how, messages, is_rejected=ending == "rejected")
        except UsageError:
            self.unfinish()
            raise

    def extend(self) -> None:
        """Begin the lease anew; do so before it ends, for work that takes longer than the queue's lease.

        It extends every message that was taken together with this one. It may wait for the popper to end
        what it leased ahead, until the lease ends at most.

        Raises:
            ClosedError: it was committed or rolled back before.
            DeliveryExpiredError: its lease ended; it is delivered again.
            OutcomeUnknownError, StorageUnavailableError: not known to be extended; the old lease stands.
            AccessDeniedError: the role may not write; the old lease stands.
        """
        self.check_unfinished()
        extend(self.run)

    def handout(self) -> Handout:
        """Return the message as a dead letter needs it."""
        message_id, pushed_at_ms = self._origin
        return self.seq, self.body, self.headers, pushed_at_ms, message_id

    @property
    def has_ended(self) -> bool:
        """Whether it was committed, rolled back or rejected."""
        return self._ending is not None

    @property
    def ending(self) -> str | None:
        """How it has ended: "committed", "rolled back", "rejected" or "given back"; None: not yet."""
        return self._ending

    def check_unfinished(self) -> None:
        """Raise `ClosedError` when it was committed or rolled back before."""
        if self._ending:
            raise ClosedError(f"{self!r} was {self._ending} before: a delivery ends once")

    def finish(self, ending: str) -> None:
        """Claim the delivery for the one ending it gets, or raise `ClosedError`."""
        if self._ending:
            self.check_unfinished()
        self._ending = ending

    def unfinish(self) -> None:
        """Let it be ended once more: the ending was refused before anything was written."""
        self._ending = None

    def begin_work(self) -> Span | None:
        """Begin what a tracer, where the store has one, is told of the work on the message; once."""
        run = self._batch_slice.run
        if not run.tracer or getattr(self, "_span", None):
            return None
        self._span = run.tracer.process(run.queue, self)
        return self._span

    def __enter__(self) -> Self:
        if self._batch_slice.run.tracer:
            self.begin_work()
        return self

    def __exit__(
        self,
        kind: ErrorType | None,  # noqa: PYI036 - the class of an error
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if not self._batch_slice.run.tracer:
            self._end_block(error)
            return None
        try:
            self._end_block(error)
        except BaseException as trouble:
            error = error or trouble
            raise
        finally:
            if span := getattr(self, "_span", None):
                span.end(error)
        return None

    def _end_block(self, error: BaseException | None) -> None:
        if self._ending:
            return
        if error is None:
            self.commit()
        else:
            try:
                # An interrupted program says nothing of the message: it comes again at once.
                self.rollback(None if isinstance(error, Exception) else timedelta(0), reason_of(error))
            except AccessDeniedError as refusal:  # the error of the work is the one to tell
                error.add_note(f"{self!r} could not be rolled back: {refusal}")

    def __repr__(self) -> str:
        key = f" key {shorten(self.key)}" if self.key else ""
        return f"<Delivery {self.message_id}{key} attempt {self.attempt}, {len(self.body)} bytes>"
