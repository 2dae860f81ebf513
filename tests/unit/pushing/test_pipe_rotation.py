"""Which pipe a lane fills next, where one that is opened ahead comes late or nobody knows whether it came."""

import threading
from concurrent.futures import Future

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import Source, id_time_ms, time_key
from cassq.model.pipe import Phase
from cassq.model.schedule import SOON
from cassq.model.transaction import Seal, Transaction
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
    return Openings(queue._context.storage)


@pytest.fixture
def beside():
    return BackgroundThread("beside")


def supply_of(queue, storage, executor):
    return PipeRotation(
        context_of(storage, queue.settings, SystemClock()), Source("a pusher"), executor, lambda: 0
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
    supply = PipeRotation(context_of(storage, queue.settings, clock), Source("a pusher"), beside, lambda: 0)
    opened = supply.writable(1, 1)
    clock.seconds += (queue.settings.push_age_max + queue.settings.push_grace / 2).total_seconds() - before_s

    assert supply.is_late(opened) is is_late


def test_a_push_waits_behind_a_seal_no_longer_than_until_the_next_one(queue, storage, beside):
    clock = HandClock()
    supply = PipeRotation(context_of(storage, queue.settings, clock), Source("a pusher"), beside, lambda: 0)
    supply.writable(1, 1)
    clock.seconds += queue.settings.push_age_max.total_seconds()
    patience = []
    storage.transact = lambda *_: patience.append(seconds_left(clock, 15.0))

    supply.tend()

    assert set(patience) == {RETRY_S}


class TestOverTime:
    """A lane's pipes, by a clock that is moved by hand."""

    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def opening(self):
        return _AtOnce()

    @pytest.fixture
    def supply(self, queue, storage, opening, clock):
        return PipeRotation(
            context_of(storage, queue.settings, clock), Source("a pusher"), opening, lambda: 0
        )

    @pytest.fixture
    def age_max(self, queue):
        return queue.settings.push_age_max.total_seconds()

    def ends(self, storage):
        """How far each pipe reaches, None while it is open, in the order in which they were opened."""
        heads = [storage.load_pipe(pipe).head for pipe in storage.pipes]
        return [None if head.phase is Phase.OPEN else head.last for head in heads]

    def test_a_pipe_is_filled_to_its_last_message_and_ends_there(self, supply, storage):
        first = supply.writable(1, 1)
        first.acked = FULL - 3
        assert supply.writable(3, 1) is first
        assert supply.writable(4, 1) is not first
        assert self.ends(storage) == [FULL - 3, None]

    def test_a_pipe_carries_so_many_bytes_and_no_more(self, supply, queue):
        first = supply.writable(1, 1)
        first.acked, first.size = 1, queue.settings.pipe_bytes_max - 5
        assert supply.writable(1, 5) is first
        assert supply.writable(1, 6) is not first

    def test_an_empty_pipe_takes_any_batch(self, supply, queue):
        first = supply.writable(1, 1)
        assert supply.writable(FULL + 1, queue.settings.pipe_bytes_max + 1) is first

    @pytest.mark.parametrize("used", ["messages", "bytes", "age"])
    def test_the_next_pipe_is_opened_once_half_of_one_is_used(
        self, supply, storage, clock, queue, age_max, used
    ):
        first = supply.writable(1, 1)
        first.acked = FULL // 2 - 1
        supply.writable(1, 1)
        assert len(storage.pipes) == 1
        if used == "messages":
            first.acked = FULL // 2
        elif used == "bytes":
            first.size = queue.settings.pipe_bytes_max // 2
        else:
            clock.seconds += age_max / 2
        supply.writable(1, 1)
        supply.writable(1, 1)
        assert len(storage.pipes) == 2
        # And it is the one that follows
        first.acked = FULL
        assert supply.writable(1, 1).pipe == storage.pipes[1]

    def test_what_is_too_old_takes_nothing_more_whether_pushed_into_or_opened_ahead(
        self, supply, storage, clock, age_max
    ):
        supply.writable(1, 1).acked = FULL // 2
        supply.writable(1, 1)
        clock.seconds += age_max
        later = supply.writable(1, 1)
        assert later.pipe == storage.pipes[2]
        assert self.ends(storage) == [FULL // 2, 0, None]

    def test_idle_pipes_are_sealed_when_their_time_is_over(self, supply, storage, clock, age_max):
        # Given a pipe, and a younger one that was opened ahead
        supply.writable(1, 1).acked = FULL // 2
        clock.seconds += 1.0
        supply.writable(1, 1)
        assert supply.tend() == pytest.approx(age_max - 1.0)
        # When the time of the first is over, and then that of the other
        clock.seconds += age_max - 1.0
        assert supply.tend() == pytest.approx(1.0)
        assert self.ends(storage) == [FULL // 2, None]
        clock.seconds += 1.0
        assert supply.tend() == pytest.approx(age_max)
        assert self.ends(storage) == [FULL // 2, 0]
        # Then nothing is pushed into either
        assert supply.writable(1, 1).pipe not in storage.pipes[:2]

    def test_what_was_given_up_is_not_written_into_again(self, supply):
        first = supply.writable(1, 1)
        supply.give_up()
        assert supply.writable(1, 1) is not first

    def test_closing_seals_what_is_open_what_was_opened_ahead_and_what_could_not_be_sealed(
        self, supply, storage, monkeypatch
    ):
        first = supply.writable(1, 1)
        first.acked = FULL
        with monkeypatch.context() as patch:
            patch.setattr(storage._storage, "transact", _out_of_reach)
            supply.writable(1, 1).acked = FULL // 2
            supply.writable(1, 1)
        assert self.ends(storage) == [None, None, None]
        supply.close()
        assert self.ends(storage) == [FULL, FULL // 2, 0]

    def test_a_seal_that_failed_is_tried_again_until_it_is_the_reapers(
        self, supply, storage, clock, queue, monkeypatch
    ):
        first = supply.writable(1, 1)
        first.acked = 1
        reaped_after = (queue.settings.push_age_max + queue.settings.push_grace).total_seconds()
        with monkeypatch.context() as patch:
            patch.setattr(storage._storage, "transact", _out_of_reach)
            clock.seconds += reaped_after - 1.0
            assert supply.tend() == RETRY_S
            assert supply.tend() == RETRY_S
            clock.seconds += 1.0
            assert supply.tend() > RETRY_S
        supply.tend()
        assert self.ends(storage) == [None]

    def test_a_seal_whose_reply_was_lost_is_tried_again_however_old_the_pipe_is(
        self, supply, storage, clock, queue, monkeypatch
    ):
        supply.writable(1, 1)
        clock.seconds += 10 * queue.settings.push_age_max.total_seconds()
        with monkeypatch.context() as patch:
            patch.setattr(storage._storage, "transact", _no_answer)
            assert supply.tend() == RETRY_S
        supply.tend()
        assert self.ends(storage) == [0]

    @pytest.mark.parametrize(("ends_at", "is_told"), [(4, True), (5, False)])
    def test_a_pipe_that_others_ended_before_what_was_acknowledged_is_told(
        self, supply, storage, caplog, ends_at, is_told
    ):
        opened = supply.writable(1, 1)
        storage.transact(opened.pipe, Transaction(Seal(ends_at, is_free=True)))
        opened.acked = 5
        supply.finish(opened)
        assert ("were acknowledged and are lost" in caplog.text) is is_told


def test_what_is_due_soon_has_ids_by_the_databases_clock(queue, storage, beside):
    # Given a machine whose time of day is wrong: poppers read a list by that of the database
    source = Source("a pusher", due_class=SOON)
    supply = PipeRotation(
        context_of(storage, queue.settings, SystemClock()), source, beside, latest_ms=lambda: 1_000_000
    )

    opened = supply.writable(1, 1, due_ms=1_002_000)

    assert id_time_ms(opened.pipe) == 1_000_000


class _AtOnce:
    """Does at once what is to be done beside."""

    def submit(self, does):
        future = Future()
        future.set_result(does())
        return future


def _out_of_reach(*_):
    raise StorageUnavailableError("out of reach")


def _no_answer(*_):
    raise OutcomeUnknownError("no answer")
