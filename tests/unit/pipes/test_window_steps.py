"""Windows, step by step: what their holder hands out, and what others may do meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.errors import DeliveryExpiredError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import Source, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry
from cassq.model.progress import Progress
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.take_plan import Taken
from cassq.model.transaction import Seal, Transaction
from cassq.observing.purging import Purging
from cassq.pipes import upkeep, window_steps
from cassq.pipes.batch_reader import FIRST_LIMIT
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.outside_view import find_pushed
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.commits import commit_run
from cassq.pushing.callers import Callers
from cassq.pushing.lane import Lane
from cassq.pushing.pipe_rotation import OpenPipe
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage

#: By the hand clock: longer than any window and lease.
PATIENCE_S = 60.0

SETTINGS = QueueSettings(lease=timedelta(seconds=8), clock_skew_max=timedelta(milliseconds=500))


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
        return OwnedPipe(context_of(self.storage, SETTINGS, self.clock), self.entry, state, Taker(holder))

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


def numbers(result):
    return [seq for taken in result.runs for seq, *_ in taken.messages]


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
    assert scene.rows == [(1, window_steps.WINDOW_MESSAGES, True)]
    assert scene.state.head.is_window_out


def test_nothing_is_handed_out_of_a_window_once_a_witness_says_that_it_is_over(scene, holder):
    # Given a message that was pushed into a window whose holder was paused
    scene.push()
    scene.clock.missed += window_steps.WINDOW_MS / 1000
    # When it asks, then the window is cut before that is handed out: for those who know where it ended
    begun = scene.transactions
    assert numbers(holder.take(10)) == [2]
    assert scene.transactions == begun + 2
    assert holder.window is None


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

    assert scene.rows == [(1, 1, False), (2, 1 + window_steps.WINDOW_MESSAGES, True)]
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
    scene.clock.seconds += window_steps.WINDOW_MS / 1000

    result = holder.take(10)

    # By an ordinary take, behind the cut.
    assert numbers(result) == [2]
    assert result.window is None
    assert window.wait_end(scene.clock, 0.0) == 1
    assert scene.rows == [(1, 1, False), (2, 2, False)]
    assert scene.state.head.cursor == 2


def test_nothing_is_handed_out_whose_read_outlasted_the_window(scene, holder, monkeypatch):
    scene.push()
    read_batches = scene.storage.read_batches

    def slow(pipe, query):
        found = read_batches(pipe, query)
        scene.clock.seconds += window_steps.WINDOW_MS / 1000
        return found

    monkeypatch.setattr(scene.storage, "read_batches", slow)

    result = holder.take(10)

    assert (numbers(result), result.window) == ([2], None)  # by an ordinary take, behind the cut


def test_nothing_is_handed_out_behind_the_last_number(scene, monkeypatch):
    monkeypatch.setattr(window_steps, "WINDOW_MESSAGES", 3)
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
    monkeypatch.setattr(window_steps, "hand_out", lambda *_: None)
    assert numbers(owned.take(10, is_flowing=True)) == []
    monkeypatch.undo()

    assert window_steps.cut(owned)
    assert (scene.rows, scene.state.head.cursor) == ([], 0)
    assert numbers(owned.take(10)) == [1]
    assert scene.rows == [(1, 1, False)]


def test_another_owner_leaves_a_window_alone_until_it_is_over(scene, holder):
    scene.push(2)
    other = scene.own("another")
    scene.clock.seconds += (window_steps.WINDOW_MS + 400) / 1000
    assert other.look()

    assert numbers(other.take(10)) == []
    assert not window_steps.take_over(other)
    assert upkeep.purge(other) is None
    assert scene.state.head.is_window_out


def test_another_owner_cuts_what_is_over_behind_the_newest_batch_and_keeps_its_lease(scene, holder):
    scene.push(2)
    leased_at_ms = scene.state.window.leased_at_ms
    scene.clock.seconds += (window_steps.WINDOW_MS + 600) / 1000
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


def test_another_owner_sees_what_was_pushed_until_the_window_was_over(scene, holder):
    # Given another owner, which looked at the pipe before the holder handed out more
    other = scene.own("another")
    assert numbers(other.take(10)) == []
    scene.push(2)
    assert numbers(holder.take(10)) == [2, 3]
    # When the window is over, then it cuts behind that
    scene.clock.seconds += (window_steps.WINDOW_MS + 600) / 1000
    assert other.look()
    assert numbers(other.take(10)) == []
    assert scene.rows == [(1, 3, False)]


def test_what_a_window_ended_in_the_middle_of_is_handed_out_behind_it(scene, monkeypatch):
    # Given a window of a dead popper, and a batch that reaches over its last number
    monkeypatch.setattr(window_steps, "WINDOW_MESSAGES", 4)
    scene.push()
    assert numbers(scene.own("a popper that dies").take(10, is_flowing=True)) == [1]
    scene.push(6)
    # When another owner takes it over
    scene.clock.seconds += window_steps.WINDOW_MS / 1000 + 1
    # Then it may have been handed out up to there, and was not behind that
    assert numbers(scene.own("another").take(10)) == [5, 6, 7]
    assert scene.rows == [(1, 4, False), (5, 7, False)]


def test_no_lease_is_ended_beside_a_window(scene):
    # Given a lease of a dead popper, and the window of one that lives
    scene.push()
    assert numbers(scene.own("a popper that dies").take(1)) == [1]
    scene.clock.seconds += SETTINGS.lease.total_seconds()
    scene.push()
    holder = scene.own("a popper")
    assert numbers(holder.take(10, is_flowing=True)) == [2]
    # When the lease has run out, and the window has not
    scene.clock.seconds += SETTINGS.clock_skew_max.total_seconds() + 0.1
    reaper = scene.own("a reaper")
    assert [run.first for run in reaper.expired()] == [1]
    assert upkeep.return_expired(reaper) == 0
    # Then its holder goes on
    assert scene.rows == [(1, 1, False), (2, window_steps.WINDOW_MESSAGES + 1, True)]
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [3]


def test_no_pipe_is_drained_beside_a_window(scene):
    # Given a window of which nothing was handed out yet
    scene.push()
    owned = scene.own()
    assert numbers(owned.take(10)) == [1]
    assert window_steps.begin(owned)
    # When somebody takes its pusher for dead, then the pipe goes on for as long as the window
    other = scene.own("another")
    assert upkeep.seal(other)
    assert upkeep.drain(other)
    assert not scene.state.head.is_decided


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
    window_steps.knock(scene.own("a purge"))
    scene.clock.seconds += 0.6
    scene.push()

    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [3]
    assert holder.window is None
    scene.clock.seconds += window_steps.SHY_S
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [4]
    assert holder.window


def test_what_was_cancelled_before_a_window_is_no_popped_message_of_it(scene):
    scene.push(3)
    scene.storage.mark(scene.pipe, [Mark(1, 1, End.PURGED), Mark(3, 3, End.MOVED, new_pipe_id())])
    holder = scene.own()
    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window
    # Until the window ends its row shows nothing of what was handed out
    state = scene.state
    seen = state.seen_at(find_pushed(scene.storage, scene.pipe, state.head))
    assert Progress(seen).tally(3).popped == 1

    scene.clock.seconds += (window_steps.WINDOW_MS + 600) / 1000
    other = scene.own("another")
    assert window_steps.take_over(other)

    assert Progress(scene.state).tally(3).popped == 1
    assert (scene.state.head.cursor, scene.state.head.skipped) == (3, 2)


def test_people_see_what_was_pushed_into_a_window_as_handed_out(scene, holder):
    scene.push(2)
    state = scene.state

    seen = state.seen_at(find_pushed(scene.storage, scene.pipe, state.head))

    assert (seen.head.cursor, seen.window) == (3, None)
    assert [(run.first, run.last) for run in seen.runs] == [(1, 3)]
    assert replace(seen, head=state.head, runs=state.runs) == state


def test_a_forced_seal_ends_the_window_at_the_next_take(scene, holder):
    other = scene.own("another")
    assert upkeep.seal(other)
    assert scene.state.head.phase is Phase.SEALED
    assert upkeep.drain(other)
    assert not scene.state.head.is_decided
    scene.push()
    assert holder.look()

    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None


def test_a_purge_brings_a_window_to_its_end(scene, holder, monkeypatch):
    scene.push(2)
    purging = Purging(context_of(scene.storage, SETTINGS, scene.clock))

    def wait(condition, seconds):
        scene.clock.seconds += seconds

    monkeypatch.setattr(scene.clock, "wait", wait)

    assert purging.purge() == 0  # up to 3 all of it may be in the popper's hands

    assert not scene.state.head.is_window_out
    assert scene.rows == [(1, 3, False)]


class TestAConsumerOfAWindow:
    """Rolls back and extends: of a window that is out, has ended, or ended nobody knows where."""

    @pytest.fixture
    def held(self, scene, holder):
        told = []
        taken = replace(plan_of(scene), run=holder.window.run)
        held = HeldRun(
            context_of(scene.storage, SETTINGS, scene.clock),
            scene.entry,
            taken,
            scene.clock.now() + 9,
            on_row_changed=lambda *notes: told.extend(notes),
        )
        held.be_of(holder.window)
        return held

    def test_a_rollback_waits_for_the_end_and_then_splits_the_row(self, scene, holder, held):
        scene.push(2)
        held.grow(holder.take(10).runs[0])
        assert window_steps.cut(holder)

        assert held.give_back(Ranges([(2, 2)]), Return())

        assert [(run.first, run.last, run.state.value) for run in scene.state.runs] == [
            (1, 1, "leased"),
            (2, 2, "returned"),
            (3, 3, "leased"),
        ]

    def test_it_is_known_while_its_window_is_out(self, scene, holder, held):
        # Whoever keeps up its lease, and ends windows, has to end this one first: an extension waits for that
        assert held.is_window_out
        assert window_steps.cut(holder)
        assert not held.is_window_out

    def test_a_window_that_is_lost_is_not_out(self, holder, held):
        holder.window.lose()
        assert not held.is_window_out

    def test_the_end_is_asked_for_once(self, scene, holder, held):
        asked = []
        holder.window._on_end_asked = lambda: asked.append(window_steps.cut(holder))

        held.extend()
        held.extend()

        assert asked == [True]
        assert scene.rows == [(1, 1, False)]

    def test_where_nobody_knows_the_end_it_is_told_what_stands(self, scene, holder, held):
        holder.window.lose()

        assert not held.give_back(Ranges([(1, 1)]), Return())
        with pytest.raises(StorageUnavailableError, match="the old lease stands"):
            held.extend()
        commit_run(held, Ranges([(1, 1)]))
        assert scene.state.marks == (Mark(1, 1, End.COMMITTED),)

    @pytest.mark.parametrize("does", ["extend", "roll back"])
    def test_what_it_never_got_goes_back_where_others_ended_the_window(self, scene, holder, held, does):
        # Given two messages that were handed out, and two that came while the popper was away
        scene.push()
        held.grow(holder.take(10).runs[0])
        scene.push(2)
        scene.clock.seconds += (window_steps.WINDOW_MS + 600) / 1000
        assert window_steps.take_over(scene.own("another"))
        holder.look()
        # When the consumer of the first goes on
        if does == "extend":
            held.extend()
        else:
            assert held.give_back(Ranges([(2, 2)]), Return())
        # Then what nobody got is delivered to others at once, for the first time
        other = scene.own("another")
        result = other.take(10)
        assert {3, 4} <= set(numbers(result))
        assert [taken.run.attempt for taken in result.runs if taken.run.first == 3] == [1]
        assert scene.state.runs[0].lease_id == held._rows.lease_id

    def test_an_end_that_does_not_come_is_waited_for_as_long_as_the_lease(self, scene, held, monkeypatch):
        def wait(condition, seconds):
            scene.clock.seconds += seconds

        monkeypatch.setattr(scene.clock, "wait", wait)

        with pytest.raises(DeliveryExpiredError):
            held.extend()
        assert not held.give_back(Ranges([(1, 1)]), Return())


def plan_of(scene):
    (batch,) = scene.storage.read_batches(scene.pipe, BatchQuery(limit=1))
    return Taken(scene.state.window, (batch,), (1,))


class TestAPusherThatMustSettle:
    """A push whose outcome is unknown, in a pipe of which a popper holds a window."""

    @pytest.fixture
    def settle(self, scene, monkeypatch):
        """Settle behind message 1; `meanwhile` is called at every wait."""

        def settled(meanwhile=lambda: None):
            begun = scene.clock.seconds

            def wait(condition, seconds):
                scene.clock.seconds += seconds
                assert scene.clock.seconds < begun + PATIENCE_S, "it waits for ever"
                meanwhile()

            monkeypatch.setattr(scene.clock, "wait", wait)
            with ThreadPoolExecutor(1) as executor:
                context = context_of(scene.storage, SETTINGS, scene.clock)
                lane = Lane(context, Source("a pusher"), host=Host(), executor=executor)
                return lane._settle(
                    OpenPipe(scene.pipe, scene.clock.now(), acked=1), 1, Callers([], scene.clock)
                )

        return settled

    def test_cuts_the_window_of_a_popper_that_died_behind_what_landed(self, scene, holder, settle):
        scene.push(2)
        begun = scene.clock.now()

        assert settle() == 3

        assert scene.state.head.last == 3
        assert scene.rows == [(1, 3, False)]
        assert scene.clock.now() > begun + window_steps.WINDOW_MS / 1000

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
        assert scene.clock.now() < begun + window_steps.WINDOW_MS / 1000
        scene.push(2)
        assert holder.look()
        assert numbers(holder.take(10, is_flowing=True)) == []  # it lands behind the end


class Host:
    """A pusher that is open and expires nothing."""

    def check_open(self):
        pass

    def latest_ms(self):
        return 0

    def note_pushed(self, count, _type):
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
        window_steps.knock(scene.own("another"))
        raise OutcomeUnknownError("the reply is lost")

    monkeypatch.setattr(scene.storage, "transact", lost)

    assert numbers(owned.take(10, is_flowing=True)) == [1]

    assert owned.window
    assert window_steps.cut(owned)
    assert scene.rows == [(1, 1, False)]


def test_a_cut_that_others_met_is_tried_again(scene, holder):
    window_steps.knock(scene.own("another"))

    assert window_steps.cut(holder)

    assert scene.state.head.cursor == 1
    scene.push()
    assert numbers(holder.take(10, is_flowing=True)) == [2]
    assert holder.window is None  # somebody wanted to come between


def test_a_pipe_in_anothers_window_counts_as_empty(scene, holder):
    scene.push()
    other = scene.own("another")
    assert numbers(other.take(10)) == []

    assert not other.may_have_more
