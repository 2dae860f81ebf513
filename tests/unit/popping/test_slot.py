"""A slot that was won: what counts as known of it, and what is taken."""

import pytest
from support.slot_scene import LEASE_S, Flaky, Scene, commit, feed, places

from cassq.errors import OutcomeUnknownError
from cassq.model.ids import new_token
from cassq.model.ranges import Ranges
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.run_rows import Return
from cassq.popping import slot
from cassq.popping.slot import Slot
from cassq.popping.timing import BUSY_S, LOOK_S, LOOK_SOON_S, POLL_MAX_S


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


class WonSlot(Scene):
    """A slot that was won; pipes that were opened are known once it was told of them."""

    def __init__(self, **options):
        super().__init__()
        self.flaky = Flaky(self.storage)
        self.op = new_token()
        assert self.storage.change_slot(self.incarnation, 3, None, self.op)
        used = self.context(self.flaky, **options)
        self.slot = Slot(used, 3, self.op, Taker("a popper"), self.over.append)

    def list(self):
        self.slot.note_listed(self.entries)

    def feed(self, wanted=10, room=100):
        """List, and take."""
        self.list()
        return self.slot.feed(wanted, room)

    def others_win(self):
        assert self.storage.change_slot(self.incarnation, 3, self.op_of(3), new_token())

    def loads_of_a_feed(self, seconds=0.0, wanted=10, room=100):
        """How often pipes are loaded in a feed, so many seconds from now."""
        self.clock.seconds += seconds
        self.flaky.calls.clear()
        self.slot.feed(wanted, room)
        return self.flaky.calls.count("load_pipe")


@pytest.fixture
def won():
    made = WonSlot()
    yield made
    made.storage.close()


def back(fetched, delay_ms=0):
    for run, taken in fetched:
        assert run.give_back(Ranges((part.first, part.last) for part in taken.parts), Return(delay_ms))


class TestTaking:
    def test_of_a_slot_that_others_have_won_gives_nothing(self, won):
        pipe = won.open("foo", "bar")
        won.list()
        won.others_win()
        assert won.slot.feed(10, 100) == []
        assert won.slot.is_lost
        won.slot.hand.give_all_back()
        assert won.leased(pipe) == []

    def test_of_nothing_asks_for_no_row(self, won):
        won.open()
        won.list()
        won.others_win()
        assert won.feed() == []
        assert "read_slot" not in won.flaky.calls
        assert not won.slot.is_lost

    def test_reads_the_row_once_the_take_is_written(self, won):
        won.open("foo")
        won.feed()
        calls = [call for call in won.flaky.calls if call in {"transact", "read_slot"}]
        assert calls == ["transact", "read_slot"]

    def test_holds_no_more_than_there_is_room_for(self, won):
        pipe = won.open("foo", "foo", "foo")
        assert places(won.feed(room=2)) == [(pipe, 1)]
        assert won.leased(pipe) == [1, 2]
        assert won.feed(room=0) == []
        assert won.leased(pipe) == [1, 2]

    def test_goes_on_with_what_came_back_where_there_is_no_room(self, won):
        pipe = won.open("foo", "foo", "foo")
        first = won.feed(room=2)
        back(first)
        assert places(won.feed(room=0)) == [(pipe, 1)]
        assert won.leased(pipe) == [1, 2]

    def test_takes_of_all_types_that_are_wanted_and_of_no_other(self, won):
        refund, invoice = won.open("foo", kind="refund"), won.open("bar", kind="invoice")
        order = won.open("baz", kind="order")
        won.slot.types = {"invoice", "order"}
        assert places(won.feed()) == [(invoice, 1), (order, 1)]
        assert won.leased(refund) == []

    def test_in_any_order_takes_from_a_younger_pipe_beside_the_older(self):
        won = WonSlot(keys="exclusive")
        older, younger = won.open("foo"), won.open("bar")
        assert places(won.feed()) == [(older, 1), (younger, 1)]
        won.storage.close()

    def test_forgets_a_pipe_that_is_listed_no_more(self, won):
        pipe, other = won.open("foo", "foo"), won.open("bar", "bar", pusher="another pusher")
        won.feed()
        won.slot.note_listed([entry for entry in won.entries if entry.pipe != pipe])
        assert [run.pipe for run in won.slot.hand.runs()] == [other]


class TestNextDue:
    def test_is_never_where_nothing_is_out(self, won):
        won.open()
        won.feed()
        assert won.slot.next_due() == []

    def test_is_the_end_of_a_lease(self, won):
        won.open("foo")
        won.feed()
        won.clock.seconds += 1
        assert won.slot.next_due() == [LEASE_S - 1]

    def test_is_the_end_of_a_rest(self, won):
        won.open("foo")
        back(won.feed(), delay_ms=2500)
        assert won.slot.next_due() == [2.5]

    def test_counts_no_pipe_of_types_that_are_not_wanted(self, won):
        refund = won.open("foo", kind="refund")
        assert places(feed(won.popper("another"))) == [(refund, 1)]
        won.slot.types = {"invoice"}
        won.list()
        assert won.slot.next_due() == []


class TestAnotherLook:
    """A pipe is read anew as seldom as may be."""

    def test_comes_now_and_then_where_nothing_was_found(self, won):
        won.open()
        won.feed()
        assert won.loads_of_a_feed(LOOK_S - 0.1) == 0
        assert won.loads_of_a_feed(0.1) == 1
        assert won.loads_of_a_feed(LOOK_S - 0.1) == 0

    def test_comes_soon_where_a_younger_pipe_waits_for_the_end_of_this_one(self, won):
        won.open()
        won.open("foo")
        won.list()
        assert won.loads_of_a_feed(2 * LOOK_SOON_S) == 1

    def test_comes_no_sooner_where_the_younger_pipe_is_of_another_source(self, won):
        won.open()
        won.open(pusher="another pusher")
        won.list()
        assert won.loads_of_a_feed(2 * LOOK_SOON_S) == 0

    def test_comes_soon_where_something_is_due(self, won):
        pipe = won.open("foo")
        won.feed()
        assert won.loads_of_a_feed(LEASE_S + 2 * LOOK_SOON_S) == 1
        assert places(won.feed()) == [(pipe, 1)]

    def test_comes_where_something_was_found_only_for_what_others_have(self, won):
        pipe = won.open("foo")
        won.list()
        assert won.loads_of_a_feed(LOOK_S) == 0
        assert won.leased(pipe) == [1]

    def test_comes_at_what_others_have_also_where_something_was_found(self, won):
        pipe = won.open("foo")
        feed(won.popper("another"))
        won.storage.change_slot(won.incarnation, 3, won.op_of(3), won.op)
        won.push(pipe, "bar")
        won.list()
        assert won.loads_of_a_feed(LOOK_S - 0.1) == 0
        won.push(pipe, "baz")
        assert won.loads_of_a_feed(0.1) == 1

    def test_comes_at_what_others_have_also_where_there_is_no_room(self, won):
        won.open("foo")
        feed(won.popper("another"))
        won.list()
        assert won.loads_of_a_feed(LOOK_S - 0.1, room=0) == 0
        assert won.loads_of_a_feed(0.1, room=0) == 1

    def test_comes_at_a_pipe_that_somebody_sealed_and_tells_that_it_is_over(self, won):
        pipe = won.open("foo")
        commit(won.feed())
        won.seal(pipe, 1)
        assert won.loads_of_a_feed(LOOK_S) == 1
        assert won.over == [pipe]
        assert won.loads_of_a_feed(LOOK_S) == 0


class TestWhatMayBeMore:
    def test_is_what_is_held(self, won):
        won.open("foo", "foo")
        won.feed()
        assert won.slot.may_have_more

    def test_is_what_is_known_to_wait(self, won):
        won.open("foo", "bar")
        won.feed(wanted=1, room=1)
        assert won.slot.may_have_more

    def test_is_nothing_once_all_was_handed_out(self, won):
        won.open("foo")
        won.feed()
        won.feed()
        assert not won.slot.may_have_more
