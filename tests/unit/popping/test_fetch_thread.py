"""What the thread that fills a buffer does with wake-ups, leases and errors, one step at a time."""

import contextlib
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import AccessDeniedError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.uses import with_uses
from cassq.popping.alarm import Heard
from cassq.popping.commits import DirectCommitter
from cassq.popping.consumer_line import Consumer
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetch_thread import FetchThread
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.popping.timing import IDLE_S
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=8))
NAME = "a popper"


class Clock(HandClock):
    """Whoever waits has waited; then something may happen, without the lock."""

    def __init__(self):
        super().__init__()
        self.waits = []
        self.then = []

    def wait(self, condition, seconds):
        self.waits.append(seconds)
        self.seconds += seconds
        if self.then:
            condition.release()
            try:
                self.then.pop(0)()
            finally:
                condition.acquire()


class Scene:
    """A queue with one pipe, and a fetch thread that takes its steps when it is told to."""

    def __init__(self, **options):
        settings = replace(SETTINGS, **options)
        self.clock = Clock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), settings, new_token()))
        context = context_of(self.storage, settings, self.clock, coordinator=self.coordinator)
        self.record = context.record
        self.polls = context.polls
        self.buffer = DeliveryBuffer(self.clock)
        self.fetcher = Fetcher(context, NAME, on_pipe_over=lambda _: None)
        self.is_active = True
        self.thread = FetchThread(
            *(context, self.fetcher, self.buffer, DirectCommitter(commit_soon=None), lambda: self.is_active)
        )
        self.entry = PipeEntry(new_pipe_id(), "a pusher")
        self.storage.create_pipe("q", self.entry, Head(new_token()))
        self._pushed = 0

    def push(self, count=1):
        self.storage.append(self.entry.pipe, Batch(self._pushed + 1, (b"body",) * count, None, count))
        self._pushed += count

    def stand_in_line(self, count=1):
        """Be a consumer that waits; return it."""
        now = self.clock.now()
        consumer = Consumer(
            *(threading.Condition(self.buffer._lock), None, count),
            asked_at=now,
            deadline=now + 1000.0,
            look=0,
        )
        self.buffer._line.join(consumer)
        return consumer

    def leave(self, consumer):
        self.buffer._line.leave(consumer)

    def other(self):
        """Have another popper be hungry; return what it hears."""
        woken = []
        self.coordinator.announce_hunger("q", "another", lambda: woken.append(True))
        return woken

    @property
    def hungry(self):
        return self.coordinator.hungry("q", besides="another")

    @property
    def rows(self):
        return [(run.first, run.last, run.state, run.attempt) for run in self.state.runs]

    @property
    def state(self):
        return self.storage.load_pipe(self.entry.pipe)


def made(**options):
    scene = Scene(**options)
    yield scene
    scene.fetcher.close()
    scene.coordinator.close()
    scene.storage.close()


@pytest.fixture
def scene():
    yield from made()


@pytest.fixture
def limited():
    """A queue with a time-to-live."""
    yield from made(ttl=timedelta(seconds=60))


class TestHunger:
    def test_a_wake_up_for_consumers_that_have_left_goes_to_another_popper(self, scene):
        # Given two hungry poppers, of which this one is woken when its only consumer has left
        woken = scene.other()
        consumer = scene.stand_in_line()

        def leave_and_wake():
            scene.leave(consumer)
            scene.buffer.alarm.wake()

        scene.clock.then = [leave_and_wake]
        scene.thread.run_once()
        # Then the other one is woken in its place
        assert woken == [True]

    def test_a_wake_up_that_is_for_this_popper_is_not_passed_on(self, scene):
        woken = scene.other()
        scene.stand_in_line()
        scene.clock.then = [scene.buffer.alarm.wake]
        scene.thread.run_once()
        assert woken == []
        # It leads to a look, also at what another one held a moment ago
        scene.push()
        scene.thread.run_once()
        assert not scene.buffer._line

    def test_a_look_of_its_own_comes_however_often_others_come_meanwhile(self, scene, monkeypatch):
        # Given one who is told ten times a second that others wait, too
        told = []

        def listen(seconds):
            told.append(seconds)
            scene.clock.seconds += min(seconds, 0.1)
            return Heard.CROWDED if seconds and len(told) < 100 else Heard.NOTHING

        monkeypatch.setattr(scene.buffer.alarm, "listen", listen)
        # Then it waits for no longer than it was to
        assert scene.thread._listen(1.0) is Heard.NOTHING
        assert sum(min(seconds, 0.1) for seconds in told) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("reach", "expected"), [(Reach.DRAINED, [{""}]), (Reach.BUSY, []), (Reach.LISTED, [])]
    )
    def test_who_was_woken_wakes_others_for_what_else_that_may_have_been_for(
        self, scene, monkeypatch, reach, expected
    ):
        told = []
        monkeypatch.setattr(scene.thread._rivals, "pass_on", told.append)
        scene.stand_in_line()
        scene.push()
        assert scene.thread._feed(1, reach)
        assert told == expected

    def test_ends_with_the_wait_for_it(self, scene):
        scene.stand_in_line()
        noted = []
        scene.clock.then = [lambda: noted.append(scene.hungry), scene.buffer.alarm.wake]
        scene.thread.run_once()
        assert noted == [1]
        assert scene.hungry == 0

    def test_ends_though_a_look_fails(self, scene, monkeypatch):
        scene.stand_in_line()

        def fail(*_, **__):
            monkeypatch.undo()
            raise StorageUnavailableError("planted")

        scene.clock.then = [lambda: monkeypatch.setattr(scene.storage, "list_pipes", fail)]
        with pytest.raises(StorageUnavailableError):
            scene.thread.run_once()
        assert scene.hungry == 0

    def test_leaves_no_claim_to_wait_for_while_others_are_hungry(self, scene):
        scene.push()
        scene.stand_in_line()
        scene.thread.run_once()
        assert scene.coordinator.holders("q")
        scene.other()
        scene.stand_in_line()
        scene.clock.then = [scene.buffer.alarm.wake]
        scene.thread._has_found = False
        scene.thread.run_once()
        assert not scene.coordinator.holders("q")


class TestWhatIsInTheBuffer:
    def fill(self, scene, count=5):
        scene.push(count)
        scene.thread._feed(count, Reach.LISTED)
        assert scene.buffer._hand.count == count

    def test_keeps_its_lease_while_somebody_pops(self, scene):
        self.fill(scene)
        for _ in range(9):
            scene.clock.seconds += 3.0
            scene.buffer._appetite.popped_at = scene.clock.now()
            scene.thread._leases.keep_up()
        (run,) = scene.buffer.runs()
        assert run.is_live
        assert run.left_s >= 3.0

    @pytest.mark.parametrize("is_own", [False, True])
    def test_goes_back_to_be_looked_at_anew_where_it_may_expire(self, scene, limited, is_own):
        if is_own:
            scene.record.change(lambda record: with_uses(record, Label(ttl_ms=1)))
        else:
            scene = limited
        self.fill(scene)
        for _ in range(2):
            scene.clock.seconds += 2.5
            scene.buffer._appetite.popped_at = scene.clock.now()
            scene.thread._leases.keep_up()
        assert scene.buffer.runs() == []
        assert [row[2:] for row in scene.rows] == [(RunState.RETURNED, 0)]

    def test_goes_back_uncounted_when_nobody_pops_any_more(self, scene):
        self.fill(scene)
        scene.clock.seconds += IDLE_S + 0.1
        scene.thread._leases.keep_up()
        assert scene.buffer.runs() == []
        assert [row[2:] for row in scene.rows] == [(RunState.RETURNED, 0)]
        assert not scene.coordinator.holders("q")

    def test_is_tried_once_more_where_its_lease_could_not_be_extended(self, scene, monkeypatch):
        self.fill(scene)
        scene.clock.seconds += 4.5

        def fail(*_, **__):
            raise StorageUnavailableError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(scene.storage, "transact", fail)
            scene.thread._leases.keep_up()
        (run,) = scene.buffer.runs()
        assert run.left_s < 4.0
        scene.thread._leases.keep_up()
        assert run.left_s == pytest.approx(8.0)

    def test_that_is_more_than_those_who_stay_need_goes_back(self, scene):
        self.fill(scene)
        scene.buffer.leave(object())
        scene.thread._leases.keep_up()
        assert scene.buffer.runs() == []
        assert [row[2:] for row in scene.rows] == [(RunState.RETURNED, 0)]

    def test_goes_back_when_the_buffer_is_closed(self, scene):
        self.fill(scene)
        scene.buffer.close()
        scene.thread._run()
        assert [row[2:] for row in scene.rows] == [(RunState.RETURNED, 0)]

    def test_comes_again_by_itself_where_the_user_may_not_write_any_more(self, scene, monkeypatch):
        self.fill(scene)

        def refuse(*_, **__):
            raise AccessDeniedError("planted")

        monkeypatch.setattr(scene.storage, "transact", refuse)
        scene.buffer.close()
        scene.thread._run()
        assert [row[2] for row in scene.rows] == [RunState.LEASED]
        assert not scene.coordinator.holders("q")

    def test_is_not_all_there_is_for_others_that_are_hungry(self, scene):
        scene.push(9)
        woken = scene.other()
        scene.thread._feed(1, Reach.LISTED)
        assert woken == [True]
        assert not scene.coordinator.holders("q")


class TestWindows:
    """Only this thread ends a window: where it must be ended, nobody else is waited for."""

    @pytest.fixture
    def held(self, scene):
        """A run of two messages in the buffer, of a window that is out."""
        scene.push(2)
        ((held, taken),) = scene.fetcher.feed(2, is_flowing=True)
        scene.buffer.put(BatchSlice(held, part, DirectCommitter(commit_soon=None)) for part in taken.parts)
        assert scene.state.window
        return held

    def test_end_while_the_queue_is_paused(self, scene, held):
        scene.is_active = False
        assert not scene.thread._feed(1, Reach.LISTED)
        assert scene.state.window is None
        assert not held.is_window_out

    def test_end_before_a_lease_is_extended(self, scene, held):
        scene.clock.seconds += 5.5
        scene.buffer._appetite.popped_at = scene.clock.now()
        scene.thread._leases.keep_up()
        assert scene.clock.waits == []
        assert held.left_s >= 8.0

    def test_end_before_what_is_in_the_buffer_goes_back(self, scene, held):
        scene.buffer.close()
        scene.thread._leases.give_back()
        assert scene.clock.waits == []
        assert scene.rows == [(1, 2, RunState.RETURNED, 0)]

    def test_a_thread_is_waited_for_once_it_begins_nothing_more(self, scene, held, monkeypatch):
        scene.push(2)
        came = []

        def join():
            came.extend(scene.fetcher.feed(2, Reach.DRAINED, is_flowing=True))

        monkeypatch.setattr(scene.thread._thread, "join", join)
        scene.thread.join()
        assert came == []


class TestTrouble:
    def run(self, scene, monkeypatch, errors):
        """Run the loop while looks fail; return for how long it rested after each."""
        for _ in range(2000):  # queues of this process: looks that fail are made more and more seldom
            scene.polls.enter()
        scene.stand_in_line()
        left = list(errors)

        def check_takes():
            if not left:
                scene.buffer.close()
            elif isinstance(left[0], Exception):
                raise left.pop(0)
            else:
                left.pop(0)()
            return True

        scene.thread._check_takes = check_takes
        pauses = []
        pause = scene.buffer.alarm.pause
        monkeypatch.setattr(
            scene.buffer.alarm, "pause", lambda seconds: pauses.append(seconds) or pause(seconds)
        )
        scene.thread._run()
        return pauses

    def test_that_lasts_is_looked_at_more_and_more_seldom(self, scene, monkeypatch):
        pauses = self.run(scene, monkeypatch, [StorageUnavailableError("planted")] * 4)
        assert pauses == [0.25, 0.5, 1.0, 2.0]

    def test_that_nobody_expected_lets_the_claims_go_and_is_told(self, scene, monkeypatch, caplog):
        scene.push()
        scene.stand_in_line()
        scene.thread.run_once()
        assert scene.coordinator.holders("q")
        held = []
        pause = scene.buffer.alarm.pause

        def note(seconds):
            held.append(dict(scene.coordinator.holders("q")))
            pause(seconds)

        monkeypatch.setattr(scene.buffer.alarm, "pause", note)
        scene.stand_in_line()
        errors = [RuntimeError("a bug")]

        def check_takes():
            if errors:
                raise errors.pop()
            scene.buffer.close()
            return False

        scene.thread._check_takes = check_takes
        scene.thread._run()
        assert held == [{}]
        assert "that nobody expected" in caplog.text

    def test_that_nobody_expected_twice_does_not_end_the_thread(self, scene, monkeypatch, caplog):
        bugs = [RuntimeError("another bug"), RuntimeError("another bug")]
        let_go = scene.fetcher.let_go

        def fail():
            if bugs:
                raise bugs.pop()
            let_go()

        monkeypatch.setattr(scene.fetcher, "let_go", fail)
        pauses = self.run(scene, monkeypatch, [RuntimeError("a bug"), RuntimeError("a bug")])
        assert len(pauses) == 2
        assert "another bug" in caplog.text

    def test_leaves_nothing_behind_when_the_buffer_is_closed(self, scene):
        scene.push(5)
        scene.stand_in_line()
        scene.thread.run_once()
        scene.coordinator.announce_hunger("q", NAME, lambda: None)
        scene.buffer.close()
        scene.thread._run()
        assert not scene.coordinator.holders("q")
        assert scene.hungry == 0

    def test_that_is_over_makes_no_later_one_last_longer(self, scene, monkeypatch):
        # Given two consumers, and a message for one of them between two outages
        scene.stand_in_line()
        outage = StorageUnavailableError("planted")
        pauses = self.run(scene, monkeypatch, [outage, outage, outage, scene.push, outage])
        assert pauses == [0.25, 0.5, 1.0, 0.25]

    def test_that_nobody_expected_is_told_to_who_waits(self, scene):
        def fail():
            raise RuntimeError("a bug")

        def look():
            with contextlib.suppress(RuntimeError):
                scene.thread._feed(1, Reach.LISTED)

        scene.thread._check_takes = fail
        scene.clock.then = [look]
        with pytest.raises(StorageUnavailableError, match=r"an unexpected error.*a bug"):
            scene.buffer.get(1, scene.clock.now())

    def test_of_a_user_who_may_not_stand_in_line_is_told_to_who_waits(self, scene, monkeypatch):
        def refuse(*_, **__):
            scene.buffer.close()
            raise AccessDeniedError("planted")

        monkeypatch.setattr(scene.coordinator, "announce_hunger", refuse)
        told = []
        end_round = scene.buffer.end_round
        monkeypatch.setattr(
            scene.buffer,
            "end_round",
            lambda number, trouble=None: told.append(trouble) or end_round(number, trouble),
        )
        scene.stand_in_line()
        scene.thread._run()
        assert isinstance(told[-1], AccessDeniedError)
