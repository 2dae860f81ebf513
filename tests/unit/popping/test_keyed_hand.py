"""What was taken of a slot, and waits for its key: what is let out, kept leased, and given back."""

from datetime import timedelta

import pytest
from support.slot_scene import LEASE_S, Flaky, Scene, commit, feed, places

from cassq.errors import DecodeError, StorageUnavailableError
from cassq.limits import RETURN_PARTS_MAX
from cassq.model.pipe import RunState
from cassq.model.ranges import Ranges
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.keyed_hand import AGAIN_MS, KeyedHand
from cassq.popping.timing import IDLE_S

RETURNED = RunState.RETURNED


class HandScene(Scene):
    """A hand, and pipes that it is filled from."""

    def __init__(self, **options):
        super().__init__()
        self.flaky = Flaky(self.storage)
        self.work_with(**options)
        self.pipes = {}

    def work_with(self, **options):
        self.used = self.context(self.flaky, **options)
        self.hand = KeyedHand(self.used, "a popper", is_ordered=self.used.settings.keys == "ordered")

    def take(self, pipe, wanted=100):
        """Take from a pipe, as it was when it was first taken from, and hold what comes."""
        owned = self.pipes.get(pipe) or self.load(pipe)
        result = owned.take(wanted)
        for taken in result.runs:
            ends_at = result.sent_at + self.used.lease.total_seconds()
            run = HeldRun(self.used, owned.entry, taken, ends_at, on_row_changed=owned.note)
            self.hand.hold(run, taken)

    def load(self, pipe):
        (entry,) = [entry for entry in self.entries if entry.pipe == pipe]
        state = self.storage.load_pipe(pipe)
        self.pipes[pipe] = OwnedPipe(self.used, entry, state, Taker("a popper"))
        return self.pipes[pipe]

    def let_out(self, wanted=10):
        return self.hand.let_out(self.pipes.values(), wanted)

    def take_by_another(self, pipe):
        """Have another popper work on what is in a pipe."""
        assert feed(self.popper("another"))
        self.load(pipe)

    def row(self, pipe, first):
        (run,) = [run for run in self.storage.load_pipe(pipe).runs if run.first == first]
        return run


@pytest.fixture
def scene():
    made = HandScene()
    yield made
    made.storage.close()


def back(fetched):
    for run, taken in fetched:
        assert run.give_back(Ranges((part.first, part.last) for part in taken.parts), Return())


class TestAKey:
    @pytest.mark.parametrize("keys", ["ordered", "exclusive"])
    def test_that_somebody_else_works_on_is_busy(self, scene, keys):
        scene.work_with(keys=keys)
        theirs = scene.open("foo", pusher="another pusher")
        scene.take_by_another(theirs)
        mine = scene.open("foo", "bar")
        scene.take(mine)
        assert places(scene.let_out()) == [(mine, 2)]

    def test_is_free_once_what_was_let_out_is_committed(self, scene):
        pipe = scene.open("foo", "foo")
        scene.take(pipe)
        first = scene.let_out()
        assert places(first) == [(pipe, 1)]
        assert scene.let_out() == []
        commit(first)
        assert places(scene.let_out()) == [(pipe, 2)]

    def test_is_not_another_popper_s_while_a_dead_letter_is_written(self, scene):
        pipe = scene.open("foo", "foo")
        scene.take(pipe)
        ((run, taken),) = scene.let_out()
        meanwhile = []

        def look():
            assert scene.let_out() == []
            meanwhile.append(scene.row(pipe, 2).state)

        scene.flaky.before["change_dead"] = look
        ((seq, *_),) = messages = list(taken.messages)
        assert run.give_back(Ranges([(seq, seq)]), Return(reason="no", is_last=True), messages)
        # What waits for it was not given back, and has its turn at once
        assert meanwhile == [RunState.LEASED]
        assert places(scene.let_out()) == [(pipe, 2)]

    def test_of_what_came_back_is_free_for_other_sources_alone(self, scene):
        mine, others = scene.open("foo", "foo"), scene.open("foo", pusher="another pusher")
        scene.take(mine)
        first = scene.let_out()
        scene.take(others)
        back(first)
        assert places(scene.let_out()) == [(others, 1)]

    def test_of_what_came_back_is_free_for_all_where_order_is_not_asked_for(self, scene):
        scene.work_with(keys="exclusive")
        pipe = scene.open("foo", "foo")
        scene.take(pipe)
        back(scene.let_out())
        assert places(scene.let_out()) == [(pipe, 2)]

    def test_stays_busy_where_its_lease_ended_before_it_was_let_out(self, scene):
        scene.work_with(keys="exclusive")
        late, young = scene.open("foo"), scene.open("foo", pusher="another pusher")
        scene.take(late)
        scene.clock.seconds += LEASE_S
        scene.take(young)
        assert scene.let_out() == []
        assert scene.let_out() == []

    def test_that_cannot_be_read_lets_nothing_out_and_what_is_held_stays(self, scene):
        theirs = scene.open("foo", pusher="another pusher")
        scene.take_by_another(theirs)
        mine = scene.open("bar")
        scene.take(mine)
        scene.flaky.fails["read_batches"] = (DecodeError("gone"), False)
        with pytest.raises(DecodeError):
            scene.let_out()
        scene.flaky.fails.clear()
        assert places(scene.let_out()) == [(mine, 1)]

    def test_of_others_is_read_once(self, scene):
        theirs = scene.open("foo", pusher="another pusher")
        scene.take_by_another(theirs)
        mine = scene.open("bar", "bar", "bar")
        scene.take(mine)
        scene.flaky.calls.clear()
        scene.let_out()
        scene.let_out()
        assert scene.flaky.calls == ["read_batches"]


class TestLettingOut:
    def test_stops_at_what_is_wanted(self, scene):
        pipe = scene.open("foo", "bar", "baz")
        scene.take(pipe)
        assert places(scene.let_out(2)) == [(pipe, 1), (pipe, 2)]
        assert scene.let_out(0) == []
        assert places(scene.let_out(2)) == [(pipe, 3)]

    def test_of_nothing_asks_for_nothing(self, scene):
        theirs = scene.open("foo")
        scene.take_by_another(theirs)
        scene.flaky.calls.clear()
        assert scene.let_out() == []
        assert scene.flaky.calls == []


class TestWhatWaitsForSomebodyElse:
    @pytest.fixture
    def mine(self, scene):
        """A pipe of one that does, which is held."""
        theirs = scene.open("foo", pusher="another pusher")
        scene.take_by_another(theirs)
        mine = scene.open("foo")
        scene.take(mine)
        return mine

    def test_goes_back_uncounted_and_rests(self, scene, mine):
        assert scene.let_out() == []
        row = scene.row(mine, 1)
        assert (row.state, row.attempt, row.rolled_back) == (RETURNED, 0, 0)
        assert row.not_before_ms == scene.storage.load_pipe(mine).now_ms + AGAIN_MS
        assert not scene.hand

    def test_is_taken_again_after_half_a_second(self, scene, mine):
        scene.let_out()
        scene.take(mine)
        assert not scene.hand
        scene.clock.seconds += 0.5
        scene.take(mine)
        assert len(scene.hand) == 1

    def test_goes_back_in_transactions_that_the_database_takes(self, scene, monkeypatch):
        scene.take_by_another(scene.open("foo", pusher="another pusher"))
        mine = scene.open(*(key for number in range(100) for key in ("foo", f"{number}")))
        scene.take(mine, 200)
        changed, transact = [], scene.storage.transact

        def note(pipe, transaction):
            changed.append(len(transaction.runs))
            return transact(pipe, transaction)

        monkeypatch.setattr(scene.storage, "transact", note)
        assert len(scene.let_out(200)) == 100
        assert scene.leased(mine) == list(range(2, 201, 2))
        assert max(changed) <= 2 * RETURN_PARTS_MAX + 1

    def test_stays_where_it_could_not_be_given_back(self, scene, mine):
        scene.flaky.fails["transact"] = (StorageUnavailableError("away"), False)
        assert scene.let_out() == []
        assert scene.leased(mine) == [1]
        assert len(scene.hand) == 1


class TestKeepingUp:
    def hold(self, scene, *, out=1):
        """Take messages of one key, and let out some of them, one after the other; return their pipe."""
        pipe = scene.open("foo", "foo", "foo")
        scene.take(pipe)
        for _ in range(out):
            scene.let_out()
        return pipe

    def left_s(self, scene):
        (run,) = scene.hand.runs()
        return run.left_s

    def test_extends_a_lease_once_half_of_it_is_over(self, scene):
        self.hold(scene, out=0)
        scene.clock.seconds += LEASE_S / 2
        scene.hand.keep_up()
        assert self.left_s(scene) == LEASE_S / 2
        scene.clock.seconds += 0.5
        scene.hand.keep_up()
        assert self.left_s(scene) == LEASE_S

    def test_extends_while_what_was_let_out_of_the_run_is_young(self, scene):
        pipe = self.hold(scene, out=0)
        scene.clock.seconds += LEASE_S / 2 + 0.5
        scene.let_out()
        scene.hand.keep_up()
        assert self.left_s(scene) == LEASE_S
        assert scene.leased(pipe) == [1, 2, 3]

    def test_gives_back_uncounted_after_half_a_lease_of_silence(self, scene):
        pipe = self.hold(scene)
        scene.clock.seconds += LEASE_S / 2 + 0.5
        scene.hand.keep_up()
        assert not scene.hand
        assert scene.leased(pipe) == [1]
        row = scene.row(pipe, 2)
        assert (row.state, row.attempt, row.rolled_back) == (RETURNED, 0, 0)
        assert row.not_before_ms == 0

    def test_extends_a_run_of_which_nobody_is_silent(self, scene):
        silent, other = self.hold(scene), scene.open("bar", "bar")
        scene.take(other)
        scene.clock.seconds += LEASE_S / 2 + 0.5
        scene.hand.keep_up()
        assert scene.leased(silent) == [1]
        assert [run.pipe for run in scene.hand.runs()] == [other]
        assert self.left_s(scene) == LEASE_S

    def test_gives_back_soon_what_may_expire(self, scene):
        lease_s = 60.0
        scene.work_with(lease=timedelta(seconds=lease_s), ttl=timedelta(hours=1))
        pipe = self.hold(scene)
        scene.clock.seconds += IDLE_S
        scene.hand.keep_up()
        assert scene.leased(pipe) == [1, 2, 3]
        scene.clock.seconds += 0.5
        scene.hand.keep_up()
        assert scene.leased(pipe) == [1]

    def test_gives_back_what_may_expire_before_half_of_a_short_lease_is_left(self, scene):
        scene.work_with(ttl=timedelta(hours=1))
        pipe = self.hold(scene, out=0)
        scene.clock.seconds += LEASE_S / 2
        scene.hand.keep_up()
        assert scene.leased(pipe) == [1, 2, 3]
        scene.clock.seconds += 0.5
        scene.hand.keep_up()
        assert scene.leased(pipe) == []

    def test_tries_again_where_the_extension_failed(self, scene):
        self.hold(scene, out=0)
        scene.clock.seconds += LEASE_S / 2 + 0.5
        scene.flaky.fails["transact"] = (StorageUnavailableError("away"), False)
        scene.hand.keep_up()
        assert self.left_s(scene) == LEASE_S / 2 - 0.5
        scene.flaky.fails.clear()
        scene.hand.keep_up()
        assert self.left_s(scene) == LEASE_S

    def test_asks_for_nothing_where_the_lease_has_ended(self, scene):
        self.hold(scene)
        scene.clock.seconds += LEASE_S
        scene.flaky.calls.clear()
        scene.hand.keep_up()
        assert scene.flaky.calls == []


class TestTheLastAttempt:
    def test_is_held_for_nobody(self, scene):
        scene.work_with(max_attempts=2)
        pipe = scene.open("foo", "foo", "bar")
        scene.take_by_another(pipe)
        scene.clock.seconds += LEASE_S + 1
        scene.load(pipe)
        scene.take(pipe)
        assert places(scene.let_out()) == [(pipe, 1), (pipe, 3)]
        row = scene.row(pipe, 2)
        assert (row.state, row.attempts, row.rolled_back) == (RunState.RETURNED, 1, 0)

    def test_is_held_where_each_is_the_last(self, scene):
        scene.work_with(max_attempts=1)
        pipe = scene.open("foo", "foo")
        scene.take(pipe)
        assert places(scene.let_out()) == [(pipe, 1)]
        assert scene.leased(pipe) == [1, 2]


class TestForgetting:
    def test_a_pipe_drops_what_is_held_of_it_and_nothing_else(self, scene):
        gone, other = scene.open("foo", "foo", "foo"), scene.open("bar", "bar")
        scene.take(gone)
        scene.take(other)
        assert len(scene.let_out()) == 2
        scene.hand.forget(gone)
        del scene.pipes[gone]
        assert [run.pipe for run in scene.hand.runs()] == [other]
        assert scene.let_out() == []

    def test_a_pipe_has_it_know_of_no_lease_of_its_own_there(self, scene):
        pipe = scene.open("foo")
        scene.take(pipe)
        owned = scene.pipes[pipe]
        assert not scene.hand.has_foreign(owned)
        scene.hand.forget(pipe)
        assert scene.hand.has_foreign(owned)


class TestSize:
    def test_counts_each_batch_once(self, scene):
        pipe = scene.open("foo", "foo", "bar")
        scene.push(pipe, "baz", "baz")
        batches = [part for _, taken in self.of(scene, pipe) for part in taken.parts]
        assert scene.hand.size == sum(batch.size for batch in batches)
        assert len(batches) == 2

    def test_counts_a_batch_while_any_of_it_is_held(self, scene):
        pipe = scene.open("foo", "foo")
        scene.take(pipe)
        before = scene.hand.size
        first = scene.let_out()
        assert scene.hand.size == before > 0
        commit(first)
        scene.let_out()
        assert scene.hand.size == 0

    def of(self, scene, pipe):
        """Take, and return what was held."""
        held, hold = [], scene.hand.hold
        scene.hand.hold = lambda run, taken: (held.append((run, taken)), hold(run, taken))
        scene.take(pipe)
        return held


class TestGivingAllBack:
    def test_leaves_what_was_let_out(self, scene):
        pipe = scene.open("foo", "foo", "bar", "bar")
        scene.take(pipe)
        scene.let_out()
        scene.hand.give_all_back()
        assert not scene.hand
        assert scene.leased(pipe) == [1, 3]
        assert [scene.row(pipe, first).attempt for first in (2, 4)] == [0, 0]

    def test_drops_what_the_lease_of_which_has_ended(self, scene):
        scene.take(scene.open("foo"))
        scene.clock.seconds += LEASE_S
        scene.hand.give_all_back()
        assert not scene.hand
