"""What one popper takes of slots, holds back, and gives up."""

import sys
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from support.slot_scene import LEASE_S, Flaky, Scene, commit, feed, places

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import DecodeError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.pipe import RunState
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.pipes import fenced_pipe
from cassq.pipes.run_rows import Return
from cassq.popping import slots
from cassq.popping.timing import BUSY_S, LOOK_S, POLL_MAX_S, REST_S


class Torn:
    """A storage of which each of the next lists lacks some pipes: no list is a snapshot."""

    def __init__(self, storage):
        self._storage = storage
        self.unseen = []

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def list_pipes(self, *args, **kwargs):
        unseen = self.unseen.pop(0) if self.unseen else ()
        listing = self._storage.list_pipes(*args, **kwargs)
        return replace(listing, entries=tuple(each for each in listing.entries if each.pipe not in unseen))


class Slow:
    """A storage of which each transaction takes a second."""

    def __init__(self, storage, clock):
        self._storage = storage
        self._clock = clock

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def transact(self, *args):
        self._clock.seconds += 1.0
        return self._storage.transact(*args)


class Cleared:
    """A storage of which one pipe loses its batches just before they are read, with or without its rows."""

    def __init__(self, storage, pipe, *, is_whole):
        self._storage = storage
        self._pipe = pipe
        self._is_whole = is_whole

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def read_batches(self, pipe, query):
        if pipe != self._pipe:
            return self._storage.read_batches(pipe, query)
        if self._is_whole:
            self._storage.delete_pipe("q", pipe, Shelf.KEYED)
        return []


def feed_first(scene, popper):
    """Have a popper win the slot, and end all that is in it."""
    scene.seal(scene.open("the first"), 1)
    commit(feed(popper))


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


class TestASlot:
    def test_gives_one_message_of_each_key(self, scene):
        pipe = scene.open("foo", "foo", "bar")
        assert places(feed(scene.popper())) == [(pipe, 1), (pipe, 3)]

    def test_gives_the_next_of_a_key_once_the_one_before_is_committed(self, scene):
        pipe = scene.open("foo", "foo")
        popper = scene.popper()
        first = feed(popper)
        assert feed(popper) == []
        consumer = threading.Thread(target=commit, args=(first,))
        consumer.start()
        consumer.join()
        assert scene.freed
        assert places(popper.feed(10, is_listing=False)) == [(pipe, 2)]

    def test_gives_as_many_as_are_wanted(self, scene):
        scene.open("foo", "bar", "baz")
        popper = scene.popper()
        assert [len(popper.feed(2, is_listing=True)) for _ in range(2)] == [2, 1]

    def test_that_another_popper_wins_gives_nothing_more_and_its_takes_go_back(self, scene):
        pipe = scene.open("foo")
        popper, other = scene.popper(), scene.popper("another")
        assert places(feed(popper)) == [(pipe, 1)]
        feed(other)
        late = scene.open("baz", pusher="another pusher")
        assert feed(popper) == []
        assert scene.leased(late) == []

    def test_is_left_alone_where_its_row_was_changed_meanwhile(self, scene):
        scene.open("foo")
        flaky = Flaky(scene.storage)
        flaky.fails["change_slot"] = (None, False)
        assert feed(scene.popper(storage=flaky)) == []
        assert "transact" not in flaky.calls

    def test_counts_as_won_where_the_reply_was_lost_and_the_row_tells(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        flaky.fails["change_slot"] = (OutcomeUnknownError("lost"), True)
        assert places(feed(scene.popper(storage=flaky))) == [(pipe, 1)]

    def test_does_not_count_as_won_where_the_request_was_lost(self, scene):
        scene.open("foo")
        flaky = Flaky(scene.storage)
        flaky.fails["change_slot"] = (OutcomeUnknownError("lost"), False)
        assert feed(scene.popper(storage=flaky)) == []

    def test_gives_what_others_had_once_that_came_back(self, scene):
        pipe = scene.open("foo", "foo")
        popper, other = scene.popper(), scene.popper("another")
        ((run, _),) = feed(popper)
        assert feed(other) == []
        run.give_back(Ranges([(1, 1)]), Return())
        popper.let_all_go()
        scene.clock.seconds += LOOK_S
        feed(other)  # reads the pipe anew
        assert places(feed(other)) == [(pipe, 1)]

    def test_takes_what_was_cleared_since_it_was_loaded_for_no_damage(self, scene):
        # Given a pipe of which another popper has all, and that is cleared while its keys are read
        pipe = scene.open("foo")
        feed(scene.popper())
        free = scene.open("foo", pusher="another pusher")
        other = scene.popper("another", storage=Cleared(scene.storage, pipe, is_whole=True))
        # Then its keys are free
        assert places(feed(other)) == [(free, 1)]

    def test_tells_of_damage_where_the_keys_of_a_pipe_that_stands_are_gone(self, scene):
        pipe = scene.open("foo")
        feed(scene.popper())
        scene.open("bar", pusher="another pusher")
        other = scene.popper("another", storage=Cleared(scene.storage, pipe, is_whole=False))
        with pytest.raises(DecodeError, match="messages 1 to 1 were handed out, and are gone"):
            feed(other)

    def test_gives_no_younger_pipe_of_a_source_before_the_older_is_known_to_the_end(self, scene):
        older, younger = scene.open(), scene.open("foo")
        popper = scene.popper()
        assert feed(popper) == []
        scene.seal(older, 0)
        scene.clock.seconds += LOOK_S
        feed(popper)
        assert places(feed(popper)) == [(younger, 1)]

    @pytest.mark.parametrize("keys", ["ordered", "exclusive"])
    def test_in_order_gives_no_younger_pipe_where_a_look_missed_the_older(self, scene, keys):
        torn = Torn(scene.storage)
        popper = scene.popper(storage=torn, keys=keys)
        feed_first(scene, popper)
        older, younger = scene.open("foo"), scene.open("foo")
        torn.unseen = [{older}]
        assert places(feed(popper)) == [(older if keys == "ordered" else younger, 1)]

    def test_in_order_gives_nothing_that_came_after_the_first_of_two_looks(self, scene):
        torn = Torn(scene.storage)
        popper = scene.popper(storage=torn)
        feed_first(scene, popper)
        older, younger, youngest = scene.open(), scene.open("foo"), scene.open("foo")
        scene.seal(older, 0)
        scene.seal(younger, 1)
        torn.unseen = [{younger, youngest}, {younger}]
        assert feed(popper) == []
        scene.clock.seconds += LOOK_S
        assert places(feed(popper)) == [(younger, 1)]

    @pytest.mark.parametrize("slots", [[1] * 2 * LEASE_S, range(2 * LEASE_S)], ids=["one slot", "many slots"])
    def test_hands_out_what_it_has_while_its_lease_is_young(self, scene, slots):
        # Given more pipes than can be taken from in a lease
        pipes = [
            scene.open(f"key {place}", slot=slot, pusher=f"pusher {place}")
            for place, slot in enumerate(slots)
        ]
        popper = scene.popper(storage=Slow(scene.storage, scene.clock))
        came = []
        for _ in pipes:
            found = feed(popper)
            came += places(found)
            assert all(run.left_s > LEASE_S / 2 for run, _ in found)
            commit(found)
        assert sorted(came) == sorted((pipe, 1) for pipe in pipes)

    def test_takes_from_each_pipe_in_turn_where_there_is_no_time_for_all(self, scene):
        # Given pipes of which each take is the only one that there is time for, and that always have more
        pipes = [scene.open(f"key {place}", pusher=f"pusher {place}") for place in range(4)]
        popper = scene.popper(storage=Slow(scene.storage, scene.clock))
        came = []
        for _ in range(3 * len(pipes)):
            found = feed(popper)
            came += places(found)
            commit(found)
            for place, pipe in enumerate(pipes):
                scene.push(pipe, f"key {place}")
        assert {pipe for pipe, _ in came} == set(pipes)

    def test_takes_nothing_of_a_lower_priority_while_there_is_no_time_for_more_than_the_higher(self, scene):
        # Given a pipe of each of two priorities, both with more, and time for one take
        pipes = {scene.open(f"key {each}", pusher=f"pusher {each}", priority=each): each for each in (0, 9)}
        popper = scene.popper(storage=Slow(scene.storage, scene.clock), ageing=timedelta(0))
        came = []
        for _ in range(6):
            found = feed(popper)
            came += [pipes[pipe] for pipe, _ in places(found)]
            commit(found)
            for pipe, priority in pipes.items():
                scene.push(pipe, f"key {priority}")
        assert came == [9] * 6

    def test_tells_of_a_pipe_that_is_over(self, scene):
        pipe = scene.open("foo")
        scene.seal(pipe, 1)
        popper = scene.popper()
        commit(feed(popper))
        scene.clock.seconds += LOOK_S
        feed(popper)
        assert scene.over == [pipe]

    def test_gives_only_types_that_are_asked_for_and_judges_by_all(self, scene):
        refund, invoice = scene.open("foo", kind="refund"), scene.open("foo", "bar", kind="invoice")
        feed(scene.popper("another"))
        popper = scene.popper()
        popper.types = {"invoice"}
        assert refund not in dict(places(feed(popper)))
        assert scene.leased(invoice)

    def test_heeds_no_row_that_is_told_once_it_was_taken_again(self, scene):
        pipe = scene.open("foo")
        popper = scene.popper()
        ((run, _),) = feed(popper)
        told, tell = [], run._on_row_changed
        run._on_row_changed = lambda *rows: told.append(rows)
        run.give_back(Ranges([(1, 1)]), Return())
        scene.clock.seconds += LOOK_S
        feed(popper)  # reads the pipe anew
        assert places(feed(popper)) == [(pipe, 1)]
        other = scene.open("foo", pusher="another pusher")
        assert feed(popper) == []
        tell(*told[0])
        assert feed(popper) == []
        assert scene.leased(pipe) == [1]
        assert scene.leased(other) == [1]  # it is held

    def test_heeds_the_rows_of_one_rollback_together(self, scene):
        # Given a run of three keys that are out, and another message of the second, which is held
        pipe, other = scene.open("a", "foo", "b"), scene.open("foo", pusher="another pusher")
        popper = scene.popper(keys="exclusive")
        came = feed(popper)
        assert places(came) == [(pipe, 1), (pipe, 2), (pipe, 3)]
        let_out, looks = [], []

        def look_between(frame, event, _):
            """Look, as the fetch thread may, at each step of telling the slot of rows."""
            if frame.f_code.co_filename != fenced_pipe.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                looks.append(frame)
                thread = threading.Thread(target=lambda: let_out.extend(popper.feed(10, is_listing=False)))
                thread.start()
                thread.join()
            return look_between

        # When the first one of the run is rolled back, and the popper looks meanwhile
        sys.settrace(look_between)
        try:
            came[0][0].give_back(Ranges([(1, 1)]), Return())
        finally:
            sys.settrace(None)
        # Then the key of the second is busy all the time
        assert looks
        assert (other, 1) not in places(let_out)

    def test_looks_at_pipes_of_other_types_that_keep_its_keys_busy(self, scene):
        scene.open("foo", kind="refund")
        other, popper = scene.popper("another"), scene.popper()
        popper.types = {"invoice"}
        first = feed(other)
        invoice = scene.open("foo", kind="invoice")
        assert feed(popper) == []
        commit(first)
        scene.clock.seconds += 2 * LOOK_S
        assert places(feed(popper) + feed(popper)) == [(invoice, 1)]


class TestWhatIsHeld:
    def test_goes_back_uncounted_when_the_slot_is_given_up(self, scene):
        pipe = scene.open("foo", "foo")
        popper = scene.popper()
        commit(feed(popper))
        popper.let_all_go()
        (run,) = [run for run in scene.storage.load_pipe(pipe).runs if run.first == 2]
        assert (run.state, run.attempts, run.rolled_back) == (RunState.RETURNED, 0, 0)

    def test_is_extended_while_what_was_let_out_of_its_run_is_young(self, scene):
        pipe = scene.open("foo", "foo", "foo")
        popper = scene.popper()
        first = feed(popper)
        scene.clock.seconds += LEASE_S / 2 - 1
        commit(first)
        feed(popper)
        scene.clock.seconds += 2
        (run,) = popper.keep_up()
        assert run.left_s == LEASE_S
        assert scene.leased(pipe) == [1, 2, 3]

    def test_goes_back_where_its_consumer_stops_extending(self, scene):
        pipe = scene.open("foo", "foo")
        popper = scene.popper()
        feed(popper)
        assert popper.is_holding
        scene.clock.seconds += LEASE_S / 2 + 1
        popper.keep_up()
        assert not popper.is_holding
        assert scene.leased(pipe) == [1]

    def test_is_bounded_and_what_came_back_is_taken_all_the_same(self, scene, monkeypatch):
        monkeypatch.setattr(slots, "HELD_MAX", 2)
        pipe = scene.open("foo", "foo", "foo")
        popper = scene.popper()
        ((run, _),) = feed(popper)
        feed(popper)
        run.give_back(Ranges([(1, 1)]), Return())
        assert places(feed(popper)) == [(pipe, 1)]

    def test_stays_where_it_could_not_be_given_back(self, scene):
        pipe = scene.open("foo", "foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        first = feed(popper)
        flaky.fails["transact"] = (StorageUnavailableError("away"), False)
        scene.clock.seconds += LEASE_S / 2 + 1
        popper.keep_up()
        assert popper.is_holding
        flaky.fails.clear()
        commit(first)
        assert places(feed(popper)) == [(pipe, 2)]

    def test_is_not_lost_where_a_take_fails(self, scene):
        pipe = scene.open("foo", "bar")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        assert len(popper.feed(1, is_listing=True)) == 1
        flaky.fails["load_pipe"] = flaky.fails["read_slot"] = (StorageUnavailableError("away"), False)
        assert places(popper.feed(2, is_listing=False)) == [(pipe, 2)]


class TestWhatIsHeldByAll:
    def test_has_an_equal_share_of_each_slot(self, scene, monkeypatch):
        monkeypatch.setattr(slots, "HELD_MAX", 4)
        pipes = [scene.open(*["foo"] * 4, slot=1), scene.open(*["foo"] * 4, slot=2)]
        popper = scene.popper()
        came = [place for _ in range(4) for place in places(feed(popper))]
        assert sorted(came) == sorted((pipe, 1) for pipe in pipes)
        assert [len(scene.leased(pipe)) for pipe in pipes] == [1 + 2, 1 + 2]

    def test_leaves_no_room_where_its_bodies_are_large(self, scene, monkeypatch):
        monkeypatch.setattr(slots, "BUFFER_BYTES_MAX", 1)
        first, second = scene.open("foo", "foo", slot=1), scene.open("foo", slot=2)
        popper = scene.popper()
        came = feed(popper) + feed(popper)
        assert places(came) == [(first, 1)]
        assert scene.leased(second) == []
        commit(came)
        assert places(feed(popper)) == [(first, 2)]
        assert places(feed(popper)) == [(second, 1)]

    def test_is_kept_up_together(self, scene):
        pipes = [scene.open("foo", "foo", slot=1), scene.open("foo", "foo", slot=2)]
        popper = scene.popper()
        feed(popper)
        assert sorted(run.pipe for run in popper.keep_up()) == sorted(pipes)
        assert popper.is_holding


class TestWinning:
    def test_spares_slots_that_have_none_of_its_types(self, scene):
        scene.open("foo", slot=1, kind="refund")
        invoice = scene.open("foo", slot=2, kind="invoice")
        popper = scene.popper()
        popper.types = {"invoice"}
        assert places(feed(popper)) == [(invoice, 1)]
        assert scene.op_of(1) is None
        assert scene.op_of(2) is not None

    def test_waits_after_a_fight_that_was_lost(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.fails["change_slot"] = (None, False)
        feed(popper)
        flaky.fails.clear()
        scene.clock.seconds += POLL_MAX_S - 0.1
        flaky.calls.clear()
        assert feed(popper) == []
        assert "read_slot" not in flaky.calls
        scene.clock.seconds += 0.1
        assert places(feed(popper)) == [(pipe, 1)]

    def test_waits_while_another_has_the_claim_and_leaves_the_row_alone(self, scene):
        pipe = scene.open("foo")
        coordinator = LocalCoordinator(None, scene.clock)
        other, popper = (scene.popper(name, coordinator=coordinator) for name in ("another", "a popper"))
        ((run, _),) = feed(other)
        op = scene.op_of(3)
        assert feed(popper) == []
        assert scene.op_of(3) == op
        run.give_back(Ranges([(1, 1)]), Return())
        other.let_all_go()
        assert feed(popper) == []
        scene.clock.seconds += POLL_MAX_S
        assert places(feed(popper)) == [(pipe, 1)]

    def test_does_not_wait_once_the_popper_was_woken(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.fails["change_slot"] = (None, False)
        feed(popper)
        flaky.fails.clear()
        popper.retry()
        assert places(feed(popper)) == [(pipe, 1)]

    def test_happens_at_a_look_alone(self, scene):
        popper = scene.popper()
        assert feed(popper) == []
        assert not popper.has_any
        pipe = scene.open("foo")
        assert popper.feed(10, is_listing=False) == []
        scene.clock.seconds += LOOK_S
        assert places(popper.feed(10, is_listing=False)) == [(pipe, 1)]
        assert popper.has_any


class TestAnOrderThatIsAltered:
    def test_has_the_slot_won_anew(self, scene):
        older, younger = scene.open(), scene.open("foo", "foo")
        popper = scene.popper(keys="exclusive")
        first = feed(popper)
        assert places(first) == [(younger, 1)]
        assert popper.is_holding
        scene.push(older, "foo")
        popper._context.record.change(lambda found: replace(found, settings=QueueSettings(keys="ordered")))
        commit(first)
        assert places(feed(popper)) == [(older, 1)]
        assert scene.leased(younger) == [1]  # which was committed: the other went back


class TestTrouble:
    def away(self):
        raise StorageUnavailableError("away")

    def test_with_one_slot_keeps_no_other(self, scene):
        scene.open("foo", slot=1)
        pipe = scene.open("foo", slot=2)
        flaky = Flaky(scene.storage)
        flaky.before["load_pipe"] = self.away
        assert places(feed(scene.popper(storage=flaky))) == [(pipe, 1)]

    def test_is_raised_where_nothing_was_found(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.before["load_pipe"] = self.away
        with pytest.raises(StorageUnavailableError):
            feed(popper)
        assert not popper
        assert feed(popper) == []  # it is left alone for a moment
        scene.clock.seconds += BUSY_S
        assert places(feed(popper)) == [(pipe, 1)]

    def test_with_winning_is_raised_where_nothing_was_found(self, scene):
        scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.before["read_slot"] = self.away
        with pytest.raises(StorageUnavailableError):
            feed(popper)
        assert feed(popper) == []

    def test_with_listing_does_not_keep_what_is_held(self, scene):
        pipe = scene.open("foo", "bar")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        popper.feed(1, is_listing=True)
        flaky.before["list_pipes"] = self.away
        assert places(feed(popper)) == [(pipe, 2)]

    def test_with_listing_once_a_slot_was_won_keeps_all_of_it(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.before["change_slot"] = lambda: flaky.before.update(list_pipes=self.away)
        with pytest.raises(StorageUnavailableError):
            feed(popper)
        assert scene.leased(pipe) == []
        assert places(feed(popper)) == [(pipe, 1)]

    def test_with_damage_has_the_slot_rest_for_long(self, scene):
        pipe = scene.open("foo")
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        flaky.fails["read_batches"] = (DecodeError("damaged"), False)
        with pytest.raises(DecodeError):
            feed(popper)
        flaky.fails.clear()
        scene.clock.seconds += REST_S - 0.1
        assert feed(popper) == []
        scene.clock.seconds += 0.1
        assert places(feed(popper)) == [(pipe, 1)]


class TestGivingUp:
    def test_what_is_held_goes_back_once_the_claim_is_gone(self, scene):
        pipe = scene.open("foo", "foo")
        coordinator = LocalCoordinator(None, scene.clock)
        popper = scene.popper(coordinator=coordinator)
        feed(popper)
        (claim,) = coordinator.holders("q")
        coordinator.release("q", claim, "a popper")
        assert popper.keep_up() == []
        assert not popper
        assert scene.leased(pipe) == [1]

    def test_all_frees_the_claims_and_keeps_what_is_out(self, scene):
        pipes = [scene.open("foo", "foo", slot=slot) for slot in range(3)]
        coordinator = LocalCoordinator(None, scene.clock)
        popper = scene.popper(coordinator=coordinator)
        feed(popper)
        popper.let_all_go()
        assert not popper
        assert coordinator.holders("q") == {}
        assert [scene.leased(pipe) for pipe in pipes] == [[1], [1], [1]]

    def test_all_lets_an_error_of_one_keep_no_other(self, scene):
        pipes = [scene.open("foo", "foo", slot=slot) for slot in range(3)]
        flaky = Flaky(scene.storage)
        popper = scene.popper(storage=flaky)
        feed(popper)

        def interrupted():
            raise KeyboardInterrupt

        flaky.before["transact"] = interrupted
        with pytest.raises(KeyboardInterrupt):
            popper.let_all_go()
        assert not popper
        assert sorted(scene.leased(pipe) for pipe in pipes) == [[1], [1], [1, 2]]

    def test_some_passes_slots_without_anything(self, scene):
        scene.open(slot=1)
        scene.open("foo", slot=2)
        popper = scene.popper()
        feed(popper)
        feed(popper)
        assert popper.leave_some() == 0

    def test_some_keeps_the_only_slot_of_one_that_takes_all(self, scene):
        scene.open("foo", "foo")
        popper = scene.popper()
        feed(popper)
        assert popper.leave_some() == 0

    def test_for_a_type_leaves_those_that_have_something_of_it(self, scene):
        for slot, keys in enumerate((["foo"], [])):
            scene.open("foo", kind="invoice", slot=slot)
            scene.open(*keys, kind="refund", slot=slot)
        popper = scene.popper()
        popper.types = {"invoice"}
        feed(popper)
        assert popper.types_there() == ({"invoice"}, {"refund"})
        assert popper.leave_for({"refund"}) == 1
        assert list(popper._won) == [1]

    def test_for_a_type_reads_no_more_often_than_others_look(self, scene):
        scene.open("foo", kind="invoice")
        pipe = scene.open(kind="refund")
        popper = scene.popper()
        popper.types = {"invoice"}
        feed(popper)
        assert popper.leave_for({"refund"}) == 0
        scene.push(pipe, "foo")
        assert popper.leave_for({"refund"}) == 0
        scene.clock.seconds += LOOK_S
        assert popper.leave_for({"refund"}) == 1

    def test_some_leaves_them_to_others_for_long(self, scene):
        scene.open("foo", "foo", kind="invoice")
        scene.open("bar", kind="refund")
        popper = scene.popper()
        popper.types = {"invoice"}
        commit(feed(popper))
        popper.leave_for({"refund"})
        scene.clock.seconds += POLL_MAX_S - 0.1
        assert feed(popper) == []
        scene.clock.seconds += 0.1
        assert len(feed(popper)) == 1


class TestSlots:
    def test_that_are_won_no_more_have_nothing_that_comes_due(self, scene):
        scene.open("foo")
        popper = scene.popper()
        feed(popper)
        assert popper.next_due() == LEASE_S
        popper.let_all_go()
        assert popper.next_due() == float("inf")

    def test_are_half_left_to_the_hungry(self, scene):
        for slot in range(4):
            scene.open("foo", "foo", slot=slot)
        popper = scene.popper()
        assert len(feed(popper)) == 4
        assert popper.leave_some() == 2
        # What waits for its key there came back, and what is out keeps it busy.
        assert len(popper.keep_up()) == 2

    def test_with_nothing_held_are_left_and_others_are_not(self, scene):
        scene.open("foo", slot=1)
        scene.open("foo", "foo", slot=2)
        popper = scene.popper()
        feed(popper)
        popper.leave_empty()
        assert popper.is_holding

    def test_that_cannot_be_listed_tell_why(self, scene):
        scene.open("foo")
        flaky = Flaky(scene.storage)
        flaky.fails["list_pipes"] = (StorageUnavailableError("away"), False)
        with pytest.raises(StorageUnavailableError):
            feed(scene.popper(storage=flaky))
