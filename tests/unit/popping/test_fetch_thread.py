"""What the thread that fills a buffer does with wake-ups, leases and errors, one step at a time."""

import contextlib

import pytest
from support.fetch_scene import NAME, made

from cassq.errors import AccessDeniedError, StorageUnavailableError
from cassq.model.pipe import RunState
from cassq.popping.alarm import Heard
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery import BatchSlice
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.popping.timing import LOOK_S


@pytest.fixture
def scene():
    yield from made()


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

    @pytest.mark.parametrize(("is_holding", "is_soon"), [(True, True), (False, False)])
    def test_that_holds_something_of_a_slot_looks_soon_however_many_wait(
        self, scene, monkeypatch, is_holding, is_soon
    ):
        for number in range(8):
            scene.coordinator.announce_hunger("q", f"another {number}", lambda: None)
        monkeypatch.setattr(Fetcher, "is_holding", is_holding)
        waits = []

        def listen(seconds):
            waits.append(seconds)
            return Heard.CLOSING

        monkeypatch.setattr(scene.thread, "_listen_and_keep_up", listen)
        scene.thread._starve(1)
        assert (waits[0] <= LOOK_S) is is_soon

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

    def test_of_others_is_fed_with_what_one_take_leaves(self, scene):
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
