"""What a delivery is after an ending that was refused, or that failed beside others."""

from datetime import timedelta

import pytest

import cassq
from cassq.errors import (
    AccessDeniedError,
    ClosedError,
    DeliveryExpiredError,
    StorageUnavailableError,
    UsageError,
)
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery_groups import return_all


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q", lease=timedelta(seconds=60))


@pytest.fixture
def popper(queue):
    with queue.popper() as made:
        yield made


@pytest.fixture
def deliveries(queue, popper):
    """Two messages, each of a run of its own."""
    found = []
    for body in (b"1", b"2"):
        queue.push(body)
        found.append(popper.pop(timeout=60))
    assert found[0].run is not found[1].run
    return found


def failing(monkeypatch, run, error, method="marks"):
    """Let the calls of one run fail, those of others go on."""
    real = getattr(HeldRun, method)

    def fail(self, *values):
        if self is run:
            raise error
        return real(self, *values)

    monkeypatch.setattr(HeldRun, method, fail)


@pytest.mark.parametrize("which", [0, 1])
def test_of_several_that_are_named_together_none_ends_where_one_has_ended(popper, deliveries, which):
    deliveries[which].commit()
    with pytest.raises(ClosedError):
        popper.commit_many(deliveries)
    # The other one may still be ended
    deliveries[1 - which].commit()


def test_of_several_none_ends_where_one_is_named_twice(popper, deliveries):
    with pytest.raises(ClosedError, match="named twice"):
        popper.commit_many([*deliveries, deliveries[0]])
    popper.commit_many(deliveries)


@pytest.mark.parametrize("which", [0, 1])
def test_all_runs_are_tried_though_one_comes_too_late(queue, popper, deliveries, monkeypatch, which):
    failing(monkeypatch, deliveries[which].run, DeliveryExpiredError("planted"))
    with pytest.raises(DeliveryExpiredError):
        popper.commit_many(deliveries)
    assert queue.stats().committed == 1
    # It is over for both: what comes again is another delivery
    for each in deliveries:
        with pytest.raises(ClosedError):
            each.commit()


def test_what_was_refused_may_be_ended_later_and_nothing_else(popper, deliveries, monkeypatch):
    # Given a commit that its own thread interrupted another one with, so nothing was begun for that run
    with monkeypatch.context() as patch:
        failing(patch, deliveries[0].run, UsageError("planted"))
        with pytest.raises(UsageError):
            DirectCommitter(commit_soon=None).commit(_claimed(deliveries))
    deliveries[0].commit()
    with pytest.raises(ClosedError):
        deliveries[1].commit()


def _claimed(deliveries):
    for each in deliveries:
        each.finish("committed")
    return deliveries


@pytest.mark.parametrize(("end", "attempt"), [("rollback", 2), ("give_back", 1)])
def test_a_return_that_was_refused_may_be_made_later(popper, deliveries, monkeypatch, end, attempt):
    first = deliveries[0]
    with monkeypatch.context() as patch:
        failing(patch, first.run, UsageError("planted"), "give_back")
        with pytest.raises(UsageError):
            getattr(first, end)()
    assert getattr(first, end)()
    again = popper.pop(timeout=60)
    assert (again.message_id, again.attempt) == (first.message_id, attempt)


def test_a_return_whose_lease_ends_is_over(deliveries, monkeypatch):
    first = deliveries[0]
    with monkeypatch.context() as patch:
        failing(patch, first.run, StorageUnavailableError("planted"), "give_back")
        with pytest.raises(StorageUnavailableError):
            first.rollback()
    with pytest.raises(ClosedError):
        first.commit()


@pytest.mark.parametrize(("is_counted", "attempt"), [(True, 2), (False, 1)])
def test_many_that_go_back_at_once_do_so_by_run(queue, popper, monkeypatch, is_counted, attempt):
    queue.push_many([b"1", b"2", b"3"])
    found = popper.pop_many(3, timeout=60)
    calls = []
    real = HeldRun.give_back
    monkeypatch.setattr(HeldRun, "give_back", lambda *values: calls.append(values) or real(*values))
    return_all(found, is_counted=is_counted)
    assert len(calls) == len({each.run for each in found})
    again = popper.pop_many(3, timeout=60)
    assert [(each.body, each.attempt) for each in again] == [
        (b"1", attempt),
        (b"2", attempt),
        (b"3", attempt),
    ]
    with pytest.raises(ClosedError):
        return_all(found, is_counted=is_counted)


def test_of_many_that_go_back_those_of_other_runs_do_though_one_run_is_refused(
    popper, deliveries, monkeypatch
):
    refused, other = deliveries
    with monkeypatch.context() as patch:
        failing(patch, refused.run, AccessDeniedError("planted"), "give_back")
        with pytest.raises(AccessDeniedError):
            return_all(deliveries, is_counted=False)
    assert popper.pop(timeout=60).message_id == other.message_id
    refused.commit()


def test_a_return_without_the_permission_is_told(queue, deliveries, monkeypatch):
    first = deliveries[0]
    with monkeypatch.context() as patch:
        patch.setattr(first.run, "_storage", _Refusing(first.run._storage))
        for end in (first.rollback, first.give_back):
            with pytest.raises(AccessDeniedError):
                end()
    first.commit()
    assert queue.stats().committed == 1


class _Refusing:
    """A storage that lets this user read only."""

    def __init__(self, storage):
        self._storage = storage

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def transact(self, *_):
        raise AccessDeniedError("planted")


def test_the_error_of_the_work_is_told_where_its_message_cannot_go_back(deliveries, monkeypatch):
    first = deliveries[0]
    failing(monkeypatch, first.run, AccessDeniedError("no permission"), "give_back")
    with pytest.raises(ZeroDivisionError) as raised, first:
        raise ZeroDivisionError
    assert "no permission" in raised.value.__notes__[0]
