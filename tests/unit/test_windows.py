"""Windows, step by step: what their holder hands out, and what others may do meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from cassq import care, windows
from cassq.clock import SystemClock
from cassq.errors import DeliveryExpiredError, OutcomeUnknownError, StorageUnavailableError
from cassq.held_run import HeldRun, Return
from cassq.inspection import Inspection
from cassq.lane import Lane
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.stretches import Stretches
from cassq.model.taking import Taken
from cassq.model.transaction import Seal, Transaction
from cassq.observation import find_pushed
from cassq.owned_pipe import OwnedPipe
from cassq.pipe_supply import OpenPipe
from cassq.process import Birthplace
from cassq.storage.port import BatchQuery
from cassq.storage.sqlite import SqliteStorage
from cassq.waiting_reader import FIRST_LIMIT

SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))


class HandClock(SystemClock):
    """Stands until somebody moves it; the owner's clock and the database's are the same."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def time(self) -> float:
        return 1_700_000_000 + self.seconds


class Scene:
    """A pipe in a store, and owners of it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.entry = PipeEntry(new_pipe_id(), "a pusher")
        self.pipe = self.entry.pipe
        self.storage.create_pipe("q", self.entry, Head(new_token()))
        self.pushed = 0
        self.transactions = 0
        transact = self.storage.transact

        def counted(pipe, transaction):
            self.transactions += 1
            return transact(pipe, transaction)

        self.storage.transact = counted

    def push(self, count=1):
        self.storage.append(self.pipe, Batch(self.pushed + 1, (b"body",) * count, None, count))
        self.pushed += count

    def own(self, holder="a popper"):
        state = self.storage.load_pipe(self.pipe)
        return OwnedPipe(
            self.storage, "q", self.entry, state, settings=SETTINGS, holder=holder, clock=self.clock
        )

    def seal(self, last, **how):
        return self.storage.transact(self.pipe, Transaction(Seal(last, **how)))

    @property
    def state(self):
        return self.storage.load_pipe(self.pipe)

    @property
    def rows(self):
        return [(run.first, run.last, run.window_ms > 0) for run in self.state.runs]


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


def numbers(loot):
    return [seq for taken in loot.runs for seq, *_ in taken.messages]


@pytest.fixture
def holder(scene):
    """An owner with a window of which message 1 was handed out."""
    scene.push()
    owned = scene.own()
    assert numbers(owned.take(10, is_flowing=True)) == [1]
    assert owned.window
    return owned


def test_what_comes_is_handed_out_without_a_transaction(scene, holder):
    begun = scene.transactions
    for number in range(2, 30):
        scene.push()
        assert numbers(holder.take(10, is_flowing=True)) == [number]

    assert scene.transactions == begun
    assert scene.rows == [(1, windows.WINDOW_MESSAGES, True)]
    assert scene.state.head.is_window_out


def test_a_slow_flow_gets_no_window(scene):
    scene.push()
    owned = scene.own()

    assert numbers(owned.take(10)) == [1]

    assert owned.window is None
    assert scene.state.head.cursor == 1


def test_no_window_begins_while_more_waits_than_was_read(scene):
    for _ in range(2 * FIRST_LIMIT):
        scene.push()
    owned = scene.own()

    assert numbers(owned.take(2, is_flowing=True)) == [1, 2]

    assert owned.window is None


def test_a_renewal_ends_the_run_and_begins_the_next(scene, holder):
    first = holder.window
    scene.clock.seconds += 0.6
    scene.push(2)

    assert numbers(holder.take(10, is_flowing=True)) == [2, 3]

    assert scene.rows == [(1, 1, False), (2, 1 + windows.WINDOW_MESSAGES, True)]
    assert holder.window is not first
    assert first.wait_end(scene.clock, 0.0) == 1


def test_a_renewal_of_what_was_all_committed_raises_the_floor(scene, holder):
    marks = [Mark(1, 1, End.COMMITTED)]
    scene.storage.mark(scene.pipe, marks)
    holder.note(*marks)
    scene.clock.seconds += 0.6
    scene.push()
    holder.take(10, is_flowing=True)

    assert scene.state.head.floor == 1


def test_nothing_is_handed_out_when_the_time_is_over(scene, holder):
    window = holder.window
    scene.push()
    scene.clock.seconds += windows.WINDOW_MS / 1000

    loot = holder.take(10)

    # By an ordinary take, behind the cut.
    assert numbers(loot) == [2]
    assert loot.window is None
    assert window.wait_end(scene.clock, 0.0) == 1
    assert scene.rows == [(1, 1, False), (2, 2, False)]
    assert scene.state.head.cursor == 2


def test_nothing_is_handed_out_behind_the_last_number(scene, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_MESSAGES", 3)
    scene.push()
    owned = scene.own()
    owned.take(10, is_flowing=True)
    scene.push(5)

    assert numbers(owned.take(10)) == [2, 3]
    assert numbers(owned.take(10)) == [4, 5, 6]
    assert scene.rows == [(1, 3, False), (4, 6, False)]


def test_a_window_of_which_nothing_was_handed_out_leaves_no_run(scene, monkeypatch):
    scene.push()
    owned = scene.own()
    monkeypatch.setattr(windows, "hand_out", lambda *_: None)
    assert numbers(owned.take(10, is_flowing=True)) == []
    monkeypatch.undo()

    assert windows.cut(owned)
    assert (scene.rows, scene.state.head.cursor) == ([], 0)
    assert numbers(owned.take(10)) == [1]
    assert scene.rows == [(1, 1, False)]


def test_another_owner_leaves_a_window_alone_until_it_is_over(scene, holder):
    scene.push(2)
    other = scene.own("another")
    scene.clock.seconds += (windows.WINDOW_MS + 400) / 1000
    assert other.look()

    assert numbers(other.take(10)) == []
    assert not windows.take_over(other)
    assert care.purge(other) is None
    assert scene.state.head.is_window_out


def test_another_owner_cuts_what_is_over_behind_the_newest_batch_and_keeps_its_lease(scene, holder):
    scene.push(2)
    leased_at_ms = scene.state.window.leased_at_ms
    scene.clock.seconds += (windows.WINDOW_MS + 600) / 1000
    other = scene.own("another")
    scene.push()

    assert numbers(other.take(10)) == []  # up to 4 it may all be in somebody's hands

    (run,) = scene.state.runs
    assert (run.first, run.last, run.window_ms, run.leased_at_ms) == (1, 4, 0, leased_at_ms)
    scene.push()
    assert numbers(other.take(10)) == [5]
    assert holder.take(10) is None
    scene.clock.seconds += 8.2  # lease, window and margin are over; what was taken as 5 is still out
    assert other.look()
    assert numbers(other.take(10)) == [1, 2, 3, 4]


def test_a_holder_that_reads_the_pipe_again_knows_how_far_it_is(scene, holder):
    scene.push(2)
    assert numbers(holder.take(2)) == [2, 3]
    assert holder.look()
    scene.push()

    assert numbers(holder.take(10)) == [4]


def test_a_pusher_seals_behind_its_last_number_whatever_is_out(scene, holder):
    scene.push()

    assert not scene.seal(2).is_applied
    assert scene.seal(2, is_free=True).is_applied

    assert holder.look()
    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None
    assert holder.is_exhausted
    assert scene.rows == [(1, 1, False), (2, 2, False)]


def test_a_renewal_that_a_seal_refused_becomes_a_cut(scene, holder):
    scene.push()
    scene.seal(2, is_free=True)
    scene.clock.seconds += 0.6

    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert scene.state.head.cursor == 2


def test_who_knocks_gets_the_window_cut_and_none_begins_for_a_while(scene, holder):
    windows.knock(scene.own("a purge"))
    scene.clock.seconds += 0.6
    scene.push()

    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [3]
    assert holder.window is None
    scene.clock.seconds += windows.SHY_S
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [4]
    assert holder.window


def test_people_see_what_was_pushed_into_a_window_as_handed_out(scene, holder):
    scene.push(2)
    state = scene.state

    seen = state.seen_at(find_pushed(scene.storage, scene.pipe, state.head))

    assert (seen.head.cursor, seen.window) == (3, None)
    assert [(run.first, run.last) for run in seen.runs] == [(1, 3)]
    assert replace(seen, head=state.head, runs=state.runs) == state


def test_a_forced_seal_ends_the_window_at_the_next_take(scene, holder):
    other = scene.own("another")
    assert care.seal(other)
    assert scene.state.head.phase is Phase.SEALED
    assert care.drain(other)
    assert not scene.state.head.is_decided
    scene.push()
    assert holder.look()

    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None


def test_a_purge_brings_a_window_to_its_end(scene, holder, monkeypatch):
    scene.push(2)
    inspection = Inspection(scene.storage, "q", SETTINGS, scene.clock)

    def wait(condition, seconds):
        scene.clock.seconds += seconds

    monkeypatch.setattr(scene.clock, "wait", wait)

    assert inspection.purge() == 0  # up to 3 all of it may be in the popper's hands

    assert not scene.state.head.is_window_out
    assert scene.rows == [(1, 3, False)]


class TestAConsumerOfAWindow:
    """Rolls back and extends: of a window that is out, has ended, or ended nobody knows where."""

    @pytest.fixture
    def held(self, scene, holder):
        told = []
        taken = replace(plan_of(scene), run=holder.window.run)
        return HeldRun(
            scene.storage,
            scene.pipe,
            taken,
            scene.clock.now() + 9,
            clock=scene.clock,
            told=told.append,
            birthplace=Birthplace(),
            window=holder.window,
        )

    def test_a_rollback_waits_for_the_end_and_then_splits_the_row(self, scene, holder, held):
        scene.push(2)
        held.grow(holder.take(10).runs[0])
        assert windows.cut(holder)

        assert held.give_back(Stretches([(2, 2)]), Return())

        assert [(run.first, run.last, run.state.value) for run in scene.state.runs] == [
            (1, 1, "leased"),
            (2, 2, "returned"),
            (3, 3, "leased"),
        ]

    def test_the_end_is_asked_for_once(self, scene, holder, held):
        asked = []
        holder.window._asked = lambda: asked.append(windows.cut(holder))

        held.extend()
        held.extend()

        assert asked == [True]
        assert scene.rows == [(1, 1, False)]

    def test_where_nobody_knows_the_end_it_is_told_what_stands(self, scene, holder, held):
        holder.window.lose()

        assert not held.give_back(Stretches([(1, 1)]), Return())
        with pytest.raises(StorageUnavailableError, match="the old lease stands"):
            held.extend()
        held.commit(Stretches([(1, 1)]))
        assert scene.state.marks == (Mark(1, 1, End.COMMITTED),)

    def test_an_end_that_does_not_come_is_waited_for_as_long_as_the_lease(self, scene, held, monkeypatch):
        def wait(condition, seconds):
            scene.clock.seconds += seconds

        monkeypatch.setattr(scene.clock, "wait", wait)

        with pytest.raises(DeliveryExpiredError):
            held.extend()
        assert not held.give_back(Stretches([(1, 1)]), Return())


def plan_of(scene):
    (batch,) = scene.storage.read_batches(scene.pipe, BatchQuery(limit=1))
    return Taken(scene.state.window, (batch,), (1,))


class TestAPusherThatMustSettle:
    """A push whose outcome is unknown, in a pipe of which a popper holds a window."""

    @pytest.fixture
    def settle(self, scene, monkeypatch):
        """Settle behind message 1; `meanwhile` is called at every wait."""

        def settled(meanwhile=lambda: None):
            def wait(condition, seconds):
                scene.clock.seconds += seconds
                meanwhile()

            monkeypatch.setattr(scene.clock, "wait", wait)
            with ThreadPoolExecutor(1) as executor:
                lane = Lane(
                    scene.storage,
                    "q",
                    SETTINGS,
                    host=Host(),
                    pusher="a pusher",
                    number=0,
                    executor=executor,
                    clock=scene.clock,
                )
                return lane._settle(OpenPipe(scene.pipe, scene.clock.now(), acked=1), 1, [])

        return settled

    def test_cuts_the_window_of_a_popper_that_died_behind_what_landed(self, scene, holder, settle):
        scene.push(2)
        begun = scene.clock.now()

        assert settle() == 3

        assert scene.state.head.last == 3
        assert scene.rows == [(1, 3, False)]
        assert scene.clock.now() > begun + windows.WINDOW_MS / 1000

    def test_learns_that_a_batch_that_never_landed_did_not_happen(self, scene, holder, settle):
        assert settle() == 1

        assert scene.state.head.last == 1

    def test_seals_by_force_so_that_the_holder_cuts_its_window(self, scene, holder, settle):
        begun = scene.clock.now()

        def look_and_take():
            holder.look()
            holder.take(10, is_flowing=True)

        assert settle(look_and_take) == 1

        assert holder.window is None
        assert scene.clock.now() < begun + windows.WINDOW_MS / 1000
        scene.push(2)
        assert holder.look()
        assert numbers(holder.take(10, is_flowing=True)) == []  # it lands behind the end


class Host:
    """A pusher that is open and expires nothing."""

    def check_open(self):
        pass

    def note_pushed(self, count):
        pass

    def expire(self):
        pass


def test_a_begin_that_lost_its_reply_is_known_by_what_stands(scene, monkeypatch):
    scene.push()
    owned = scene.own()
    transact = scene.storage.transact

    def lost(pipe, transaction):
        transact(pipe, transaction)
        monkeypatch.undo()
        windows.knock(scene.own("another"))
        raise OutcomeUnknownError("the reply is lost")

    monkeypatch.setattr(scene.storage, "transact", lost)

    assert numbers(owned.take(10, is_flowing=True)) == [1]

    assert owned.window
    assert windows.cut(owned)
    assert scene.rows == [(1, 1, False)]


def test_a_cut_that_others_met_is_tried_again(scene, holder):
    windows.knock(scene.own("another"))

    assert windows.cut(holder)

    assert scene.state.head.cursor == 1
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None  # somebody wanted to come between


def test_a_pipe_in_anothers_window_counts_as_empty(scene, holder):
    scene.push()
    other = scene.own("another")
    assert numbers(other.take(10)) == []

    assert not other.may_have_more
