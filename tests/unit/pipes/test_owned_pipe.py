"""What one take brings home, what came back before what is new, and when to look again."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.owned_scene import LEASE_S, SETTINGS, SKEW_S, Scene, numbers

from cassq.errors import DecodeError, StorageUnavailableError
from cassq.limits import NO_LIMIT, TAKE_MESSAGES_MAX, TAKE_RUNS_MAX
from cassq.model.ids import MessageId, new_token
from cassq.model.pipe import End, Mark
from cassq.model.ranges import Ranges
from cassq.model.transaction import Advance, Cancel, Seal, Transaction
from cassq.pipes.owned_pipe import TAKE_ATTEMPTS
from cassq.pipes.run_rows import Return
from cassq.pipes.window_steps import WINDOW_MS
from cassq.popping.commits import commit_run


class Unmarked:
    """A storage that no mark reaches any more."""

    def __init__(self, storage):
        self._storage = storage

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def mark(self, pipe, marks):
        raise StorageUnavailableError(f"no node answers: {len(marks)} marks of pipe {pipe} are not written")


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


def test_what_came_back_is_taken_before_what_is_new_and_both_no_more_than_wanted(scene):
    scene.push(3, 3)
    scene.take_back(2, 4)
    scene.push(4)
    assert scene.take(5) == [2, 3, 4, 7, 8]
    assert scene.take(5) == [9, 10]


def test_of_what_came_back_the_rest_waits_for_the_next_take(scene):
    scene.push(3, 3)
    scene.take_back(1, 6)
    assert scene.take(2) == [1, 2]
    assert scene.stands == [(1, 2, 2, True), (3, 6, 1, False)]
    assert scene.take(1) == [3]
    # And so it does for another owner
    scene.owned = scene.own()
    assert scene.take(9) == [4, 5, 6]


def test_of_several_that_came_back_no_more_are_taken_than_wanted(scene):
    scene.push(6)
    result = scene.owned.take(100)
    held = scene.hold(result.runs[0], result.sent_at)
    assert held.give_back(Ranges(((1, 1), (3, 3), (5, 6))), Return())
    assert scene.take(2) == [1, 3]
    assert scene.take(1) == [5]
    assert scene.take(9) == [6]


def test_what_has_ended_of_a_run_is_not_taken_again_and_does_not_count(scene):
    scene.push(6)
    result = scene.owned.take(100)
    commit_run(scene.hold(result.runs[0], result.sent_at), Ranges(((1, 1), (3, 4))))
    scene.clock.seconds += LEASE_S + SKEW_S + 0.1
    assert scene.owned.look()
    assert scene.take(2) == [2, 5]
    assert scene.take(2) == [6]


def test_what_rests_is_taken_when_its_rest_is_over(scene):
    scene.push(2)
    scene.take_back(2, 2, Return(delay_ms=3000))
    assert scene.owned.next_due() == pytest.approx(3.0)
    scene.clock.seconds += 2.9
    assert scene.take(9) == []
    assert not scene.owned.has_due
    assert scene.owned.next_due() == pytest.approx(0.1)
    scene.clock.seconds += 0.1
    assert scene.owned.has_due
    assert scene.owned.next_due() == 0
    assert scene.take(9) == [2]


def test_what_is_leased_comes_due_when_its_lease_is_over_for_everybody(scene):
    scene.push(1)
    assert scene.take(9) == [1]
    assert scene.owned.next_due() == pytest.approx(LEASE_S + SKEW_S)
    assert scene.owned.is_at_rest
    scene.clock.seconds += LEASE_S + SKEW_S - 0.001
    assert scene.owned.look()
    assert not scene.owned.has_due
    scene.clock.seconds += 0.002
    assert scene.owned.next_due() == 0
    # By a reading of the database's clock that is older than the read of the marks
    assert not scene.owned.has_due
    assert scene.owned.look()
    assert scene.owned.has_due
    assert not scene.owned.is_at_rest
    assert scene.take(9) == [1]


def test_what_comes_due_first_is_told(scene):
    scene.push(3)
    scene.take_back(2, 3, Return(delay_ms=2000))
    assert scene.owned.next_due() == pytest.approx(2.0)


def test_nothing_is_due_where_nothing_is_out(scene):
    assert scene.owned.next_due() is None
    assert scene.owned.is_at_rest
    assert not scene.owned.has_due


def test_a_death_is_told_in_the_log(scene, caplog):
    scene.push(3)
    for _ in range(SETTINGS.max_attempts):
        scene.take_back(1, 1)
    for spent in scene.owned.take(9).dead:
        scene.owned.bury(spent)
    scene.owned = scene.own()
    scene.clock.seconds += SETTINGS.max_attempts * (LEASE_S + SKEW_S + 1.0)
    for _ in range(SETTINGS.max_attempts):
        for spent in scene.own().take(9).dead:
            scene.owned.bury(spent)
        scene.clock.seconds += LEASE_S + SKEW_S + 1.0
    told = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert {each[:2] for each in told} == {("cassq.popper", "WARNING")}
    one, two = (words for _, _, words in told)
    died = f"now, after attempt {SETTINGS.max_attempts}: "
    assert f"queue q: message {MessageId(scene.pipe, 1)} is a dead letter {died}rolled back" in one
    several = f"2 messages from {MessageId(scene.pipe, 2)} to {MessageId(scene.pipe, 3)}"
    assert f"{several} are dead letters {died}lease ended while a popper had it" in two


def test_what_came_back_from_its_last_attempt_is_buried_though_it_is_to_rest(scene):
    # Given a message on its last attempt, and one beside it that is committed
    scene.push(2)
    for _ in range(SETTINGS.max_attempts - 1):
        scene.take_back(1, 2)
    scene.take_back(1, 1, Return(delay_ms=60_000))
    assert scene.owned.next_due() == 0
    # When it is taken, then it is nobody's, and counts for nothing of what is wanted
    scene.push(2)
    result = scene.owned.take(2)
    assert numbers(result) == [3, 4]
    (spent,) = result.dead
    assert scene.owned.bury(spent) == 1
    (letter,) = scene.storage.read_dead("q", None, 10)
    assert (letter.message_id.seq, letter.body, letter.attempts) == (1, b"1", SETTINGS.max_attempts)
    assert scene.owned.progress.ending_of(1) is End.DEAD
    assert Mark(1, 1, End.DEAD) in scene.storage.load_pipe(scene.pipe).marks


def test_what_was_taken_to_be_buried_is_delivered_to_nobody_though_more_attempts_are_allowed_since(scene):
    # Given messages whose letters are written, and whose owner died before they ended
    scene.push(2)
    for _ in range(SETTINGS.max_attempts):
        scene.take_back(1, 2)
    (spent,) = scene.owned.take(9).dead
    scene.owned._context = replace(scene.owned._context, storage=Unmarked(scene.storage))
    with pytest.raises(StorageUnavailableError):
        scene.owned.bury(spent)
    letters = scene.storage.read_dead("q", None, 10)
    assert len(letters) == 2
    # When the queue allows more attempts, and the lease of the burial has ended
    scene.alter(max_attempts=SETTINGS.max_attempts + 5)
    scene.clock.seconds += LEASE_S + SKEW_S + 1.0
    scene.owned = scene.own()
    result = scene.owned.take(9)
    # Then they are buried, and what their letters say stays
    assert numbers(result) == []
    (again,) = result.dead
    assert scene.owned.bury(again) == 2
    assert [letter.attempts for letter in scene.storage.read_dead("q", None, 10)] == [
        letter.attempts for letter in letters
    ]


def test_what_came_back_from_its_last_attempt_is_delivered_again_once_more_attempts_are_allowed(scene):
    scene.push(1)
    for _ in range(SETTINGS.max_attempts):
        scene.take_back(1, 1)
    scene.alter(max_attempts=SETTINGS.max_attempts + 1)
    (taken,) = scene.owned.take(9).runs
    assert taken.run.attempt == SETTINGS.max_attempts + 1


def test_a_lease_that_was_altered_counts_for_what_is_taken_from_then_on(scene):
    scene.push(2)
    (before,) = scene.owned.take(1).runs
    scene.alter(lease=2 * SETTINGS.lease)
    (after,) = scene.owned.take(1).runs
    assert (before.run.lease_ms, after.run.lease_ms) == (1000 * LEASE_S, 2000 * LEASE_S)
    # And what was taken before keeps its own
    scene.clock.seconds += LEASE_S + SKEW_S + 1.0
    scene.owned = scene.own()
    assert scene.take(9) == [1]


def test_nobody_is_handed_what_is_taken_for_the_last_time_but_it_is_still_one_attempt(scene):
    scene.push(1)
    for _ in range(SETTINGS.max_attempts - 1):
        scene.take_back(1, 1)
    result = scene.owned.take(9)
    assert (numbers(result), result.dead) == ([1], [])
    assert result.runs[0].run.attempt == SETTINGS.max_attempts


def test_what_was_never_handed_out_goes_back_without_an_attempt(scene):
    scene.push(1)
    scene.take_back(1, 1, Return(is_counted=False))
    (run,) = scene.owned.take(9).runs
    assert (run.run.attempt, run.run.rolled_back) == (1, 0)


class TestUntil:
    """Where a reader stops at what was there at present."""

    def test_nothing_new_is_taken_behind_it_and_what_came_back_is(self, scene):
        scene.push(2, 4)
        scene.take_back(1, 1)
        scene.push(3)
        scene.owned.horizon.until = 8
        assert scene.take(2) == [1, 7]
        assert scene.owned.may_have_more
        assert scene.take(9) == [8]
        assert not scene.owned.may_have_more
        assert scene.take(9) == []

    def test_it_is_reached_where_all_up_to_it_was_cancelled(self, scene):
        scene.push(2, 4)
        assert scene.take(1) == [1]
        for seq in (2, 3):
            cancel = Transaction(Cancel(new_token(), seq), marks=(Mark(seq, seq, End.PURGED),))
            assert scene.storage.transact(scene.pipe, cancel).is_applied
        assert scene.owned.look()
        scene.owned.horizon.until = 3
        assert scene.take(9) == []
        assert scene.owned.head.cursor == 3
        scene.owned.horizon.until = NO_LIMIT
        assert scene.take(9) == [4, 5, 6]


def test_a_batch_that_is_gone_before_the_end_is_damage(scene):
    scene.push(1)
    assert scene.take(9) == [1]
    assert scene.storage.transact(scene.pipe, Transaction(Seal(3, is_free=True))).is_applied
    assert scene.owned.look()
    assert scene.owned.left == 2
    with pytest.raises(DecodeError, match="messages 2 to 3 wait"):
        scene.owned.take(1)
    # Who wants nothing new hears nothing of it
    assert scene.take(0) == []
    # It is told by a fresh read; where the pipe was cleared away meanwhile it is let go
    other = scene.own()
    other.advance(other.head)
    with pytest.raises(DecodeError, match="messages 2 to 3 wait"):
        scene.owned.take(1)
    scene.storage.delete_pipe("q", scene.pipe)
    assert scene.owned.take(1) is None


def test_after_the_last_message_nothing_is_damage(scene):
    scene.push(1)
    assert scene.storage.transact(scene.pipe, Transaction(Seal(1, is_free=True))).is_applied
    assert scene.owned.look()
    assert scene.take(9) == [1]
    assert scene.owned.is_exhausted
    assert (scene.take(9), scene.owned.left) == ([], 0)
    assert not scene.owned.is_over
    scene.owned.note(Mark(1, 1, End.COMMITTED))
    assert scene.owned.is_over


class TestHasNews:
    def test_tells_what_landed_since_the_last_read(self, scene):
        assert not scene.owned.has_news()
        scene.push(1)
        assert scene.owned.has_news()
        assert scene.take(9) == [1]
        assert not scene.owned.has_news()

    def test_tells_nothing_of_a_pipe_whose_every_message_was_handed_out(self, scene, monkeypatch):
        scene.storage.transact(scene.pipe, Transaction(Seal(0, is_free=True)))
        scene.owned.look()
        monkeypatch.setattr(scene.owned.reader, "is_drained", lambda *_: False)
        assert not scene.owned.has_news()

    def test_takes_a_read_that_fails_for_news(self, scene, monkeypatch):
        def out(*_):
            raise StorageUnavailableError("out of reach")

        monkeypatch.setattr(scene.storage, "read_batches", out)
        assert scene.owned.has_news()


def test_what_was_cancelled_is_stepped_over_though_nothing_is_handed_out(scene):
    scene.push(3)
    scene.storage.mark(scene.pipe, [Mark(1, 3, End.PURGED)])
    assert scene.storage.transact(scene.pipe, Transaction(Seal(3, is_free=True))).is_applied
    assert scene.owned.look()
    assert scene.take(9) == []
    head = scene.storage.load_pipe(scene.pipe).head
    assert (head.cursor, head.skipped) == (3, 3)
    assert scene.owned.is_over


def test_behind_many_that_were_cancelled_a_take_finds_what_waits(scene):
    scene.push(*[1] * 300)
    scene.storage.mark(scene.pipe, [Mark(seq, seq, End.PURGED) for seq in range(1, 300)])
    assert scene.owned.look()

    assert scene.take(1) == [300]


class TestBesideACanceller:
    @pytest.fixture
    def between(self, scene, monkeypatch):
        """Called before each transaction of the owner, with how many there were."""
        transact, calls = scene.storage.transact, []
        told = SimpleNamespace(do=lambda _count: None, calls=calls)

        def meanwhile(pipe, change):
            if isinstance(change.head, Advance):
                calls.append(change)
                told.do(len(calls))
            return transact(pipe, change)

        monkeypatch.setattr(scene.storage, "transact", meanwhile)
        return told

    def _cancel(self, scene, seq):
        change = Transaction(Cancel(new_token(), seq), marks=(Mark(seq, seq, End.PURGED),))
        assert scene.storage.transact(scene.pipe, change).is_applied

    def test_a_take_is_planned_again_without_what_was_cancelled(self, scene, between):
        scene.push(TAKE_ATTEMPTS)
        between.do = lambda count: count < TAKE_ATTEMPTS and self._cancel(scene, 1 + count)
        assert scene.take(TAKE_ATTEMPTS) == [1]

    def test_a_take_ends_though_cancellations_do_not(self, scene, between):
        scene.push(TAKE_ATTEMPTS + 1)
        between.do = lambda count: self._cancel(scene, count + 1)
        assert scene.owned.take(9) is None
        assert len(between.calls) == TAKE_ATTEMPTS

    def test_where_somebody_else_took_a_take_ends(self, scene, between):
        scene.push(3)
        other = scene.own()
        between.do = lambda count: numbers(other.take(1)) if count == 1 else None
        assert scene.owned.take(9) is None


def test_a_take_has_its_bounds_however_much_is_wanted(scene):
    scene.push(TAKE_MESSAGES_MAX, 5)
    assert len(scene.take(TAKE_MESSAGES_MAX + 3)) == TAKE_MESSAGES_MAX


def test_of_many_that_came_back_so_many_are_taken_at_once(scene):
    # Given every second message of many back
    scene.push(2 * TAKE_RUNS_MAX + 4)
    result = scene.owned.take(TAKE_MESSAGES_MAX)
    back = Ranges((seq, seq) for seq in range(1, scene.pushed, 2))
    assert scene.hold(result.runs[0], result.sent_at).give_back(back, Return())
    # Then they come in two takes
    assert len(scene.take(TAKE_MESSAGES_MAX)) == TAKE_RUNS_MAX
    assert len(scene.take(TAKE_MESSAGES_MAX)) == 2


class TestHasMore:
    def test_what_waits_is_more_until_it_is_taken(self, scene):
        scene.push(2)
        assert scene.take(1) == [1]
        assert scene.owned.may_have_more
        assert scene.take(9) == [2]
        assert scene.take(9) == []
        assert not scene.owned.may_have_more

    def test_nothing_is_more_in_another_owners_window(self, scene):
        scene.push(2)
        other = scene.own()
        assert numbers(other.take(1, is_flowing=False)) == [1]
        scene.owned.look()
        scene.owned.read_ahead(5)
        assert scene.owned.may_have_more
        assert numbers(other.take(9, is_flowing=True)) == [2]
        assert other.window
        scene.owned.look()
        assert not scene.owned.may_have_more

    def test_nothing_is_more_of_a_pipe_that_is_exhausted(self, scene):
        scene.push(1)
        assert scene.storage.transact(scene.pipe, Transaction(Seal(1, is_free=True))).is_applied
        assert scene.owned.look()
        assert scene.take(1) == [1]
        assert scene.owned.is_exhausted
        assert not scene.owned.may_have_more


class TestBesideAWindow:
    @pytest.fixture
    def resting(self, scene):
        """A message that rests for three seconds."""
        scene.push(1)
        scene.take_back(1, 1, Return(delay_ms=3000))

    def flow(self, scene):
        scene.push(1)
        return numbers(scene.owned.take(9, is_flowing=True))

    def test_what_comes_due_is_taken_though_the_flow_goes_on(self, scene, resting):
        # Given a flow that goes on beyond the rest
        came = self.flow(scene)
        assert scene.owned.window
        for _ in range(20):
            scene.clock.seconds += 0.2
            came += self.flow(scene)
        # Then that came, too
        assert sorted(came) == list(range(1, scene.pushed + 1))

    def test_its_holder_looks_again_when_it_is_over_or_something_comes_due(self, scene, resting):
        self.flow(scene)
        window_s = WINDOW_MS / 1000
        assert scene.owned.next_due() == pytest.approx(window_s)
        scene.clock.seconds += window_s + 1.0
        assert scene.owned.next_due() == 0

    def test_others_look_again_when_it_is_over_for_everybody(self, scene):
        self.flow(scene)
        other = scene.own()
        assert other.next_due() == pytest.approx(WINDOW_MS / 1000 + SKEW_S)
        assert not other.is_at_rest

    def test_what_its_holder_is_asked_to_end_hands_out_no_more(self, scene):
        self.flow(scene)
        window = scene.owned.window
        window._is_asked = True
        assert self.flow(scene) == [2]
        assert not window.is_out
        assert scene.owned.window is not window

    def test_whoever_finds_another_owner_when_it_begins_lets_the_pipe_go(self, scene):
        scene.push(2)
        other = scene.own()
        assert numbers(other.take(1)) == [1]
        assert scene.owned.take(9, is_flowing=True) is None

    def test_a_pipe_that_was_sealed_a_moment_ago_is_kept_when_none_can_begin(self, scene):
        scene.push(1)
        assert scene.storage.transact(scene.pipe, Transaction(Seal(1, is_free=True))).is_applied
        assert numbers(scene.owned.take(9, is_flowing=True)) == []
        assert numbers(scene.owned.take(9, is_flowing=True)) == [1]
