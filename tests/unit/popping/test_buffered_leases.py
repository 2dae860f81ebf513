"""What becomes of the leases of what is in a buffer, one step of the fetch thread at a time."""

from datetime import timedelta

import pytest
from support.fetch_scene import made

from cassq.errors import AccessDeniedError, StorageUnavailableError
from cassq.model.label import Label
from cassq.model.pipe import RunState
from cassq.model.uses import with_uses
from cassq.popping.reach import Reach
from cassq.popping.timing import IDLE_S


@pytest.fixture
def scene():
    yield from made()


@pytest.fixture
def limited():
    """A queue with a time-to-live."""
    yield from made(ttl=timedelta(seconds=60))


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
