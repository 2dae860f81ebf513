"""What a lane makes of writes that fail, come late or never end, and that it goes on after each of them."""

import logging
from datetime import timedelta
from itertools import pairwise

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import Source, new_token
from cassq.model.message import NO_HEADERS
from cassq.model.pipe import Phase
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Drain, ForceSeal, Transaction
from cassq.pushing.lane import PAUSE_MAX_S, RESEND_S, Lane
from cassq.pushing.push_request import PushRequest
from cassq.runtime.background_thread import BackgroundThread
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(
    push_age_max=timedelta(seconds=60), push_grace=timedelta(seconds=60), pipe_bytes_max=2**20
)
_ALL = BatchQuery(limit=9)
LATE_S = (SETTINGS.push_age_max + SETTINGS.push_grace).total_seconds()


class Clock(HandClock):
    """Whoever waits has waited; then something may happen."""

    def __init__(self):
        super().__init__()
        self.then = lambda: None

    def wait(self, condition, seconds):
        self.seconds += seconds
        self.then()


class Host:
    """The pusher, as the lane sees it."""

    def __init__(self):
        self.pushed = self.expired = 0

    def check_open(self):
        pass

    def latest_ms(self):
        return 0

    def note_pushed(self, count, _type):
        self.pushed += count

    def expire(self):
        self.expired += 1


class Scene:
    """A lane and its storage, of which calls may be replaced."""

    def __init__(self, monkeypatch):
        self.clock = Clock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.host = Host()
        self.beside = BackgroundThread("beside")
        context = context_of(self.storage, SETTINGS, self.clock)
        self.lane = Lane(context, Source("a pusher"), host=self.host, executor=self.beside)
        self._patch = monkeypatch

    def plant(self, method, does):
        """Have `does` be called instead, with the real method before its arguments."""
        real = getattr(self.storage, method)
        self._patch.setattr(self.storage, method, lambda *args, **how: does(real, *args, **how))

    def mend(self):
        self._patch.undo()

    def push(self, *bodies, timeout=30.0):
        """Push; return the ids of what is stored, or raise."""
        ended = []
        request = PushRequest(
            bodies or (b"body",),
            (NO_HEADERS,) * max(1, len(bodies)),
            self.clock.now() + timeout,
            lambda ids, error: ended.append((list(ids), error)),
        )
        self.lane.write([request])
        ((ids, error),) = ended
        if error:
            raise error
        return ids

    def head(self, pipe):
        return self.storage.load_pipe(pipe).head


@pytest.fixture
def scene(monkeypatch):
    made = Scene(monkeypatch)
    yield made
    made.mend()
    made.lane.close()
    made.beside.shutdown()
    made.storage.close()


def away(_real, *_):
    raise StorageUnavailableError("planted: away")


def reply_lost(real, *args, **how):
    real(*args, **how)
    raise OutcomeUnknownError("planted: reply lost")


class TestAnAcknowledgementThatComesLate:
    def held_up(self, scene, then=lambda: None):
        """Let the next append take longer than others wait for a pusher."""

        def append(real, pipe, batch):
            scene.mend()
            real(pipe, batch)
            scene.clock.seconds += LATE_S
            then()

        scene.plant("append", append)

    def test_counts_where_nobody_closed_the_pipe_and_ends_it(self, scene):
        ((pipe, _),) = scene.push()
        self.held_up(scene)
        assert scene.push() == [(pipe, 2)]
        # The pipe takes nothing more, and ends behind what was acknowledged
        head = scene.head(pipe)
        assert (head.phase, head.last) == (Phase.SEALED, 2)
        ((other, number),) = scene.push()
        assert (other != pipe, number) == (True, 1)

    def test_does_not_count_where_others_closed_the_pipe_before(self, scene, caplog):
        ((pipe, _),) = scene.push()
        self.held_up(scene, lambda: self.close(scene, pipe, 1))
        ((other, number),) = scene.push()
        assert (other != pipe, number) == (True, 1)
        assert scene.host.pushed == 2
        assert not caplog.records

    def test_that_shows_a_loss_has_it_told(self, scene, caplog):
        # Given two messages that are acknowledged, and others that close the pipe behind the first
        ((pipe, _),) = scene.push()
        scene.push()
        self.held_up(scene, lambda: self.close(scene, pipe, 1))
        # When the third is acknowledged after that
        scene.push()
        # Then it is said aloud that the second is lost
        (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert f"messages 2 to 2 of pipe {pipe} were acknowledged and are lost" in told

    def close(self, scene, pipe, last):
        ops = [scene.head(pipe).op, new_token(), new_token()]
        for change in (ForceSeal(ops[0], ops[1]), Drain(ops[1], ops[2], last)):
            assert scene.storage.transact(pipe, Transaction(change)).is_applied


class TestAWriteWithoutAnAnswer:
    def unanswered(self, scene):
        """Let no append into the first pipe be answered; return when each was sent, and what it was."""
        sent = []

        def append(real, pipe, batch):
            sent.append((scene.clock.now() - began, pipe, batch))
            if pipe != sent[0][1]:
                return real(pipe, batch)
            raise OutcomeUnknownError("planted: no answer")

        began = scene.clock.now()
        scene.plant("append", append)
        return sent

    @pytest.mark.parametrize(("timeout", "tried_s"), [(60.0, RESEND_S), (4.0, 2.0)])
    def test_is_sent_again_as_it_is_for_a_while_and_then_elsewhere(self, scene, timeout, tried_s):
        sent = self.unanswered(scene)
        ids = scene.push(b"a", b"b", timeout=timeout)
        first = sent[0][1]
        # As it is, with pauses that grow, and not for so long that no time would be left for another pipe
        assert {(pipe, batch.first, batch.bodies) for _, pipe, batch in sent[:-1]} == {
            (first, 1, (b"a", b"b"))
        }
        times = [at for at, *_ in sent]
        assert tried_s <= times[-2] <= tried_s + PAUSE_MAX_S
        pauses = [round(later - earlier, 3) for earlier, later in pairwise(times[:-1])]
        assert pauses == sorted(pauses)
        assert max(pauses) <= PAUSE_MAX_S
        # Then the pipe is closed, and the messages are in the next one
        head = scene.head(first)
        assert (head.phase, head.last) == (Phase.SEALED, 0)
        assert [(pipe != first, number) for pipe, number in ids] == [(True, 1), (True, 2)]

    def test_is_told_as_unknown_at_once_when_the_queue_is_closed(self, scene):
        sent = self.unanswered(scene)
        scene.plant("transact", away)
        scene.clock.then = scene.lane.stop_waiting
        with pytest.raises(OutcomeUnknownError, match="may or may not be stored"):
            scene.push(timeout=1000.0)
        assert sent[-1][0] < 1.0

    def test_that_fails_for_no_known_reason_is_unknown_and_the_lane_goes_on(self, scene):
        ((pipe, _),) = scene.push()

        def append(_real, *_):
            scene.mend()
            raise RuntimeError("a bug")

        scene.plant("append", append)
        with pytest.raises(OutcomeUnknownError, match="a bug"):
            scene.push()
        # What is pushed next may not get the number of what may be stored
        ((other, number),) = scene.push()
        assert (other != pipe, number) == (True, 1)


class TestAnOutage:
    @pytest.mark.parametrize("method", ["append", "create_pipe"])
    def test_is_told_with_its_reason_when_time_is_up(self, scene, method):
        scene.plant(method, away)
        with pytest.raises(StorageUnavailableError, match=r"in the time that was given.*planted: away"):
            scene.push(timeout=10.0)
        # Those who wait behind the lane are looked after meanwhile
        assert scene.host.expired

    @pytest.mark.parametrize("method", ["append", "create_pipe"])
    def test_is_over_when_the_queue_is_closed(self, scene, method):
        scene.plant(method, away)
        scene.clock.then = scene.lane.stop_waiting
        began = scene.clock.now()
        with pytest.raises(StorageUnavailableError, match="before the queue was closed"):
            scene.push(timeout=1000.0)
        assert scene.clock.now() - began < 1.0

    @pytest.mark.parametrize("method", ["append", "create_pipe"])
    def test_that_is_over_counts_against_nobody(self, scene, method):
        scene.plant(method, away)
        with pytest.raises(CassqError):
            scene.push(timeout=10.0)
        scene.mend()
        scene.push()
        assert scene.push(timeout=0.0)

    def test_leaves_no_pipe_open_that_nobody_fills(self, scene):
        ((pipe, _),) = scene.push()
        scene.plant("append", away)
        with pytest.raises(StorageUnavailableError):
            scene.push(timeout=10.0)
        head = scene.head(pipe)
        assert (head.phase, head.last) == (Phase.SEALED, 1)

    def test_of_the_answers_alone_does_no_harm(self, scene):
        scene.plant("create_pipe", reply_lost)
        scene.clock.then = scene.mend
        ((pipe, _),) = scene.push()
        scene.plant("append", reply_lost)
        assert scene.push() == [(pipe, 2)]
        assert [each.bodies for each in scene.storage.read_batches(pipe, _ALL)] == [(b"body",)] * 2


def test_a_pipe_takes_as_many_bytes_as_its_queue_says(scene):
    size = SETTINGS.pipe_bytes_max // 2 - 100
    pipes = [scene.push(b"x" * size)[0].pipe for _ in range(5)]
    assert [pipes.count(pipe) for pipe in dict.fromkeys(pipes)] == [2, 2, 1]
