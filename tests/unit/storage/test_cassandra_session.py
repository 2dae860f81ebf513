"""What several writes are told to have come to, where the server refuses one of them, or prepares none."""

import threading
from types import SimpleNamespace

import pytest
from cassandra import ConsistencyLevel, Unauthorized, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import OverloadedErrorMessage

from cassq.errors import AccessDeniedError, OutcomeUnknownError, StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra.session import CassandraSession
from cassq.storage.cassandra.sick_nodes import SickNodes
from cassq.storage.cassandra.statements import DELETE_PENDING, DELETE_WAITING

UNAVAILABLE = Unavailable("no", consistency=ConsistencyLevel.QUORUM, required_replicas=2, alive_replicas=1)
REFUSALS = [
    pytest.param(UNAVAILABLE, StorageUnavailableError, id="too few replicas"),
    pytest.param(OverloadedErrorMessage(0x1001, "too many", None), StorageUnavailableError, id="overloaded"),
    pytest.param(NoHostAvailable("none", {}), StorageUnavailableError, id="no connection"),
    pytest.param(Unauthorized("no permission"), AccessDeniedError, id="no permission"),
]


class Answer:
    """An answer that is there already."""

    coordinator_host = None

    def __init__(self, error):
        self._error = error

    def result(self):
        if self._error:
            raise self._error
        return []


class Driver:
    """A driver whose server answers what a test says, one request after the other."""

    def __init__(self):
        self.cluster = SimpleNamespace(contact_points=[])
        self.answers = []
        self.unprepared = []
        self.may_prepare = threading.Event()
        self.may_prepare.set()
        self.sent = 0

    def prepare(self, cql):
        self.may_prepare.wait()
        if self.unprepared:
            raise self.unprepared.pop()
        return SimpleNamespace(bind=lambda values: (cql, values))

    def execute_async(self, *_, **__):
        self.sent += 1
        return Answer(self.answers.pop(0))


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def session(driver):
    return CassandraSession(driver, "cassq", SickNodes(SystemClock()), 10.0)


WORK = [(DELETE_WAITING, ("a pipe",)), (DELETE_PENDING, ("a pipe",))]


def in_turn(session):
    session.execute_in_turn([[each] for each in WORK])


def side_by_side(session):
    session.execute_each(WORK)


@pytest.mark.parametrize("write", [in_turn, side_by_side])
@pytest.mark.parametrize(("refusal", "_"), REFUSALS)
def test_a_refusal_behind_what_was_written_tells_that_part_of_it_may_have_happened(
    session, driver, write, refusal, _
):
    driver.answers = [None, refusal]
    with pytest.raises(OutcomeUnknownError):
        write(session)


@pytest.mark.parametrize(("refusal", "told"), REFUSALS)
def test_a_refusal_of_the_first_ends_what_is_written_in_turn_and_nothing_happened(
    session, driver, refusal, told
):
    driver.answers = [refusal]
    with pytest.raises(told):
        in_turn(session)
    assert driver.sent == 1


def test_a_statement_that_could_not_be_prepared_is_prepared_again(session, driver):
    # Given a statement that somebody waits for, when the servers go away
    driver.unprepared = [NoHostAvailable("none", {})]
    driver.may_prepare.clear()
    preparing = session._in_preparation(DELETE_WAITING)
    driver.may_prepare.set()
    with pytest.raises(NoHostAvailable):
        preparing.result()
    # When they are back, then it is sent
    driver.answers = [None]
    session.execute(DELETE_WAITING, ("a pipe",))
    assert driver.sent == 1
