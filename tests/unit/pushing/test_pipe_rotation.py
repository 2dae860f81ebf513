"""Which pipe a lane fills next, where one that is opened ahead comes late or nobody knows whether it came."""

import threading
from concurrent.futures import Future

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.errors import OutcomeUnknownError
from cassq.model.ids import time_key
from cassq.model.pipe import Phase
from cassq.pushing.pipe_rotation import RETRY_S, PipeRotation
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import SystemClock
from cassq.runtime.deadline import Deadline, seconds_left

FULL = 10


class Openings:
    """A storage that opens pipes beside when a test lets it, and may lose its replies."""

    def __init__(self, storage):
        self._storage = storage
        self.pipes = []
        self.is_reply_lost = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def create_pipe(self, queue, entry, head):
        self.pipes.append(entry.pipe)
        if threading.current_thread() is not threading.main_thread():
            self.may_go_on.wait()
        self._storage.create_pipe(queue, entry, head)
        if self.is_reply_lost:
            raise OutcomeUnknownError("no answer")


class Unopened(Future):
    """A pipe that is still being opened; notes who waits for it."""

    was_waited_for = False

    def result(self, timeout=None):
        self.was_waited_for = True
        raise TimeoutError


class Opening:
    """Begins to open a pipe, and leaves it at that."""

    def __init__(self):
        self.begun = Unopened()

    def submit(self, _):
        return self.begun


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q", pipe_messages_max=FULL)


@pytest.fixture
def storage(queue):
    return Openings(queue._services.storage)


@pytest.fixture
def beside():
    return BackgroundThread("beside")


def supply_of(queue, storage, executor):
    return PipeRotation(
        context_of(storage, queue.settings, SystemClock()), pusher="a pusher", number=0, executor=executor
    )


def test_a_pipe_that_is_opened_too_late_is_not_filled_after_a_younger_one(queue, storage, beside):
    # Given a pipe that is being opened ahead, and takes longer than the callers have
    supply = supply_of(queue, storage, beside)
    filled = [supply.writable(1, 1)]
    filled[0].acked = FULL // 2
    storage.may_go_on.clear()
    supply.writable(1, 1)
    filled[0].acked = FULL
    # When another is opened in its place, and filled
    with Deadline(SystemClock().now()):
        filled.append(supply.writable(1, 1))
    storage.may_go_on.set()
    beside.shutdown()
    filled[1].acked = FULL
    filled.append(supply.writable(1, 1))
    # Then the pipes are filled in the order of their ids, and the late one holds nobody up
    assert [each.pipe for each in filled] == sorted((each.pipe for each in filled), key=time_key)
    late = set(storage.pipes) - {each.pipe for each in filled}
    assert [storage.load_pipe(pipe).head.phase for pipe in late] == [Phase.SEALED]


def test_nobody_waits_for_a_pipe_that_is_opened_ahead_while_there_is_room(queue, storage):
    opening = Opening()
    supply = supply_of(queue, storage, opening)
    supply.writable(1, 1).acked = FULL // 2
    supply.writable(1, 1)

    supply.tend()

    assert not opening.begun.was_waited_for


def test_a_pipe_of_which_nobody_knows_whether_it_was_opened_is_sealed(queue, storage, beside):
    supply = supply_of(queue, storage, beside)
    storage.is_reply_lost = True
    with pytest.raises(OutcomeUnknownError):
        supply.writable(1, 1)

    supply.tend()

    assert [storage.load_pipe(pipe).head.last for pipe in storage.pipes] == [0]


@pytest.mark.parametrize(("before_s", "is_late"), [(0.5, False), (-0.5, True)])
def test_an_acknowledgement_is_late_when_half_of_the_grace_is_over(queue, storage, beside, before_s, is_late):
    # The other half is for a pause that no clock has told yet.
    clock = HandClock()
    supply = PipeRotation(
        context_of(storage, queue.settings, clock), pusher="a pusher", number=0, executor=beside
    )
    opened = supply.writable(1, 1)
    clock.seconds += (queue.settings.push_age_max + queue.settings.push_grace / 2).total_seconds() - before_s

    assert supply.is_late(opened) is is_late


def test_a_push_waits_behind_a_seal_no_longer_than_until_the_next_one(queue, storage, beside):
    clock = HandClock()
    supply = PipeRotation(
        storage, "q", queue.settings, pusher="a pusher", number=0, executor=beside, clock=clock
    )
    supply.writable(1, 1)
    clock.seconds += queue.settings.push_age_max.total_seconds()
    patience = []
    storage.transact = lambda *_: patience.append(seconds_left(clock, 15.0))

    supply.tend()

    assert set(patience) == {RETRY_S}
