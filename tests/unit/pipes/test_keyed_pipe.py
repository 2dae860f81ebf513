"""A pipe of a slot: of which attempt a mark is, and what frees a key."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from support.owned_scene import LEASE_S, SKEW_S, Scene

from cassq.model.ids import new_token
from cassq.model.key import NO_SLOT
from cassq.model.message import Batch
from cassq.model.pipe import BURIAL, End, Mark, RunState
from cassq.model.ranges import Ranges
from cassq.model.shelf import Shelf
from cassq.model.transaction import Cancel, RunChange, Seal, Transaction
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return


class KeyedScene(Scene):
    """A pipe of messages with keys, listed as it would be."""

    def push_keyed(self, *keys):
        bodies = tuple(b"%d" % (self.pushed + place) for place in range(1, len(keys) + 1))
        self.storage.append(self.pipe, Batch(self.pushed + 1, bodies, None, len(keys), keys=keys))
        self.pushed += len(keys)

    def own(self):
        self.entry = replace(self.entry, slot=3, shelf=Shelf.KEYED)
        return OwnedPipe(self.context, self.entry, self.storage.load_pipe(self.pipe), Taker("a popper"))

    def take_one(self, wanted=100):
        """Take, and hold what comes as a consumer."""
        result = self.owned.take(wanted)
        (taken,) = result.runs
        return self.hold(taken, result.sent_at)

    def lapse(self):
        """Let leases end for everybody, and know it."""
        self.clock.seconds += LEASE_S + SKEW_S + 0.1
        self.owned = self.own()

    def seal(self):
        assert self.storage.transact(self.pipe, Transaction(Seal(self.pushed))).is_applied

    @property
    def marks(self):
        return self.storage.load_pipe(self.pipe).marks


@pytest.fixture
def scene():
    made = KeyedScene()
    yield made
    made.storage.close()


def commit(held, first, last):
    """Commit as its consumer, in time."""
    marks = held.marks(Ranges(((first, last),)))
    assert held.write(marks)
    return marks


def test_a_commit_carries_the_attempt_of_its_run_and_elsewhere_none(scene):
    scene.push_keyed("a", "b")
    assert commit(scene.take_one(1), 1, 1) == [Mark(1, 1, End.COMMITTED, attempt=1)]
    plain = Scene()
    plain.push(1)
    result = plain.owned.take(1)
    held = plain.hold(result.runs[0], result.sent_at)
    assert held.marks(Ranges(((1, 1),))) == [Mark(1, 1, End.COMMITTED)]
    plain.storage.close()


def test_a_commit_that_lands_late_ends_its_message_and_leaves_its_key_busy(scene):
    # Given a consumer whose commit is in flight as its lease ends, and another that has the message
    scene.push_keyed("a")
    late = scene.take_one().marks(Ranges(((1, 1),)))
    scene.seal()
    scene.lapse()
    second = scene.take_one()
    # When the mark lands
    scene.storage.mark(scene.pipe, late)
    # Then whoever loads the pipe sees that the message is out, and that nobody gets it any more
    owned = scene.owned
    assert owned.look()
    (run,) = owned.progress.runs.values()
    assert (run.state, run.attempt) == (RunState.LEASED, 2)
    assert list(owned.progress.left_of(run)) == []
    assert list(owned.progress.ended_before(run)) == [(1, 1)]
    assert owned.progress.raise_floor().floor == 0
    assert not owned.is_over
    assert not upkeep.retire(owned)
    assert scene.take(9) == []
    # And the commit of who has it frees the key
    commit(second, 1, 1)
    assert owned.is_over
    assert owned.progress.raise_floor().floor == 1
    assert scene.own().is_over


def test_a_key_that_a_late_commit_left_busy_is_free_once_its_run_was_returned(scene):
    scene.push_keyed("a", "a")
    late = scene.take_one(1).marks(Ranges(((1, 1),)))
    scene.lapse()
    second = scene.take_one(1)
    scene.storage.mark(scene.pipe, late)
    # The lease is over by the clock, and an extension of it is in flight: the run stands as it is
    scene.clock.seconds += LEASE_S - 1
    second.extend()
    (row,) = scene.storage.load_pipe(scene.pipe).runs
    flying = Transaction(runs=(RunChange(row, row.lease_id, row.leased_at_ms, is_leased_now=True),))
    scene.lapse()
    assert scene.owned.progress.runs
    assert scene.stands == [(1, 1, 2, True)]
    assert scene.owned.next_due() == 0
    # What is taken next goes behind its return
    assert scene.take(9) == [2]
    assert scene.stands == [(2, 2, 1, True)]
    assert not scene.storage.transact(scene.pipe, flying).is_applied


def test_a_reaper_returns_such_a_run_so_that_its_pipe_retires(scene):
    scene.push_keyed("a")
    late = scene.take_one().marks(Ranges(((1, 1),)))
    scene.seal()
    scene.lapse()
    scene.take_one()
    scene.storage.mark(scene.pipe, late)
    scene.lapse()
    assert upkeep.needs_care(scene.owned, is_abandoned=False)
    assert upkeep.return_expired(scene.owned) == 0
    assert scene.owned.is_over
    assert scene.own().is_over
    assert upkeep.retire(scene.owned)


def test_a_take_that_would_return_such_a_run_first_is_refused_where_another_took(scene):
    scene.push_keyed("a", "b")
    late = scene.take_one(1).marks(Ranges(((1, 1),)))
    scene.lapse()
    scene.take_one(1)
    scene.storage.mark(scene.pipe, late)
    scene.lapse()
    stale = scene.own()
    assert scene.take(9) == [2]
    assert stale.take(9) is None


def test_what_had_ended_when_a_run_was_taken_again_is_not_busy_in_the_new_attempt(scene):
    # Given a run of which a part was committed, and whose lease ended
    scene.push_keyed(*"abcdef")
    first = scene.take_one()
    commit(first, 2, 3)
    commit(first, 5, 5)
    scene.lapse()
    # When the rest is taken again, and committed
    result = scene.owned.take(9)
    (taken,) = result.runs
    assert [seq for seq, *_ in taken.messages] == [1, 4, 6]
    assert scene.marks == (Mark(2, 3, End.COMMITTED, attempt=2), Mark(5, 5, End.COMMITTED, attempt=2))
    second = scene.hold(taken, result.sent_at)
    for seq in (1, 4, 6):
        assert scene.owned.progress.runs
        commit(second, seq, seq)
        scene.owned.heed()
    # Then the run is over, for its owner and for who reads it
    assert not scene.owned.progress.runs
    assert not scene.own().progress.runs
    assert scene.own().tally(6).committed == 6


def test_what_was_cancelled_before_it_was_handed_out_keeps_no_key_busy(scene):
    scene.push_keyed("a", "b", "c")
    cancel = Transaction(Cancel(new_token(), 2), marks=(Mark(2, 2, End.PURGED),))
    assert scene.storage.transact(scene.pipe, cancel).is_applied
    scene.owned = scene.own()
    held = scene.take_one()
    commit(held, 1, 1)
    commit(held, 3, 3)
    scene.owned.heed()
    assert not scene.owned.progress.runs
    assert not scene.own().progress.runs


def test_what_was_purged_after_it_came_back_is_over_though_a_commit_lands_late(scene):
    scene.push_keyed("a", "b")
    held = scene.take_one()
    late = held.marks(Ranges(((1, 1),)))
    assert held.give_back(Ranges(((1, 2),)), Return())
    scene.owned = scene.own()
    assert upkeep.purge(scene.owned) == 2
    scene.storage.mark(scene.pipe, late)
    assert not scene.own().progress.runs


def test_no_window_begins(scene):
    scene.push_keyed("a", "b")
    assert window_steps.may_begin(scene.owned) is False
    assert scene.owned.take(1, is_flowing=True).window is None
    assert scene.stands == [(1, 1, 1, True)]
    scene.entry = replace(scene.entry, slot=NO_SLOT)
    plain = OwnedPipe(scene.context, scene.entry, scene.storage.load_pipe(scene.pipe), Taker("a popper"))
    assert plain.take(1, is_flowing=True).window


def test_a_letter_has_the_key_and_its_mark_frees_it(scene):
    scene.push_keyed("a", "b", "c")
    scene.seal()
    held = scene.take_one()
    messages = [(2, b"2", {}, 1, None)]
    assert held.give_back(Ranges(((2, 2),)), Return(reason="no", is_last=True), messages)
    (letter,) = scene.storage.read_dead("q")
    assert (letter.body, letter.key) == (b"2", "b")
    assert Mark(2, 2, End.DEAD, attempt=BURIAL + 1) in scene.marks
    commit(held, 1, 1)
    commit(held, 3, 3)
    assert scene.own().is_over


def test_what_nobody_committed_at_the_last_attempt_is_buried_with_its_key(scene):
    scene.push_keyed("a", "b")
    for _ in range(3):
        assert len(scene.take(9)) == 2
        scene.lapse()
    (dead,) = scene.owned.take(0).dead
    scene.owned.bury(dead)
    assert [letter.key for letter in scene.storage.read_dead("q")] == ["a", "b"]
    assert not scene.own().progress.runs


def test_what_has_expired_frees_its_key(scene):
    scene.alter(ttl=timedelta(seconds=1))
    scene.push_keyed("a", "b")
    scene.clock.seconds += 2 + 2 * SKEW_S
    scene.owned = scene.own()
    (dead,) = scene.owned.take(0).dead
    scene.owned.bury(dead)
    assert [mark.end for mark in scene.marks] == [End.EXPIRED]
    assert not scene.own().progress.runs


class Crowd:
    """Consumers of one pipe whose commits and extensions land when they like, and owners who load it anew."""

    def __init__(self, scene):
        self.scene = scene
        self.hands = []  # what each consumer holds, and which numbers it works on
        self.flying = []

    def push(self):
        self.scene.push_keyed(*"ab"[: 1 + self.scene.pushed % 2])

    def take(self, wanted):
        self.scene.owned = self.scene.own()
        result = self.scene.owned.take(wanted)
        for taken in result.dead if result else ():
            self.scene.owned.bury(taken)
        for taken in result.runs if result else ():
            seqs = {seq for part in taken.parts for seq in range(part.first, part.last + 1)}
            assert not seqs & self.worked_on, "two living leases"
            self.hands.append((self.scene.hold(taken, result.sent_at), seqs))

    def begin_commit(self, dice):
        """Send a commit, in time; it lands later."""
        if found := [(held, seqs) for held, seqs in self.hands if held.is_live and seqs]:
            held, seqs = dice(found)
            first = dice(sorted(seqs))
            done = {seq for seq in seqs if seq >= first}
            seqs -= done
            marks = held.marks(Ranges((seq, seq) for seq in done))
            self.flying.append(lambda: self.scene.storage.mark(self.scene.pipe, marks))

    def commit(self, dice):
        if found := [(held, seqs) for held, seqs in self.hands if held.is_live and seqs]:
            held, seqs = dice(found)
            seq = dice(sorted(seqs))
            commit(held, seq, seq)
            seqs.remove(seq)

    def roll_back(self, dice):
        if found := [(held, seqs) for held, seqs in self.hands if held.is_live and seqs]:
            held, seqs = dice(found)
            seq = dice(sorted(seqs))
            if held.give_back(Ranges(((seq, seq),)), Return()):
                seqs.remove(seq)

    def begin_extension(self, dice):
        """Send an extension, in time; it lands later, and then its lease may run again."""
        if found := [held for held, _ in self.hands if held.is_live]:
            held = dice(found)
            rows = held._rows.standing(self.scene.storage.load_pipe(self.scene.pipe))
            if not held._rows.is_leased(rows):
                return
            lease_id, sent_at = held._rows.lease_id, self.scene.clock.latest()
            changes = tuple(RunChange(row, lease_id, row.leased_at_ms, is_leased_now=True) for row in rows)

            def land():
                if self.scene.storage.transact(self.scene.pipe, Transaction(runs=changes)).is_applied:
                    held.ends_at = max(held.ends_at, sent_at + LEASE_S)

            self.flying.append(land)

    def land(self, dice):
        if self.flying:
            self.flying.pop(dice(range(len(self.flying))))()

    def wait(self, seconds):
        self.scene.clock.seconds += seconds

    def reap(self):
        self.scene.owned = self.scene.own()
        upkeep.return_expired(self.scene.owned)

    @property
    def worked_on(self):
        return {seq for held, seqs in self.hands if held.is_live for seq in seqs}

    def check(self):
        """What a consumer works on is busy for whoever loads the pipe now."""
        owned = self.scene.own()
        progress = owned.progress
        busy = Ranges()
        for run in progress.runs.values():
            if run.state is RunState.LEASED:
                for part in (*progress.left_of(run), *progress.ended_before(run)):
                    busy.add(*part)
        assert all(seq in busy for seq in self.worked_on)
        assert not (self.worked_on and owned.is_over)
        assert progress.raise_floor().floor < min(self.worked_on, default=self.scene.pushed + 1)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_lands_late_what_a_consumer_works_on_is_busy_for_whoever_loads_the_pipe(seed):
    random_numbers = random.Random(seed)
    for _ in range(40):
        scene = KeyedScene(max_attempts=20)
        run_history(scene, lambda choices: random_numbers.choice(list(choices)))
        scene.storage.close()


def run_history(scene, dice):
    crowd = Crowd(scene)
    always = {
        "push": crowd.push,
        "take": lambda: crowd.take(dice((1, 2, 9))),
        "wait": lambda: crowd.wait(dice((1.0, LEASE_S / 2, LEASE_S + SKEW_S + 0.1))),
        "reap": crowd.reap,
    }
    of_consumers = {
        "begin commit": lambda: crowd.begin_commit(dice),
        "commit": lambda: crowd.commit(dice),
        "roll back": lambda: crowd.roll_back(dice),
        "begin extension": lambda: crowd.begin_extension(dice),
    }
    crowd.push()
    for _ in range(dice(range(5, 25))):
        scene.clock.seconds += 0.01  # no two changes of a row are of one moment
        steps = always | (of_consumers if crowd.worked_on else {})
        steps |= {"land": lambda: crowd.land(dice)} if crowd.flying else {}
        steps[dice(steps)]()
        crowd.check()
    # Nothing stays behind: once all has landed and every lease has ended, the pipe is worked off
    while crowd.flying:
        crowd.flying.pop()()
    scene.seal()
    for _ in range(8):
        scene.lapse()
        scene.clock.seconds += 3600.0
        crowd.take(9)
        crowd.check()
        for held, seqs in crowd.hands:
            for seq in sorted(seqs) if held.is_live else ():
                commit(held, seq, seq)
                seqs.remove(seq)
    scene.lapse()
    crowd.reap()
    assert scene.own().is_over
