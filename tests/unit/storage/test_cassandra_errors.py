"""What each failure of the driver means, by the kind of call that met it."""

import pytest
from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError, SyntaxException

from cassq.errors import AccessDeniedError, OutcomeUnknownError, SchemaMismatchError, StorageUnavailableError
from cassq.storage.cassandra.errors_map import DRIVER_ERRORS, mapped
from cassq.storage.cassandra.statement import Call

WRITES = (Call.WRITE, Call.TRANSACTION)
READS = (Call.READ, Call.SERIAL_READ, Call.LOCAL)

UNAVAILABLE = Unavailable("no", consistency=ConsistencyLevel.QUORUM, required_replicas=2, alive_replicas=1)
OVERLOADED = OverloadedErrorMessage(0x1001, "too many requests", None)
NOWHERE_TO_SEND = [
    NoHostAvailable("none", {}),
    NoHostAvailable("none", {"10.0.0.1:9042": ConnectionException("Pool is shutdown")}),
    NoHostAvailable("none", {"10.0.0.1:9042": NoConnectionsAvailable(), "10.0.0.2:9042": ConnectionBusy()}),
]
IN_FLIGHT = [
    WriteTimeout("late", write_type=0),
    WriteFailure("failed", write_type=0),
    OperationTimedOut(),
    ConnectionShutdown("gone while it waited"),
    ServerError(0x0000, "a bug", None),
    ErrorMessage(0x1700, "CAS contention", None),
    NoHostAvailable("none", {"10.0.0.1:9042": OperationTimedOut()}),
    ConnectionResetError("reset"),
]


def meaning(error, call):
    with pytest.raises(Exception) as raised, mapped(call, "cassq"):
        raise error
    assert raised.value.__cause__ is error
    return type(raised.value)


@pytest.mark.parametrize(
    "error", [*IN_FLIGHT, *NOWHERE_TO_SEND, UNAVAILABLE, OVERLOADED, ReadTimeout("late")]
)
@pytest.mark.parametrize("call", READS)
def test_a_read_that_fails_did_nothing(error, call):
    assert meaning(error, call) is StorageUnavailableError


@pytest.mark.parametrize("error", IN_FLIGHT)
@pytest.mark.parametrize("call", WRITES)
def test_a_write_that_was_on_its_way_may_have_happened(error, call):
    assert meaning(error, call) is OutcomeUnknownError


KEPT_WAITING = [
    WriteTimeout("late", write_type=WriteType.CAS),
    ErrorMessage(0x1700, "nobody knows how it ended", None),
]


def is_contended(error, call):
    with pytest.raises(OutcomeUnknownError) as raised, mapped(call, "cassq"):
        raise error
    return raised.value.is_contended


@pytest.mark.parametrize("error", KEPT_WAITING)
def test_a_transaction_that_was_given_up_between_its_phases_may_have_met_others(error):
    assert is_contended(error, Call.TRANSACTION)
    assert not is_contended(error, Call.WRITE)


@pytest.mark.parametrize(
    "error", [UNAVAILABLE, OperationTimedOut(), WriteTimeout("late", write_type=WriteType.SIMPLE)]
)
def test_a_transaction_that_was_not_answered_tells_nothing_of_others(error):
    assert not is_contended(error, Call.TRANSACTION)


@pytest.mark.parametrize("error", NOWHERE_TO_SEND)
@pytest.mark.parametrize("call", WRITES)
def test_a_write_that_found_no_connection_did_not_happen(error, call):
    assert meaning(error, call) is StorageUnavailableError


@pytest.mark.parametrize("error", [UNAVAILABLE, OVERLOADED])
def test_a_plain_write_that_was_refused_at_once_did_not_happen(error):
    assert meaning(error, Call.WRITE) is StorageUnavailableError


@pytest.mark.parametrize("error", [UNAVAILABLE, OVERLOADED])
def test_a_transaction_that_was_refused_may_have_been_accepted_before(error):
    assert meaning(error, Call.TRANSACTION) is OutcomeUnknownError


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("too large"),
        SyntaxException(0, "no", None),
        Unauthorized("Unable to perform authorization of permissions: Cannot achieve consistency level"),
    ],
)
@pytest.mark.parametrize("call", Call)
def test_a_statement_that_the_server_did_not_begin_did_nothing(error, call):
    assert meaning(error, call) is StorageUnavailableError


REFUSALS = [
    Unauthorized("User app has no MODIFY permission on <table cassq.pipes> or any of its parents"),
    NoHostAvailable("none", {"10.0.0.1:9042": AuthenticationFailed("Bad credentials")}),
]


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("call", Call)
def test_a_user_who_is_refused_is_told_so_whatever_the_call(error, call):
    assert meaning(error, call) is AccessDeniedError


def test_a_node_that_cannot_read_the_passwords_is_an_outage():
    words = "Unable to perform authentication: Cannot achieve consistency level LOCAL_ONE"
    error = NoHostAvailable("none", {"10.0.0.1:9042": AuthenticationFailed(words)})

    assert meaning(error, Call.READ) is StorageUnavailableError


@pytest.mark.parametrize(
    "words",
    [
        "unconfigured table waiting",
        "table cassq.waiting does not exist",
        "keyspace cassq does not exist",
        "Undefined column name op in table cassq.pending",
    ],
)
@pytest.mark.parametrize("call", Call)
def test_a_table_that_is_missing_names_the_way_out(words, call):
    with pytest.raises(SchemaMismatchError, match="cassq schema apply"), mapped(call, "cassq"):
        raise InvalidRequest(words)


def test_what_is_not_the_drivers_is_left_alone():
    assert not issubclass(TypeError, DRIVER_ERRORS)
    with pytest.raises(TypeError), mapped(Call.WRITE, "cassq"):
        raise TypeError


def test_the_message_names_the_nodes_and_what_each_said():
    error = NoHostAvailable("none", {"10.0.0.1:9042": ConnectionException("Pool is shutdown")})

    with (
        pytest.raises(
            StorageUnavailableError, match=r"10\.0\.0\.1:9042: ConnectionException: Pool is shutdown"
        ),
        mapped(Call.READ, "cassq"),
    ):
        raise error
