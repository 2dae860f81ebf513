"""What users hold: one queue, to push into and pop from; how it is looked at and steered is its base's.

Owns the public interface; decides nothing about messages itself. The life of the parts behind it is the
business of `Workers`.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from typing import Unpack

from cassq.bulk.run_reader import RunReader
from cassq.bulk.schedules import Schedules
from cassq.bulk.staging import Staging
from cassq.catalog.services import Services
from cassq.model.ids import MessageId
from cassq.model.label import UNLABELLED
from cassq.model.message import Headers, MessageIds
from cassq.model.options import PushOptions
from cassq.model.queue_record import QueueRecord
from cassq.observing.dead_letters import DeadLetters
from cassq.observing.statistics import Statistics
from cassq.popping.leases import Leases
from cassq.popping.lessor import Lessor
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode
from cassq.pushing.pusher import PUSH_TIMEOUT
from cassq.steering import SteeredQueue
from cassq.workers import Workers


class Queue(SteeredQueue):
    """One queue. Made by `Store.queue`; threads may share it.

    Attributes:
        name: its name.
        dead: its dead letters.
        leases: those that tokens name, whoever leased them.
        schedules: what is pushed into it again and again.
        staging: its pipes that nobody sees yet, for bulk writes that happen all or not at all.
    """

    def __init__(self, services: Services, record: QueueRecord) -> None:
        context = services.context_of(record)
        statistics = Statistics(context)
        self.staging = Staging(context)
        super().__init__(context, statistics, Workers(services, context, statistics, self.staging))
        self.dead = DeadLetters(
            context.storage, self.name, self._workers.push_again, self._workers.check_open, context.clock
        )
        self.leases = Leases(context, self._workers.check_open, self._workers.check_usable)
        self.schedules = Schedules(context, self._workers.check_open)

    def push(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
        **options: Unpack[PushOptions],
    ) -> MessageId:
        """Push one message; return its id once it is durable.

        Args:
            body: the message.
            headers: str to str, small; consumers see them in the order of their names.
            timeout: how long to try, in seconds or as a timedelta. A storage call under way is waited for.
            options: `ttl`, a timedelta: how long it may wait for a consumer; None: as long as the queue says.
                `priority`, from 0 to 9: consumers get what ranks higher first, see `ageing` of a queue.
                `type`, a name: consumers may ask for some types.
                `delay`, a timedelta: nobody gets it before so long after the call; 0 or None for at once.
                `due`, a datetime with a time zone, instead: nobody gets it before then. 5 years at most.
                `key`, a text: of all with this key one consumer has one at a time, and those of one process
                come in their order; up to 256 bytes, and neither with a delay nor with a due time.

        Raises:
            InvalidOptionError, InvalidNameError, BodyTooLargeError: it breaks a rule; nothing was pushed.
            QueueNotFoundError, ClosedError: the queue was deleted or closed; nothing was pushed.
            StorageUnavailableError: the database did not answer in time; the message is not stored.
            OutcomeUnknownError: it may or may not be stored, and time was up before that was known.
        """
        label = self._workers.labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push(body, headers, timeout, label)

    def push_soon(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
        is_patient: bool = True,
        **options: Unpack[PushOptions],
    ) -> "Future[MessageId]":
        """Push one message together with others; returns at once.

        Waits only when 50 000 messages, or 64 MiB, are on their way already.

        Args:
            is_patient: wait for room then; False raises `OverloadedError`, and nothing is pushed.
            options: as of `push`; the queue's first message with one waits for a change of its record.

        Returns: a future of the message's id, which is set, or fails as `push` raises, within `timeout`.
        Raises: as `push`, for what is wrong with the message or the queue.
        """
        label = self._workers.labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push_soon(body, headers, timeout, is_patient=is_patient, label=label)

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        *,
        progress: Callable[[int], None] | None = None,
        timeout: float | timedelta = PUSH_TIMEOUT,
        **options: Unpack[PushOptions],
    ) -> MessageIds:
        """Push many messages, in order; returns when all are durable.

        Args:
            bodies: bytes, or pairs of bytes and headers; read as they are sent, so a generator of millions
                is fine.
            progress: called now and then with the number of messages that are durable.
            timeout: how long each part of them (at most 1000 messages or 1 MiB) may take.
            options: of each of them, as of `push`.

        Returns: the ids, in the order of the bodies; they take little memory.
        Raises: as `push`, for what is wrong with a message or the queue: what came before it may be stored,
            a note on the error says how much. OutcomeUnknownError, which says how much is stored, when the
            database failed after a part of the messages was.
        """
        label = self._workers.labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push_many(bodies, progress, timeout, label)

    def popper(self, *, commit: CommitMode = "each", types: Iterable[str] | None = None) -> Popper:
        """Return a new popper, which takes messages from this queue until it is closed.

        Those that are open share, for each `commit` and `types`, one thread, one name, `pop_width` pipes and
        what was taken ahead. See "Poppers of one process" in docs/operations.md.

        Args:
            commit: "each" writes every commit before it returns. "grouped" writes commits together every few
                milliseconds: faster, but what a crash catches in between is delivered again.
            types: take only messages of these; None: all, with a type or without.

        Raises: ClosedError, QueueNotFoundError, InvalidOptionError, InvalidNameError, UnavailableError.
        """
        return self._workers.make_popper(commit, types)

    def lessor(self, *, types: Iterable[str] | None = None) -> Lessor:
        """Return a new lessor, which leases messages to clients that settle them at any process.

        Those that are open share what takes for them, as poppers do. See "Leases that a token names" in
        docs/protocol.md.

        Args:
            types: as of `popper`.

        Raises: as `popper`; InvalidOptionError: messages of the queue have keys.
        """
        return self._workers.make_lessor(self.leases, types)

    def run_reader(self, name: str, *, lease: timedelta) -> RunReader:
        """Return a reader that leases runs under a stable name, for a consumer that writes down what it has.

        Args:
            name: the same after every restart; at most one process reads under it at a time.
            lease: how long what it has stays its own after its last sign of life, 100 ms to 12 hours.

        Raises:
            InvalidOptionError: the lease is out of range, or somebody reads under this name (after a
                minute, or 15 s on one machine: a process that was killed keeps its session for a while).
            InvalidNameError: the name of the reader breaks the rule.
            ClosedError, QueueNotFoundError: the queue was closed or deleted.
            CoordinationUnavailableError: the claim on the name cannot be asked for.
        """
        return self._workers.make_reader(name, lease)

    def close(self) -> None:
        """Close its poppers, push what is on its way, seal its pipes.

        May be called twice: the second call waits for the first. In the middle of another call of its thread
        it returns at once, as `Store.close`.
        """
        self._workers.close(self.leases.close)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._workers.is_closed

    @property
    def has_closed(self) -> bool:
        """Whether its closing has ended."""
        return self._workers.has_closed

    @property
    def left_behind(self) -> int:
        """How many messages its closing could not store in time."""
        return self._workers.left_behind

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def _may_push_at_once(self, options: PushOptions) -> bool:
        """Tell whether a push with these options reads nothing before; for those who may not wait."""
        return self._workers.labels.is_ready(options)
