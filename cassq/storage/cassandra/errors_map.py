"""What a failure of the driver means.

Owns the one place where driver errors become cassq errors. The same failure means different things for
different calls: a read that timed out did nothing, a write that timed out may have happened.

What must not break: `StorageUnavailableError` for a write says that nothing was written and nothing will be.
In doubt it is `OutcomeUnknownError`.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    ReadFailure,
    Unauthorized,
    Unavailable,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import (
    ConfigurationException,
    ErrorMessage,
    OverloadedErrorMessage,
    SyntaxException,
)

from cassq.errors import (
    AccessDeniedError,
    CassqError,
    OutcomeUnknownError,
    SchemaMismatchError,
    StorageUnavailableError,
)
from cassq.storage.cassandra.statement import Call

#: Everything the driver raises that is not a bug of the caller. A server error of a code that the driver
#: does not know (0x1700, of transactions under contention) is a bare ErrorMessage.
DRIVER_ERRORS: tuple[type[Exception], ...] = (
    DriverException,
    NoHostAvailable,
    ErrorMessage,
    ConnectionException,
    ConnectionBusy,
    NoConnectionsAvailable,
    OSError,
)

#: A host that answers with one of these was not asked: the driver had no connection to send it on.
_NOT_SENT = (ConnectionException, ConnectionBusy, NoConnectionsAvailable)

#: The server looked at the statement and refused to begin.
_REFUSED_WHOLE = (InvalidRequest, Unauthorized, SyntaxException, ConfigurationException)

#: Nobody knows how a transaction ended.
_CAS_UNKNOWN = 0x1700

#: Why a replica failed, in the protocol's numbers.
_TOO_MANY_TOMBSTONES = 1

_SCHEMA_WORDS = re.compile(
    r"unconfigured table|unconfigured columnfamily|does not exist|undefined column|unknown identifier"
    r"|undefined name|unknown type",
    re.IGNORECASE,
)

#: A node that cannot read who may do what refuses everybody: an outage, in the words of a refusal.
_COULD_NOT_JUDGE = "Unable to perform auth"

#: By a word of the TLS library. The driver makes an OSError of its errors, and keeps no more than the words.
_TLS_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted (tls_ca names the authority that signed it)",
    "ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate (tls_cert and tls_key)",
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port",
}


@contextmanager
def mapped(call: Call, place: str) -> Iterator[None]:
    """Turn what the driver raises inside into what it means for a call of this kind.

    Args:
        call: the kind of call.
        place: the keyspace and the addresses, for the message.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        raise to_cassq_error(error, call, place) from error


def to_cassq_error(error: Exception, call: Call, place: str) -> CassqError:
    """Return the cassq error that a driver error means for a call of this kind."""
    words = tell(error)
    if isinstance(error, InvalidRequest) and _SCHEMA_WORDS.search(str(error)):
        return SchemaMismatchError(
            f"the schema of {place} is missing or incomplete ({words}): "
            "run `cassq schema apply --url …`, and `cassq schema check --url …` to see what differs"
        )
    if is_refused(error):
        return AccessDeniedError(
            f"Cassandra refuses it in {place}: {words}: give the role what it lacks, by the table of "
            "permissions in docs/operations.md"
        )
    if is_certainly_not_written(error, call):
        return StorageUnavailableError(f"Cassandra does not serve {place}: {words}")
    return OutcomeUnknownError(
        f"{place} did not confirm the write, it may have happened: {words}",
        is_contended=call is Call.TRANSACTION and is_contended(error),
    )


def is_refused(error: Exception) -> bool:
    """Tell whether the server knows the user and says no; waiting will not help."""
    causes = _causes(error) if isinstance(error, NoHostAvailable) else [error]
    return any(
        isinstance(cause, Unauthorized | AuthenticationFailed) and _COULD_NOT_JUDGE not in str(cause)
        for cause in causes
    )


def is_certainly_not_written(error: Exception, call: Call) -> bool:
    """Tell whether a call that failed like this wrote nothing and never will."""
    if call not in (Call.WRITE, Call.TRANSACTION) or isinstance(error, _REFUSED_WHOLE):
        return True
    if isinstance(error, NoHostAvailable):
        # The policies never send a write twice: the driver gets here only by finding no connection at all.
        return all(isinstance(cause, _NOT_SENT) for cause in _causes(error))
    # The coordinator counts the replicas before it sends a plain write to any. A transaction counts them once
    # per phase, and may have been accepted by then.
    return call is Call.WRITE and isinstance(error, Unavailable | OverloadedErrorMessage)


def is_contended(error: BaseException | None) -> bool:
    """Tell whether a node gave a transaction up between its phases, as it does when many meet."""
    if isinstance(error, WriteTimeout):
        return bool(error.write_type == WriteType.CAS)
    return isinstance(error, ErrorMessage) and error.code == _CAS_UNKNOWN


def met_tombstones(error: BaseException | None) -> bool:
    """Tell whether a node gave a read up because it met too many tombstones."""
    return isinstance(error, ReadFailure) and _TOO_MANY_TOMBSTONES in (error.error_code_map or {}).values()


def tell(error: Exception) -> str:
    """Return what the error says, in one line, with the addresses that the driver tried."""
    if isinstance(error, NoHostAvailable):
        tried = error.errors.items() if isinstance(error.errors, dict) else ()
        causes = "; ".join(f"{address}: {_one_line(cause)}" for address, cause in tried)
        return f"no node could be asked ({causes or 'none is up'})"
    return _one_line(error)


def tell_rejection(error: Exception, *, is_encrypted: bool, has_user: bool) -> str:
    """Return why a connection was not made, with the option that would mend it where the error tells.

    Args:
        error: what the driver raised while it connected.
        is_encrypted: whether it tried TLS.
        has_user: whether it had a user name.
    """
    causes = _causes(error) if isinstance(error, NoHostAvailable) else [error]
    reason = _reason(causes, is_encrypted=is_encrypted, has_user=has_user)
    return f"{reason}; {tell(error)}" if reason else tell(error)


def _reason(causes: Sequence[object], *, is_encrypted: bool, has_user: bool) -> str:
    if any(isinstance(cause, AuthenticationFailed) and is_refused(cause) for cause in causes):
        if has_user:
            return "the user name or password was refused"
        return "it asks for a user name and password"
    words = " ".join(map(str, causes))
    for sign, reason in _TLS_REASONS.items():
        if sign in words:
            return reason
    hung_up = any(isinstance(cause, ConnectionResetError | ConnectionShutdown) for cause in causes)
    if hung_up and not is_encrypted:
        return "it hung up at once, as one does that wants TLS (tls=1, or tls_ca)"
    return ""


def _causes(error: NoHostAvailable) -> list[object]:
    return list(error.errors.values()) if isinstance(error.errors, dict) else [error.errors]


def _one_line(error: object) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}"
