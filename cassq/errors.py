"""Every error that cassq raises, in one tree.

The first level says whose turn it is: the caller's (`UsageError`), nobody's because someone else won
(`ConflictError`), the operator's or time's (`UnavailableError`), the caller's judgement
(`OutcomeUnknownError`), or the operator's because what is stored is not ours (`CorruptError`).

What must not break: `OutcomeUnknownError` is no `UnavailableError`. A retry loop that catches
"unavailable" must never swallow "may have happened".
"""

from typing import ClassVar


class CassqError(Exception):
    """Raised when cassq cannot do what was asked; the base of every error below.

    Attributes:
        code: a stable, machine-readable name of the error.
        exit_code: what the command line exits with.
        http_status: what an HTTP door answers with.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class UsageError(CassqError):
    """Raised when the caller asked for something that cannot be: the call has to change."""

    code = "usage"
    exit_code = 64
    http_status = 400


class InvalidNameError(UsageError):
    """Raised when the name of a queue, writer, reader or keyspace breaks the rules for names."""

    code = "invalid-name"


class InvalidOptionError(UsageError):
    """Raised when a setting, URL or argument is of the wrong type, out of range or contradictory."""

    code = "invalid-option"


class BodyTooLargeError(UsageError):
    """Raised when a body, or its headers, is larger than the queue takes."""

    code = "body-too-large"
    exit_code = 65
    http_status = 413


class QueueNotFoundError(UsageError):
    """Raised when the queue does not exist, or was deleted meanwhile."""

    code = "queue-not-found"
    exit_code = 66
    http_status = 404


class DeadLetterNotFoundError(UsageError):
    """Raised when some of the dead letters that were named do not exist; the others were dealt with.

    Attributes:
        count: how many were.
    """

    code = "dead-letter-not-found"
    exit_code = 66
    http_status = 404

    def __init__(self, words: str, count: int = 0) -> None:
        super().__init__(words)
        self.count = count


class MessageNotFoundError(UsageError):
    """Raised when nobody knows what became of a message."""

    code = "message-not-found"
    exit_code = 66
    http_status = 404


class ScheduleNotFoundError(UsageError):
    """Raised when a queue has no schedule of a name."""

    code = "schedule-not-found"
    exit_code = 66
    http_status = 404


class TopicNotFoundError(UsageError):
    """Raised when a topic does not exist, or was deleted."""

    code = "topic-not-found"
    exit_code = 66
    http_status = 404


class GroupNotFoundError(UsageError):
    """Raised when a topic has no group of a name."""

    code = "group-not-found"
    exit_code = 66
    http_status = 404


class ApplicationNotFoundError(UsageError):
    """Raised when there is no application of a name, or it has no key of an id."""

    code = "application-not-found"
    exit_code = 66
    http_status = 404


class KeyRefusedError(UsageError):
    """Raised when a request comes without a key that lets it in."""

    code = "key-refused"
    exit_code = 77
    http_status = 401


class ClosedError(UsageError):
    """Raised when a store, queue, popper or delivery is used after it was closed or finished."""

    code = "closed"
    exit_code = 64
    http_status = 409


class AccessDeniedError(UsageError):
    """Raised when a service refuses the user: the password is wrong, or a permission is missing."""

    code = "access-denied"
    exit_code = 77
    http_status = 403


class ConflictError(CassqError):
    """Raised when someone else won a race that the caller could not have avoided."""

    code = "conflict"
    exit_code = 75
    http_status = 409


class PipeLostError(ConflictError):
    """Raised when a pipe was taken over or is gone, so that a rollback or extension cannot be done."""

    code = "pipe-lost"


class PartitionLostError(ConflictError):
    """Raised when another member of a group has a partition now, or an operator moved its progress."""

    code = "partition-lost"


class OffsetGoneError(ConflictError):
    """Raised when retention, or `clear`, deleted what a reader asks for.

    Attributes:
        partition: where.
        wanted: the offset that was asked for.
        oldest: the first one that is left.
    """

    code = "offset-gone"
    exit_code = 65
    http_status = 410

    def __init__(self, message: str, partition: int, wanted: int, oldest: int) -> None:
        super().__init__(message, partition, wanted, oldest)
        self.partition = partition
        self.wanted = wanted
        self.oldest = oldest

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])


class DeliveryExpiredError(ConflictError):
    """Raised when a delivery's lease ended before it was committed or extended: it comes again."""

    code = "delivery-expired"


class UnavailableError(CassqError):
    """Raised when a service is out of reach: nothing happened, and the same call may work later."""

    code = "unavailable"
    exit_code = 75
    http_status = 503


class StorageUnavailableError(UnavailableError):
    """Raised when the database cannot be reached or refuses to serve; nothing was written."""

    code = "storage-unavailable"


class CoordinationUnavailableError(UnavailableError):
    """Raised when the coordination service cannot be reached: pops stop, pushes go on."""

    code = "coordination-unavailable"


class OverloadedError(UnavailableError):
    """Raised when this process has too much on its way already, by a call that does not wait for room."""

    code = "overloaded"


class RateExceededError(UnavailableError):
    """Raised when a key is used more often than it may be.

    Attributes:
        retry_after_s: when it may be used again.
    """

    code = "rate-exceeded"
    http_status = 429

    def __init__(self, words: str, retry_after_s: float) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


class OutcomeUnknownError(CassqError):
    """Raised when a push or commit may or may not have happened and time ran out before it was known.

    Attributes:
        is_contended: whether others' writes may have kept it waiting, rather than a service that is away.
    """

    code = "outcome-unknown"
    exit_code = 76
    http_status = 504

    def __init__(self, words: str = "", *, is_contended: bool = False) -> None:
        super().__init__(words)
        self.is_contended = is_contended


class CorruptError(CassqError):
    """Raised when what is stored is not what cassq writes."""

    code = "corrupt"
    exit_code = 65
    http_status = 500


class SchemaMismatchError(CorruptError):
    """Raised when the schema is missing, older or newer than this version of cassq."""

    code = "schema-mismatch"
    exit_code = 78


class DecodeError(CorruptError):
    """Raised when a stored row cannot be read as what it should be."""

    code = "decode"
