"""What the storage port says of schedules, asked of every adapter."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from stored import check_one_winner, race, record

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.queue_record import QueueState
from cassq.model.recurrence import Schedule, ScheduleRecord

DUE = datetime(2027, 1, 1, 8, 30, 15, 250_000, tzinfo=UTC)


def schedule(name="daily", **changes):
    found = Schedule(name, "30 8 * * *", "Europe/Berlin", b"\0body", {}, None, 0, None, DUE)
    return ScheduleRecord(replace(found, **changes))


@pytest.fixture
def incarnation(storage, queue):
    made = record(queue)
    assert storage.change_queue(None, made)
    return made.incarnation


@pytest.mark.parametrize(
    "wanted",
    [
        schedule(),
        schedule(body=b"", headers={"a": "b", "c": "d"}, ttl=timedelta(minutes=5), priority=9, type="mail"),
        replace(schedule(missed=7), target=new_pipe_id()),
    ],
    ids=["plain", "with all", "on its way"],
)
def test_a_schedule_reads_back_as_it_was_written(storage, incarnation, wanted):
    assert storage.change_schedule(incarnation, "daily", None, wanted)

    assert list(storage.read_schedules(incarnation)) == [wanted]
    assert list(storage.read_schedules(incarnation, "daily")) == [wanted]
    assert list(storage.read_schedules(incarnation, "hourly")) == []


def test_all_schedules_read_in_the_order_of_their_names(storage, incarnation):
    for name in ("b", "c", "a"):
        assert storage.change_schedule(incarnation, name, None, schedule(name))

    assert [each.schedule.name for each in storage.read_schedules(incarnation)] == ["a", "b", "c"]


def test_a_second_creation_is_refused_and_changes_nothing(storage, incarnation):
    first = schedule()
    assert storage.change_schedule(incarnation, "daily", None, first)

    assert not storage.change_schedule(incarnation, "daily", None, schedule(cron="* * * * *"))

    assert list(storage.read_schedules(incarnation)) == [first]


def test_a_change_needs_the_op_that_was_seen(storage, incarnation):
    first = schedule()
    second = replace(first, op=new_token(), target=new_pipe_id())
    storage.change_schedule(incarnation, "daily", None, first)

    assert storage.change_schedule(incarnation, "daily", first, second)
    assert not storage.change_schedule(incarnation, "daily", first, replace(first, op=new_token()))
    assert not storage.change_schedule(incarnation, "daily", first, None)

    assert list(storage.read_schedules(incarnation)) == [second]


def test_what_was_deleted_is_neither_changed_nor_in_the_way(storage, incarnation):
    first, again = schedule(), schedule(cron="* * * * *")
    storage.change_schedule(incarnation, "daily", None, first)

    assert storage.change_schedule(incarnation, "daily", first, None)
    assert list(storage.read_schedules(incarnation)) == []
    assert not storage.change_schedule(incarnation, "daily", first, replace(first, op=new_token()))
    assert not storage.change_schedule(incarnation, "daily", first, None)
    assert not storage.change_schedule(incarnation, "daily", None, None)

    assert storage.change_schedule(incarnation, "daily", None, again)
    assert list(storage.read_schedules(incarnation)) == [again]


def test_of_two_who_change_what_they_saw_one_does(storage, incarnation):
    first = schedule()
    storage.change_schedule(incarnation, "daily", None, first)
    others = [replace(first, op=new_token(), target=new_pipe_id()) for _ in range(4)]

    applied, unknown = race(lambda mine: storage.change_schedule(incarnation, "daily", first, mine), others)

    (left,) = storage.read_schedules(incarnation, "daily")
    check_one_winner(applied, unknown, left, first)


def test_a_deletion_of_all_leaves_those_of_other_queues_and_lets_nothing_come_back(
    storage, queue, incarnation
):
    other = record(f"{queue}-other")
    storage.change_queue(None, other)
    kept = schedule()
    storage.change_schedule(incarnation, "daily", None, schedule())
    storage.change_schedule(other.incarnation, "daily", None, kept)
    deleted = replace(next(iter(storage.read_queues(queue))), state=QueueState.DELETED, op=new_token())
    storage.change_queue(next(iter(storage.read_queues(queue))), deleted)

    storage.delete_schedules(incarnation)
    storage.delete_schedules(incarnation)
    storage.change_schedule(incarnation, "late", None, schedule("late"))

    assert list(storage.read_schedules(incarnation)) == []
    assert list(storage.read_schedules(other.incarnation)) == [kept]
