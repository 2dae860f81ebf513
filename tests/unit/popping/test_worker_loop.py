"""The worker's loop goes on past messages that come again; each row of the table in docs/guarantees.md."""

import logging

import pytest

import cassq
from cassq.errors import DeliveryExpiredError, OutcomeUnknownError, StorageUnavailableError
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import Commit

LATE = [DeliveryExpiredError("the lease ended"), OutcomeUnknownError("nobody knows")]
AWAY = StorageUnavailableError("the database is away")


def name_of(error):
    return type(error).__name__


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        queue = store.queue("orders")
        queue.push_many([b"first", b"second"])
        yield queue


@pytest.fixture
def popper(queue):
    with queue.popper() as popper:
        yield popper


class Failing:
    """Lets the first commit or extension of a run fail."""

    def __init__(self, monkeypatch, what, error):
        owner, method = {"commit": (Commit, "try_once"), "extend": (HeldRun, "extend")}[what]
        real = getattr(owner, method)
        errors = [error]

        def fail(each):
            if errors:
                raise errors.pop()
            return real(each)

        monkeypatch.setattr(owner, method, fail)


def work(popper, act=lambda delivery: None):
    """Be a worker for two messages; return what it saw."""
    seen = []
    for delivery in popper:
        with delivery:
            seen.append(delivery)
            if len(seen) == 2:
                popper.close()
            act(delivery)
    return seen


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("error", LATE, ids=name_of)
@pytest.mark.parametrize(
    "act", [lambda _: None, lambda delivery: delivery.commit()], ids=["at the end", "in the block"]
)
def test_a_worker_goes_on_when_a_commit_comes_too_late(popper, monkeypatch, caplog, error, act):
    Failing(monkeypatch, "commit", error)

    first, _ = work(popper, act)

    (told,) = warnings_of(caplog)
    assert str(first.message_id) in told
    assert str(error) in told


@pytest.mark.parametrize("error", [*LATE, AWAY], ids=name_of)
def test_a_worker_goes_on_when_its_lease_cannot_be_extended(queue, popper, monkeypatch, caplog, error):
    Failing(monkeypatch, "extend", error)

    first, _ = work(popper, lambda delivery: delivery.extend())

    (told,) = warnings_of(caplog)
    assert str(first.message_id) in told
    assert queue.stats().rolled_back == 1


@pytest.mark.parametrize("error", [*LATE, AWAY, ValueError("a bug")], ids=name_of)
def test_a_worker_ends_with_the_errors_of_its_own_work(queue, popper, caplog, error):
    def act(_delivery):
        raise error

    with pytest.raises(type(error)) as raised:
        work(popper, act)

    assert raised.value is error
    assert not warnings_of(caplog)
    assert queue.stats().rolled_back == 1


@pytest.mark.parametrize("error", LATE, ids=name_of)
def test_a_commit_that_comes_too_late_raises_outside_of_iteration(popper, monkeypatch, error):
    Failing(monkeypatch, "commit", error)

    with pytest.raises(type(error)), popper.pop(timeout=60):
        pass


def test_a_delivery_of_another_worker_that_comes_too_late_is_an_error_of_the_work(queue, popper, monkeypatch):
    other = popper.pop(timeout=60)
    Failing(monkeypatch, "commit", LATE[0])

    with pytest.raises(DeliveryExpiredError):
        work(popper, lambda _: other.commit())


@pytest.mark.parametrize("error", [OutcomeUnknownError("nobody knows"), AWAY], ids=name_of)
def test_a_worker_goes_on_when_a_look_for_messages_fails(popper, monkeypatch, error):
    errors = [error]
    pop = popper.pop

    def fail(timeout):
        if errors:
            raise errors.pop()
        return pop(timeout)

    monkeypatch.setattr(popper, "pop", fail)

    assert [delivery.body for delivery in work(popper)] == [b"first", b"second"]
