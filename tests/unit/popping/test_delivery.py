"""What a delivery is after an ending that was refused, or that failed beside others."""

from datetime import timedelta

import pytest

import cassq
from cassq.errors import (
    AccessDeniedError,
    ClosedError,
    DeliveryExpiredError,
    InvalidOptionError,
    StorageUnavailableError,
    UsageError,
)
from cassq.limits import RETURN_PARTS_MAX
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery_groups import give_all_back


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

    def go_back():
        if is_counted:
            assert popper.rollback_many(found, timedelta(0)) == 3
        else:
            give_all_back(found)

    go_back()
    assert len(calls) == len({each.run for each in found})
    again = popper.pop_many(3, timeout=60)
    assert [(each.body, each.attempt) for each in again] == [
        (b"1", attempt),
        (b"2", attempt),
        (b"3", attempt),
    ]
    with pytest.raises(ClosedError):
        go_back()


def test_of_many_that_go_back_those_of_other_runs_do_though_one_run_is_refused(
    popper, deliveries, monkeypatch
):
    refused, other = deliveries
    with monkeypatch.context() as patch:
        failing(patch, refused.run, AccessDeniedError("planted"), "give_back")
        with pytest.raises(AccessDeniedError):
            give_all_back(deliveries)
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


class TestMany:
    def test_those_that_lie_scattered_go_back_in_few_transactions(self, queue, popper, monkeypatch):
        count = 4 * RETURN_PARTS_MAX + 1
        queue.push_many([b"%d" % number for number in range(count)])
        found = popper.pop_many(count, timeout=60)
        runs = len({each.run for each in found})
        calls = []
        real = HeldRun.give_back
        monkeypatch.setattr(HeldRun, "give_back", lambda *values: calls.append(values) or real(*values))
        back, kept = found[::2], found[1::2]
        assert popper.rollback_many(back[::-1], timedelta(0), "no route") == len(back)
        assert len(calls) <= 3 + runs
        popper.commit_many(kept)
        again = drain(popper, len(back))
        assert sorted(each.body for each in again) == sorted(each.body for each in back)
        assert {each.attempt for each in again} == {2}

    def test_the_last_attempt_makes_letters(self):
        with cassq.connect("memory:") as store, store.queue("q", max_attempts=2).popper() as popper:
            queue = store.queue("q")
            store.alter_queue("q", retry_delay=timedelta(0))
            queue.push_many([b"1", b"2", b"3"])
            for reason in ("first", "second"):
                found = drain(popper, 3)
                assert popper.rollback_many(found, reason=reason) == 3
            assert popper.pop(timeout=0) is None
            letters = [(each.body, each.reason, each.attempts) for each in queue.dead]
        assert letters == [(body, "second", 2) for body in (b"1", b"2", b"3")]

    def test_those_that_are_rejected_are_letters_at_once(self, queue, popper):
        queue.push_many([b"1", b"2"])
        assert popper.reject_many(drain(popper, 2), "no JSON") == 2
        assert [(each.body, each.reason) for each in queue.dead] == [(b"1", "no JSON"), (b"2", "no JSON")]

    def test_what_is_asked_for_wrongly_ends_nothing(self, popper, deliveries):
        with pytest.raises(InvalidOptionError, match="delay"):
            popper.rollback_many(deliveries, timedelta(days=8))
        with pytest.raises(InvalidOptionError, match="reason"):
            popper.reject_many(deliveries, 7)
        with pytest.raises(ClosedError, match="named twice"):
            popper.reject_many([deliveries[0], deliveries[0]], "no")
        popper.commit_many(deliveries)

    def test_those_whose_lease_ended_are_not_counted(self, popper, deliveries):
        ended, other = deliveries
        ended.run.ends_at = float("-inf")
        assert popper.rollback_many(deliveries) == (1 if other.run is not ended.run else 0)


def drain(popper, count):
    found = []
    while len(found) < count:
        found += popper.pop_many(count - len(found), timeout=60)
    return found


def test_a_delivery_is_called_by_its_key_where_it_has_one(queue, popper):
    plain = queue.push(b"1")
    assert repr(popper.pop(timeout=60)) == f"<Delivery {plain} attempt 1, 1 bytes>"
    keyed = queue.push(b"2", key="customer-42")
    assert repr(popper.pop(timeout=60)) == f"<Delivery {keyed} key 'customer-42' attempt 1, 1 bytes>"
