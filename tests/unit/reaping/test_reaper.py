"""What one pass of a reaper does, what it leaves to others, and which pipes it looks at."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import AccessDeniedError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.retrying import EXPIRED
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.reaper import EXAMINE_S, Reaper
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))
GONE_AFTER_S = (SETTINGS.push_age_max + SETTINGS.push_grace).total_seconds()


class Scene:
    """Pipes of one queue, and its reaper."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
        self.gone = []
        self.context = context_of(self.storage, SETTINGS, self.clock, coordinator=self.coordinator)
        self.reaper = Reaper(self.context, "a reaper", self.gone.append)

    def open(self, count=0):
        entry = PipeEntry(new_pipe_id(), "a pusher")
        self.storage.create_pipe("q", entry, Head(new_token()))
        if count:
            self.storage.append(entry.pipe, Batch(1, (b"body",) * count, None, count))
        return entry

    def own(self, entry):
        state = self.storage.load_pipe(entry.pipe)
        return OwnedPipe(self.context, entry, state, Taker("p"))

    def alter(self, **options):
        self.context.record.change(lambda seen: replace(seen, settings=seen.settings.altered("q", options)))

    def finish(self, count=1):
        """Make a pipe that is over."""
        entry = self.open(count)
        assert self.storage.transact(entry.pipe, Transaction(Seal(count, is_free=True))).is_applied
        assert self.own(entry).take(count).runs
        self.storage.mark(entry.pipe, [Mark(1, count, End.COMMITTED)])
        return entry

    @property
    def listed(self):
        return [entry.pipe for entry in self.storage.list_pipes("q").entries]

    @property
    def totals(self):
        (record,) = self.storage.read_queues("q")
        return record.totals


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.coordinator.close()
    made.storage.close()


def test_what_is_over_is_counted_once_and_goes(scene):
    over, open_ = [scene.finish(2), scene.finish(3)], scene.open(1)
    report = scene.reaper.run_once()
    assert (report.examined, report.retired, report.failed) == (3, 2, [])
    assert scene.listed == [open_.pipe]
    assert sorted(scene.gone) == sorted(entry.pipe for entry in over)
    assert (scene.totals.pushed, scene.totals.committed) == (5, 5)
    scene.reaper.run_once()
    assert scene.totals.pushed == 5
    assert not scene.coordinator.holders("q")


def test_what_is_in_a_poppers_hands_is_left_to_it(scene):
    entry = scene.finish()
    assert scene.coordinator.claim("q", entry.pipe, "a popper")
    report = scene.reaper.run_once()
    assert (report.busy, report.retired) == (1, 0)
    assert scene.coordinator.holders("q") == {entry.pipe: "a popper"}
    scene.coordinator.release("q", entry.pipe, "a popper")
    assert scene.reaper.run_once().retired == 1


def test_what_was_sealed_by_force_is_looked_at_again_at_the_next_pass(scene):
    entry = scene.open(1)
    scene.reaper.run_once(32)
    scene.clock.seconds += GONE_AFTER_S + EXAMINE_S + 1.0
    assert scene.reaper.run_once(32).sealed == 1
    assert scene.own(entry).take(1).runs
    scene.storage.mark(entry.pipe, [Mark(1, 1, End.COMMITTED)])

    scene.clock.seconds += 2.0

    assert scene.reaper.run_once(32).retired == 1


def test_a_young_pipe_is_left_to_its_pusher_and_an_old_one_is_sealed_and_emptied(scene):
    entry = scene.open(1)
    assert scene.reaper.run_once().sealed == 0
    scene.clock.seconds += GONE_AFTER_S + 1.0
    assert scene.reaper.run_once().sealed == 1
    # What waits is not cut off
    head = scene.storage.load_pipe(entry.pipe).head
    assert (head.phase, head.is_decided) == (Phase.SEALED, False)
    owned = scene.own(entry)
    assert owned.take(9).runs
    scene.storage.mark(entry.pipe, [Mark(1, 1, End.COMMITTED)])
    report = scene.reaper.run_once()
    assert (report.sealed, report.retired) == (0, 1)
    assert not scene.coordinator.holders("q")


def test_what_a_dead_popper_had_comes_back_and_is_counted(scene):
    entry = scene.open(3)
    assert scene.own(entry).take(9).runs
    scene.storage.mark(entry.pipe, [Mark(2, 2, End.COMMITTED)])
    assert scene.reaper.run_once().returned == 0
    scene.clock.seconds += 9.0
    assert scene.reaper.run_once().returned == 2
    assert scene.reaper.run_once().returned == 0
    assert not scene.coordinator.holders("q")


def come_back(scene, entry, attempts):
    for _ in range(attempts):
        scene.clock.seconds += LEASE_OVER_S
        owned = scene.own(entry)
        result = owned.take(9)
        assert len(result.runs) == 1
        (run,) = result.runs
    scene.clock.seconds += LEASE_OVER_S
    return run.run


LEASE_OVER_S = (SETTINGS.lease + SETTINGS.clock_skew_max).total_seconds() + 1.0


def test_what_came_back_from_its_last_attempt_is_buried_though_nobody_pops(scene):
    # Given a message that an older cassq rolled back after its last attempt
    entry = scene.open(1)
    come_back(scene, entry, SETTINGS.max_attempts - 1)
    owned = scene.own(entry)
    (taken,) = owned.take(1).runs
    ends_at = scene.clock.latest() + SETTINGS.lease.total_seconds()
    held = HeldRun(scene.context, entry, taken, ends_at, on_row_changed=owned.note)
    assert held.give_back(Ranges(((1, 1),)), Return(delay_ms=60_000, reason="no route"))
    # Then a reaper buries it
    report = scene.reaper.run_once()
    assert (report.returned, report.buried) == (0, 1)
    (letter,) = scene.storage.read_dead("q", None, 10)
    assert (letter.attempts, letter.reason) == (SETTINGS.max_attempts, "no route")


def test_what_expired_in_its_last_attempt_is_buried_though_nobody_pops(scene):
    entry = scene.open(2)
    come_back(scene, entry, SETTINGS.max_attempts)
    report = scene.reaper.run_once()
    assert (report.returned, report.buried) == (2, 2)
    letters = scene.storage.read_dead("q", None, 10)
    assert [letter.message_id.seq for letter in letters] == [1, 2]
    assert {letter.attempts for letter in letters} == {SETTINGS.max_attempts}
    assert {letter.reason for letter in letters} == {"lease ended while p had it"}
    assert not scene.coordinator.holders("q")
    again = scene.reaper.run_once()
    assert (again.returned, again.buried) == (0, 0)


def test_what_has_expired_is_ended_though_nobody_pops(scene):
    scene.alter(ttl=timedelta(seconds=5))
    entry, young = scene.open(3), scene.open(1)
    assert scene.storage.transact(entry.pipe, Transaction(Seal(3, is_free=True))).is_applied
    scene.clock.seconds += 5 + SETTINGS.clock_skew_max.total_seconds() + 0.1
    scene.storage.append(young.pipe, Batch(2, (b"body",), None, 1))
    report = scene.reaper.run_once()
    assert (report.expired, report.buried, report.retired, report.failed) == (4, 0, 1, [])
    assert scene.listed == [young.pipe]
    assert scene.totals.expired == 3
    assert scene.reaper.run_once().expired == 0
    assert [part.first for taken in scene.own(young).take(9).runs for part in taken.parts] == [2]
    assert not scene.coordinator.holders("q")


def test_what_has_expired_becomes_a_dead_letter_where_the_queue_says_so(scene):
    scene.alter(ttl=timedelta(seconds=5), on_expired="dead")
    scene.open(3)
    scene.clock.seconds += 5 + SETTINGS.clock_skew_max.total_seconds() + 0.1
    report = scene.reaper.run_once()
    assert (report.expired, report.buried) == (0, 3)
    assert [letter.reason for letter in scene.storage.read_dead("q", None, 10)] == [EXPIRED] * 3


def test_what_a_lease_gave_up_comes_back_at_once(scene):
    entry = scene.open(2)
    before = come_back(scene, entry, 1)
    assert scene.reaper.run_once().returned == 2
    (again,) = scene.own(entry).take(9).runs
    assert (again.run.attempt, again.run.reason) == (2, "lease ended while p had it")
    assert before.reason == ""


def test_who_was_burying_and_died_is_followed_by_the_reaper(scene, monkeypatch):
    # Given a message that was given up, and whose letter was not written
    entry = scene.open(1)
    owned = scene.own(entry)
    (taken,) = owned.take(1).runs
    ends_at = scene.clock.latest() + SETTINGS.lease.total_seconds()
    held = HeldRun(scene.context, entry, taken, ends_at, on_row_changed=owned.note)
    with monkeypatch.context() as patch:
        patch.setattr(scene.storage, "change_dead", refuse)
        assert held.give_back(Ranges(((1, 1),)), Return(is_last=True, reason="no route"), taken.messages)
    assert not scene.storage.read_dead("q", None, 10)
    # Then nobody is handed it, and the reaper buries it once the lease of that has ended
    assert scene.own(entry).take(9).runs == []
    assert scene.reaper.run_once().buried == 0
    scene.clock.seconds += LEASE_OVER_S
    assert scene.reaper.run_once().buried == 1
    (letter,) = scene.storage.read_dead("q", None, 10)
    assert (letter.attempts, letter.reason, letter.body) == (1, "no route", b"body")
    (run,) = scene.storage.load_pipe(entry.pipe).runs or (None,)
    assert run is None or run.rolled_back == 1


def refuse(*_, **__):
    raise StorageUnavailableError("planted")


def test_one_pipe_that_fails_holds_up_none_of_the_others(scene, monkeypatch):
    bad, good = scene.finish(), scene.finish()
    load = scene.storage.load_pipe

    def load_pipe(pipe, **how):
        if pipe == bad.pipe:
            raise StorageUnavailableError("planted")
        return load(pipe, **how)

    monkeypatch.setattr(scene.storage, "load_pipe", load_pipe)
    report = scene.reaper.run_once()
    assert report.retired == 1
    (words,) = report.failed
    assert str(bad.pipe) in words
    assert scene.listed == [bad.pipe]
    assert good.pipe in scene.gone
    assert not scene.coordinator.holders("q")


@pytest.mark.parametrize("fails", ["change_queue", "delete_pipe"])
def test_a_pass_that_fails_on_the_way_is_finished_by_the_next_one(scene, monkeypatch, fails):
    scene.finish(2)

    def fail(*_, **__):
        raise StorageUnavailableError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(scene.storage, fails, fail)
        report = scene.reaper.run_once()
    assert (report.retired, len(report.failed)) == (0, 1)
    assert not scene.coordinator.holders("q")
    assert scene.reaper.run_once().retired == 1
    assert scene.totals.pushed == 2
    assert scene.listed == []


@pytest.mark.parametrize("denied", ["load_pipe", "transact", "change_queue", "delete_pipe"])
def test_a_pass_of_a_user_who_may_not_do_it_tells_so(scene, monkeypatch, denied):
    scene.finish(2)

    def refuse(*_, **__):
        raise AccessDeniedError("planted")

    monkeypatch.setattr(scene.storage, denied, refuse)
    report = scene.reaper.run_once()

    assert report.refused == len(report.failed) == 1
    assert not scene.coordinator.holders("q")


class TestAShortPass:
    """Of a process that pops, and looks at few pipes at a time."""

    def test_looks_at_the_oldest_first_and_at_each_of_them_in_turn(self, scene, monkeypatch):
        entries = [scene.open(1) for _ in range(5)]
        seen = self.watch(scene, monkeypatch)
        assert [scene.reaper.run_once(2).examined for _ in range(4)] == [2, 2, 1, 0]
        assert seen == [entry.pipe for entry in entries]
        scene.clock.seconds += EXAMINE_S
        scene.reaper.run_once(2)
        assert seen[5:] == [entry.pipe for entry in entries[:2]]

    def test_looks_first_at_what_somebody_pointed_at_though_it_was_seen_a_moment_ago(
        self, scene, monkeypatch
    ):
        entries = [scene.open(1) for _ in range(3)]
        scene.reaper.run_once()
        seen = self.watch(scene, monkeypatch)
        scene.reaper.hint(entries[2].pipe)
        assert scene.reaper.has_hints
        scene.reaper.run_once(1)
        assert seen == [entries[2].pipe]
        assert not scene.reaper.has_hints
        assert scene.reaper.run_once(1).examined == 0

    def test_forgets_no_hint_where_the_list_cannot_be_read(self, scene, monkeypatch):
        entry = scene.open(1)
        scene.reaper.hint(entry.pipe)

        def fail(*_, **__):
            raise StorageUnavailableError("planted")

        monkeypatch.setattr(scene.storage, "list_pipes", fail)
        with pytest.raises(StorageUnavailableError):
            scene.reaper.run_once(1)
        assert scene.reaper.has_hints

    def watch(self, scene, monkeypatch):
        seen, load = [], scene.storage.load_pipe

        def load_pipe(pipe, **how):
            seen.append(pipe)
            return load(pipe, **how)

        monkeypatch.setattr(scene.storage, "load_pipe", load_pipe)
        return seen


def test_the_reports_of_several_passes_add_up():
    first = ReapReport(1, 2, 3, 4, 5, 6, 7, ["one"])
    first.add(ReapReport(10, 20, 30, 40, 50, 60, 70, ["two"]))
    assert first == ReapReport(11, 22, 33, 44, 55, 66, 77, ["one", "two"])


def test_nothing_is_remembered_of_pipes_that_the_totals_have_forgotten(scene):
    for _ in range(9):
        scene.finish()
        assert scene.reaper.run_once().retired == 1
    assert scene.totals.pushed == 9
    assert len(scene.reaper._totals._retired) <= 2
