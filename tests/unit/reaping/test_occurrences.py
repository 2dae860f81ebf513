"""What becomes of the occurrences of a schedule, whoever dies while they are pushed."""

import logging
import math
from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of
from support.interrupted import Interrupted, Killed, die, lose, refuse

from cassq.bulk.occurrences import Occurrences
from cassq.bulk.schedules import Schedules
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import OutcomeUnknownError, ScheduleNotFoundError
from cassq.limits import NO_LIMIT
from cassq.model.ids import new_token
from cassq.model.message import to_datetime
from cassq.model.queue_record import QueueRecord
from cassq.model.recurrence import to_ms
from cassq.model.schedule import SOON, SOON_S
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_due, uses_priority, uses_schedules
from cassq.pipes.batch_reader import read_all
from cassq.reaping.duty import PASS_MAX_S
from cassq.reaping.keeper import LOOK_AFTER_S, STAGED_S, Keeper
from cassq.reaping.reap_report import ReapReport
from cassq.storage.sqlite.storage import SqliteStorage

EACH_MINUTE = "* * * * *"
EACH_SECOND = "* * * * * *"


class Scene:
    """One queue with schedules, and keepers."""

    def __init__(self):
        self.clock = HandClock()
        self.rows = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.storage = Interrupted(self.rows)
        assert self.rows.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        self.context = context_of(
            self.storage, QueueSettings(), self.clock, coordinator=LocalCoordinator(None, self.clock)
        )
        self.schedules = Schedules(self.context, lambda: None)
        self.keeper = self.make_keeper()

    def make_keeper(self):
        return Keeper(self.context, f"keeper {new_token()}")

    @property
    def now_ms(self):
        return self.rows.list_pipes("q").now_ms

    @property
    def now(self):
        return to_datetime(self.now_ms)

    def keep(self, keeper=None):
        report = ReapReport()
        (keeper or self.keeper).run_once(report)
        return report

    def pass_by(self, seconds):
        self.clock.seconds += seconds

    def until_due(self, name="s"):
        """Let time pass until the next occurrence is near."""
        self.pass_by(max(0.0, (self.schedules.get(name).next_due - self.now).total_seconds() - SOON_S / 2))

    def listed(self, shelf=Shelf.DUE):
        return self.rows.list_pipes("q", shelf=shelf).entries

    @property
    def dues(self):
        """When what poppers see is due."""
        pipes = [entry.pipe for entry in self.listed()]
        return [due for pipe in pipes for batch in read_all(self.rows, pipe, NO_LIMIT) for due in batch.dues]

    @property
    def record(self):
        (found,) = self.rows.read_schedules(self.context.record.incarnation, "s")
        return found


@pytest.fixture
def scene():
    return Scene()


def test_what_is_due_soon_is_listed_with_its_due_time_and_all_that_the_schedule_says(scene):
    told = scene.schedules.set(
        "s", EACH_MINUTE, b"body", {"a": "b"}, ttl=timedelta(seconds=30), priority=3, type="mail"
    )
    scene.until_due()

    assert scene.keep().recurred == 1
    assert scene.keep().recurred == 0

    (entry,) = scene.listed()
    assert (entry.priority, entry.type, entry.due_class) == (3, "mail", SOON)
    (batch,) = read_all(scene.rows, entry.pipe, NO_LIMIT)
    assert (batch.bodies, batch.headers) == ((b"body",), ({"a": "b"},))
    assert batch.dues == (to_ms(told.next_due),)
    assert batch.ttl_ms >= 30_000
    assert scene.rows.load_pipe(entry.pipe).head.last == 1
    assert scene.record.target is None
    assert scene.schedules.get("s").next_due == told.next_due + timedelta(minutes=1)
    assert not scene.listed(Shelf.SORTED)


def test_what_is_not_due_soon_is_left_alone(scene):
    scene.schedules.set("s", "0 0 1 1 *", b"body")

    assert scene.keep().recurred == 0
    assert not scene.listed()


def test_each_occurrence_is_pushed_once_however_many_keep(scene):
    scene.schedules.set("s", EACH_SECOND, b"body")
    keepers = [scene.make_keeper() for _ in range(3)]
    for _ in range(20):
        for keeper in keepers:
            scene.keep(keeper)
        scene.pass_by(1.3)

    assert len(scene.dues) == len(set(scene.dues))
    assert sorted(scene.dues) == list(range(min(scene.dues), max(scene.dues) + 1, 1000))


def test_the_queues_record_says_what_its_messages_have_before_there_is_a_schedule(scene):
    scene.storage.before["change_schedule"] = die
    with pytest.raises(Killed):
        scene.schedules.set("s", EACH_MINUTE, b"body", priority=1)

    settings = next(iter(scene.rows.read_queues("q"))).settings
    assert [uses(settings) for uses in (uses_due, uses_priority, uses_schedules)] == [True] * 3


def test_setting_the_same_again_changes_nothing(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    scene.keep()
    before = scene.record

    assert scene.schedules.set("s", EACH_MINUTE, b"body") == before.schedule

    assert scene.record == before


def test_another_body_takes_its_turn_where_the_one_before_was(scene):
    scene.schedules.set("s", EACH_MINUTE, b"old")
    scene.until_due()
    scene.keep()

    changed = scene.schedules.set("s", EACH_MINUTE, b"new")
    scene.until_due()
    scene.keep()

    assert changed.next_due == to_datetime(scene.dues[1])
    assert len(set(scene.dues)) == len(scene.dues) == 2


def test_another_time_counts_from_now_on(scene):
    scene.schedules.set("s", "0 0 1 1 *", b"body")

    changed = scene.schedules.set("s", EACH_SECOND, b"body")

    assert scene.now < changed.next_due <= scene.now + timedelta(seconds=1)


@pytest.mark.parametrize(
    "step", ["create_pipe", "append", "transact", "change_schedule", "publish_pipes"], ids=str
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_between_two_steps_is_followed_by_another(scene, step, when):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    getattr(scene.storage, when)[step] = die
    with pytest.raises(Killed):
        scene.keep()
    scene.pass_by(SOON_S / 3)

    scene.keep(scene.make_keeper())

    assert len(scene.dues) == 1
    assert scene.record.target is None
    assert scene.schedules.get("s").missed == 0


@pytest.mark.parametrize("step", ["create_pipe", "append", "transact", "change_schedule", "publish_pipes"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_of_unknown_outcome_loses_nothing_and_doubles_nothing(scene, step, when):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    getattr(scene.storage, when)[step] = lose

    assert len(scene.keep().failed) == 1
    scene.keep()

    assert len(scene.dues) == 1


def test_who_decides_on_what_it_read_before_another_did_pushes_nothing(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    slow, quick = Occurrences(scene.context, "slow"), Occurrences(scene.context, "quick")
    seen = slow.find("s")
    assert len(quick._push(seen, scene.now_ms).dues_ms) == 1

    assert slow._push(seen, scene.now_ms) is None

    assert len(scene.dues) == 1
    assert not scene.listed(Shelf.SORTED)


def test_what_is_staged_and_never_decided_is_deleted_behind_the_fence(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    occurrences = Occurrences(scene.context, "frozen")
    seen = occurrences.find("s")
    staged = occurrences._stage(seen.schedule, (scene.now_ms + 5000,), scene.now_ms)
    scene.pass_by(STAGED_S + LOOK_AFTER_S)

    scene.keep()
    report = scene.keep()

    assert not scene.listed(Shelf.SORTED)
    assert scene.rows.load_pipe(staged) is None
    assert not report.failed
    late = replace(seen, op=new_token(), target=staged)
    assert not scene.rows.change_schedule(scene.context.record.incarnation, "s", seen, late)


def test_what_is_staged_and_never_decided_is_found_by_who_was_suspended_for_hours(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.keep()
    staged = Occurrences(scene.context, "killed")._stage(
        scene.record.schedule, (scene.now_ms + 5000,), scene.now_ms
    )
    scene.pass_by(3 * 3600)
    scene.storage.before["delete_pipe"] = refuse

    assert scene.keep().failed
    scene.pass_by(LOOK_AFTER_S)
    scene.keep()

    assert scene.rows.load_pipe(staged) is None
    assert not scene.listed(Shelf.SORTED)


def test_what_a_record_names_is_listed_however_late(scene):
    scene.schedules.set("s", "0 0 * * *", b"body")
    scene.until_due()
    scene.storage.before["publish_pipes"] = die
    with pytest.raises(Killed):
        scene.keep()
    publications = next(iter(scene.rows.read_queues("q"))).publications
    scene.pass_by(STAGED_S + LOOK_AFTER_S)

    scene.keep(scene.make_keeper())

    assert len(scene.dues) == 1
    assert next(iter(scene.rows.read_queues("q"))).publications == publications + 1


def test_a_staged_entry_that_comes_back_takes_nothing_along(scene):
    scene.schedules.set("s", "0 0 * * *", b"body")
    scene.until_due()
    scene.keep()
    (entry,) = scene.listed()
    with scene.rows._file.writing() as db:
        db.execute(
            "INSERT INTO pipes SELECT queue, -2, pipe, pusher, priority, lane, created_at_ms, type,"
            " due_class, moved_from, slot FROM pipes WHERE shard = 1"
        )
    scene.pass_by(STAGED_S + LOOK_AFTER_S)

    scene.keep()

    assert scene.listed()
    assert not scene.listed(Shelf.SORTED)
    assert scene.rows.load_pipe(entry.pipe)


def test_what_is_decided_is_listed_before_its_schedule_is_deleted(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.until_due()
    scene.storage.before["publish_pipes"] = die
    with pytest.raises(Killed):
        scene.keep()

    scene.schedules.delete("s")

    assert len(scene.dues) == 1
    assert list(scene.schedules) == []
    scene.pass_by(3600)
    assert scene.keep().recurred == 0


def test_a_schedule_that_is_not_there_is_told_with_those_that_are(scene):
    scene.schedules.set("other", EACH_MINUTE, b"body")
    for call in (scene.schedules.get, scene.schedules.delete):
        with pytest.raises(ScheduleNotFoundError, match="has no schedule 's'; it has: other"):
            call("s")


def test_what_nobody_pushed_in_time_is_counted_and_told(scene, caplog):
    first = scene.schedules.set("s", "0 * * * *", b"body")
    scene.until_due()
    scene.pass_by(5 * 3600)

    with caplog.at_level(logging.WARNING, "cassq.reaper"):
        report = scene.keep()

    assert report.missed == scene.schedules.get("s").missed
    assert scene.schedules.get("s").missed == 5 - (len(scene.dues) - 1)
    assert str(first.next_due.isoformat()) in caplog.text
    assert max(scene.dues) <= scene.now_ms + 1000 * SOON_S


def test_a_set_of_unknown_outcome_is_settled(scene):
    for when in (scene.storage.before, scene.storage.after):
        when["change_schedule"] = lose
        told = scene.schedules.set("s", EACH_MINUTE, b"%d" % id(when))
        assert scene.record.schedule == told


def test_a_set_that_may_have_happened_is_not_told_as_refused(scene):
    def lose_and_go(*_):
        scene.storage.before["read_schedules"] = refuse
        lose()

    scene.storage.after["change_schedule"] = lose_and_go
    with pytest.raises(OutcomeUnknownError, match="may be set"):
        scene.schedules.set("s", EACH_MINUTE, b"body")


def test_a_deletion_of_unknown_outcome_is_settled(scene):
    for when in (scene.storage.before, scene.storage.after):
        scene.schedules.set("s", EACH_MINUTE, b"body")
        when["change_schedule"] = lose
        scene.schedules.delete("s")
        assert list(scene.schedules) == []


def test_what_other_times_drop_is_missed_and_what_was_pushed_comes_no_more(scene):
    scene.schedules.set("s", "0 * * * *", b"body")
    scene.until_due()
    scene.keep()
    pushed = scene.dues[0]
    assert to_ms(scene.schedules.set("s", EACH_MINUTE, b"body").next_due) == pushed + 60_000

    scene.pass_by(600)
    changed = scene.schedules.set("s", "0  *  * * *", b"body")

    assert changed.cron == "0 * * * *"
    assert 9 <= changed.missed <= 11
    assert changed.next_due > scene.now


def test_what_would_have_expired_is_missed(scene):
    scene.schedules.set("s", "0 * * * *", b"body", ttl=timedelta(minutes=5))
    scene.until_due()
    due = scene.schedules.get("s").next_due
    scene.pass_by((due - scene.now).total_seconds() + 1800)

    assert scene.keep().recurred == 0

    assert scene.schedules.get("s").missed == 1
    assert not scene.listed()
    assert not scene.listed(Shelf.SORTED)


def test_a_keeper_tells_when_a_schedule_needs_it_next(scene):
    assert scene.keeper.next_at == math.inf
    scene.schedules.set("s", "0 * * * *", b"body")
    scene.schedules.set("later", "0 0 1 1 *", b"body")
    scene.keep()
    left_s = (scene.schedules.get("s").next_due - scene.now).total_seconds()

    assert 0 < scene.keeper.next_at - scene.clock.seconds < left_s

    scene.clock.seconds = scene.keeper.next_at
    assert scene.keep().recurred == 1


def test_a_pipe_that_was_listed_late_is_told_by_whoever_finishes(scene):
    scene.schedules.set("s", "0 0 * * *", b"body")
    scene.until_due()
    scene.storage.after["publish_pipes"] = die
    with pytest.raises(Killed):
        scene.keep()
    publications = next(iter(scene.rows.read_queues("q"))).publications
    scene.pass_by(300)

    scene.keep(scene.make_keeper())

    assert next(iter(scene.rows.read_queues("q"))).publications == publications + 1


def test_a_pass_ends_in_time_and_the_next_goes_on_with_the_others(scene):
    for number in range(4):
        scene.schedules.set(f"s{number}", EACH_MINUTE, b"body")
    scene.until_due("s0")
    publish = scene.rows.publish_pipes

    def slowly(*values, **named):
        scene.pass_by(PASS_MAX_S / 1.5)
        publish(*values, **named)

    scene.rows.publish_pipes = slowly

    assert scene.keep().recurred == 2
    assert scene.keep().recurred == 2
    assert len(scene.dues) == 4


def test_a_deletion_beside_a_change_goes_on(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.storage.before["change_schedule"] = lambda *_: scene.schedules.set("s", EACH_SECOND, b"other")

    scene.schedules.delete("s")

    assert list(scene.schedules) == []


def test_one_schedule_that_cannot_be_pushed_keeps_no_other_one_waiting(scene):
    scene.schedules.set("s", EACH_MINUTE, b"body")
    scene.schedules.set("r", EACH_MINUTE, b"body")
    with scene.rows._file.writing() as db:
        db.execute("UPDATE schedules SET timezone = 'Moon/Sea' WHERE name = 'r'")
    scene.until_due()

    report = scene.keep()

    assert report.recurred == 1
    assert "schedule r: timezone='Moon/Sea'" in report.failed[0]


def test_a_queue_without_schedules_is_asked_for_none(scene):
    scene.storage.before["read_schedules"] = die

    scene.keep()

    assert "read_schedules" in scene.storage.before
