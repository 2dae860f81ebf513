"""A slot that was won: what counts as known of it, and what is taken."""

import pytest
from support.slot_scene import LEASE_S, Flaky, Scene, commit, feed, places

from cassq.errors import OutcomeUnknownError
from cassq.popping import slot
from cassq.popping.timing import BUSY_S, POLL_MAX_S


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


class TestWhatAnotherPopperTookBefore:
    """Its message is in a pipe of another pusher, and keeps its key busy."""

    @pytest.fixture
    def others(self, scene):
        return scene.popper("another")

    def take_by(self, scene, others, pipe):
        """Have the other popper work on a message of `pipe`, with a key that others wait for then."""
        scene.push(pipe, "foo")
        assert places(feed(others)) == [(pipe, 1)]

    def test_is_known_before_anything_is_handed_out(self, scene, others):
        mine, theirs = scene.open(), scene.open(pusher="another pusher")
        self.take_by(scene, others, theirs)
        scene.push(mine, "foo", "bar")
        assert places(feed(scene.popper())) == [(mine, 2)]

    def test_has_what_waits_for_it_given_back(self, scene, others):
        mine, theirs = scene.open(), scene.open(pusher="another pusher")
        self.take_by(scene, others, theirs)
        scene.push(mine, "foo", "foo", "bar")
        feed(scene.popper())
        assert scene.leased(mine) == [3]

    def test_is_known_also_of_a_pipe_that_came_just_before_the_slot_was_won(self, scene, others):
        mine = scene.open()
        feed(others)

        def meanwhile():
            self.take_by(scene, others, scene.open(pusher="another pusher"))
            scene.push(mine, "foo")

        flaky = Flaky(scene.storage)
        flaky.before["change_slot"] = meanwhile
        assert feed(scene.popper(storage=flaky)) == []
        assert flaky.before == {}

    def test_is_known_also_to_who_had_the_slot_before(self, scene, others, monkeypatch):
        monkeypatch.setattr(slot, "TAKE_MIN", 1)  # who takes from all pipes finds out
        mine, theirs = scene.open(), scene.open(pusher="another pusher")
        popper = scene.popper()
        feed(popper)
        popper.let_all_go()
        self.take_by(scene, others, theirs)
        scene.push(mine, "foo")
        scene.clock.seconds += BUSY_S
        assert feed(popper, 1) == []

    def test_is_safe_from_an_attempt_to_win_that_lands_late(self, scene, others, monkeypatch):
        monkeypatch.setattr(slot, "TAKE_MIN", 1)  # who takes from all pipes finds out
        mine, theirs = scene.open(), scene.open(pusher="another pusher")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        # Given a popper whose first attempt was lost, and that won by its second
        feed(others)
        flaky.fails["change_slot"] = (OutcomeUnknownError("lost"), False)
        feed(popper)
        flaky.fails.clear()
        scene.clock.seconds += POLL_MAX_S
        feed(popper)
        # When the other one wins, and takes, and the lost attempt lands
        others.let_all_go()
        scene.clock.seconds += BUSY_S
        self.take_by(scene, others, theirs)
        flaky.lost[0]()
        # Then the first one does not take the slot for its own
        scene.push(mine, "foo")
        assert popper.feed(1, is_listing=False) == []
        assert scene.leased(mine) == []


class TestWhatIsHeld:
    def test_is_let_out_under_a_running_lease_alone(self, scene):
        pipe = scene.open("foo", "foo")
        popper = scene.popper()
        commit(feed(popper))
        scene.clock.seconds += LEASE_S + 1
        came = feed(popper) + feed(popper)
        assert places(came) == [(pipe, 2)]
        assert [(run.is_live, run.attempt) for run, _ in came] == [(True, 2)]
