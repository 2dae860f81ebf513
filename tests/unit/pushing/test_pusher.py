"""What callers hear of a pusher whose lane is stuck or refused, and when its thread looks after its pipes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from queue import SimpleQueue

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.errors import (
    AccessDeniedError,
    InvalidOptionError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UsageError,
)
from cassq.model.ids import new_pipe_id
from cassq.model.label import UNLABELLED
from cassq.pushing.due_clock import DueClock
from cassq.pushing.lane_set import LaneSet
from cassq.pushing.pusher import PARCELS_IN_FLIGHT, PUSH_TIMEOUT, Pusher


class Clock(HandClock):
    """Tells how long somebody waits for; such a wait ends when it is notified."""

    def __init__(self):
        super().__init__()
        self.waits = SimpleQueue()

    def wait(self, condition, seconds):
        self.waits.put(seconds)
        condition.wait(seconds)


class Gate:
    """A storage that stores once it is opened, where it was closed; or refuses."""

    def __init__(self, storage):
        self._storage = storage
        self.is_reached, self.is_open = threading.Event(), threading.Event()
        self.is_open.set()
        self.error = None

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def append(self, pipe, batch):
        self.is_reached.set()
        assert self.is_open.wait(60)
        if self.error:
            raise self.error
        self._storage.append(pipe, batch)


class Scene:
    """A pusher of parts of two messages each."""

    def __init__(self, store):
        self.queue = store.queue("q", pipe_messages_max=2)
        self.clock, self.storage = Clock(), Gate(store.storage)
        context = context_of(self.storage, self.queue.settings, self.clock, coordinator=store.coordinator)
        self.pusher = Pusher(context, DueClock(context))

    def get_stuck(self):
        """Let the lane stand in a call; return the future of what it stores there."""
        self.storage.is_open.clear()
        future = self.pusher.push_soon(b"stuck", None, 3600.0)
        assert self.storage.is_reached.wait(30)
        return future

    def many(self, bodies, timeout=PUSH_TIMEOUT):
        return self.pusher.push_many(bodies, None, timeout)


@pytest.fixture
def scene():
    with cassq.connect("memory:") as store:
        made = Scene(store)
        yield made
        made.storage.is_open.set()
        made.storage.error = None
        made.pusher.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda scene: scene.pusher.push(b"x", None, 30.0, UNLABELLED),
        lambda scene: scene.pusher.push_again([(b"x", {})]),
        lambda scene: scene.many([b"x"]),
    ],
    ids=["push", "push_again", "push_many"],
)
def test_a_call_that_interrupts_another_of_its_thread_is_refused(scene, call):
    told = SimpleQueue()

    def interrupt():
        with scene.pusher._buffer._lock:  # as a signal's handler would in the middle of a push
            try:
                call(scene)
            except UsageError as error:
                told.put(str(error))

    threading.Thread(target=interrupt, daemon=True).start()
    assert "interrupted another call of the same thread" in told.get(timeout=60)


def test_idle_lanes_are_tended_while_another_is_at_work(scene, monkeypatch):
    tended = SimpleQueue()
    monkeypatch.setattr(LaneSet, "tend_idle", lambda _lanes, now: tended.put(now))
    scene.pusher.push(b"x", None, 30.0, UNLABELLED)
    scene.pusher.close()
    assert tended.get(block=False) == scene.clock.now()


def failing_after(count):
    """Yield so many bodies, and fail."""
    yield from (b"%d" % number for number in range(count))
    raise ValueError("no more of them")


def breaking_a_rule_after(count):
    """Yield so many bodies, and something that is none."""
    yield from (b"%d" % number for number in range(count))
    yield "no bytes"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda scene: scene.pusher.push(b"late", None, 0.0, UNLABELLED), StorageUnavailableError),
        (lambda scene: scene.many([b"late", b"too", b"as well"], 0.0), StorageUnavailableError),
        (lambda scene: scene.many(failing_after(3), 0.0), ValueError),
    ],
    ids=["one", "many", "many that fail on the way"],
)
def test_who_has_no_time_left_is_told_though_the_lane_is_stuck_in_a_call(scene, call, error):
    stuck = scene.get_stuck()
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(call, scene)
        try:
            assert type(heard.exception(30)) is error
        finally:
            scene.storage.is_open.set()
    stuck.result(30)
    scene.pusher.close()
    assert scene.queue.stats().pushed == 1


def test_each_part_of_many_has_the_whole_time(scene, monkeypatch):
    given, put = [], scene.pusher._buffer.put

    def noting(request):
        given.append(request.deadline - scene.clock.now())
        put(request)

    def slowly():
        for number in range(8):
            scene.clock.seconds += 1
            yield b"%d" % number

    monkeypatch.setattr(scene.pusher._buffer, "put", noting)
    assert len(scene.many(slowly(), 30.0)) == 8
    assert given == [30.0] * 4


@pytest.mark.parametrize(
    ("bodies", "reason"), [(failing_after, ValueError), (breaking_a_rule_after, InvalidOptionError)]
)
def test_all_that_is_stored_is_told_where_the_bodies_fail_on_the_way(scene, bodies, reason):
    with pytest.raises(reason) as error:
        scene.many(bodies(20))
    stored = scene.queue.stats().pushed
    assert stored > 2 * PARCELS_IN_FLIGHT  # also of parts that were through by then
    assert error.value.__notes__ == [f"{stored} of the messages are stored"]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        # Nothing is stored, and that is known
        (StorageUnavailableError("refused"), StorageUnavailableError),
        # What may be stored must not be pushed again as if it were not
        (OutcomeUnknownError("no answer"), OutcomeUnknownError),
        (None, OutcomeUnknownError),
    ],
    ids=["refused", "unknown", "stored"],
)
def test_many_are_not_told_as_refused_while_a_part_is_stored_or_may_be(scene, monkeypatch, others, told):
    brought = []

    def put(request):
        brought.append(request)
        if len(brought) == 3:
            brought[0].fail(StorageUnavailableError("refused"))
            for other in brought[1:]:
                if others:
                    other.fail(others)
                else:
                    other.store(new_pipe_id(), 1, other.count)

    monkeypatch.setattr(scene.pusher._buffer, "put", put)
    with pytest.raises((StorageUnavailableError, OutcomeUnknownError)) as error:
        scene.many([b"%d" % number for number in range(6)])
    assert type(error.value) is told
    assert ("at least 4 of" in str(error.value)) == (others is None)


def test_a_pipe_is_looked_after_when_its_time_is_over_counted_from_the_last_push_on(scene):
    def next_rest():
        return next(seconds for seconds in iter(scene.clock.waits.get, None) if seconds)

    age_max_s = scene.queue.settings.push_age_max.total_seconds()
    assert next_rest() == age_max_s
    scene.pusher.push(b"opens a pipe", None, PUSH_TIMEOUT, UNLABELLED)
    assert next_rest() == age_max_s
    scene.clock.seconds += age_max_s - 5
    scene.pusher.push(b"goes into it", None, PUSH_TIMEOUT, UNLABELLED)
    assert next_rest() == 5.0


class TestAClose:
    def test_tells_how_many_are_not_known_to_be_stored(self, scene):
        stuck = scene.get_stuck()
        futures = [scene.pusher.push_soon(b"waits", None, 3600.0) for _ in range(3)]
        assert scene.pusher.close(timedelta(0)) == len([stuck, *futures])
        scene.storage.is_open.set()
        for each in (stuck, *futures):  # whoever waits for them hears all the same
            each.result(30)

    def test_lets_a_lane_give_up_that_waits_for_an_outage_to_end(self, scene):
        scene.storage.error = StorageUnavailableError("away")
        future = scene.pusher.push_soon(b"refused", None, 3600.0)
        assert scene.storage.is_reached.wait(30)
        now = scene.clock.now

        def later():
            if threading.current_thread() is threading.main_thread():
                scene.clock.seconds += 60.0  # no time is left to wait for the lane, but to let it end
            return now()

        scene.clock.now = later
        assert scene.pusher.close(timedelta(seconds=30)) == 1
        assert isinstance(future.exception(0), StorageUnavailableError)

    def test_leaves_no_thread_behind(self, scene):
        scene.pusher.push(b"wakes a popper from another thread", None, PUSH_TIMEOUT, UNLABELLED)
        threads = [scene.pusher._beside._thread, *scene.pusher._threads]
        scene.pusher.close()
        assert [thread.is_alive() for thread in threads] == [False, False]


def test_a_push_that_is_refused_for_good_is_told_at_once(scene):
    scene.storage.error = AccessDeniedError("no permission")
    with pytest.raises(AccessDeniedError):
        scene.pusher.push(b"refused", None, 3600.0, UNLABELLED)
    scene.storage.error = None
    scene.pusher.push(b"the lane goes on", None, PUSH_TIMEOUT, UNLABELLED)
    assert scene.queue.stats().pushed == 1
