"""Messages that waited for longer than the queue's time-to-live: who ends them, and when."""

import logging
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.owned_scene import LEASE_S, SKEW_S, Scene, numbers

from cassq.errors import StorageUnavailableError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Mark, PipeEntry
from cassq.model.ranges import Ranges
from cassq.model.retrying import EXPIRED
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Cancel, Seal, Transaction
from cassq.pipes import expiry, upkeep
from cassq.pipes.run_rows import Return

TTL_S = 20.0

#: After so long a message has expired, whichever node told when it was pushed.
OVER_S = TTL_S + SKEW_S + 0.1


def made(**options):
    scene = Scene(ttl=timedelta(seconds=TTL_S), **options)
    yield scene
    scene.storage.close()


@pytest.fixture
def scene():
    yield from made()


@pytest.fixture
def burying():
    """The same in a queue whose messages become dead letters."""
    yield from made(on_expired="dead")


def take(scene, wanted):
    """Take as a popper does: what is for nobody is ended; return the numbers of what is handed out."""
    result = scene.owned.take(wanted)
    for taken in result.dead:
        scene.owned.bury(taken)
    return numbers(result)


def tally(scene):
    scene.owned = scene.own()
    told = scene.owned.tally(scene.pushed)
    return SimpleNamespace(popped=told.popped, committed=told.committed, expired=told.expired, dead=told.dead)


def letters(scene):
    found = scene.storage.read_dead("q", None, 100)
    return [(letter.message_id.seq, letter.body, letter.attempts, letter.reason) for letter in found]


def test_what_has_expired_is_handed_to_nobody_and_what_follows_is(scene):
    scene.push(3, 2)
    scene.clock.seconds += OVER_S
    scene.push(2)
    assert take(scene, 10) == [6, 7]
    scene.owned = scene.own()
    (run,) = scene.owned.progress.runs.values()
    assert (run.first, run.last) == (6, 7)


def test_a_message_expires_no_sooner_than_on_every_clock(scene):
    scene.push(1)
    scene.clock.seconds += TTL_S + SKEW_S
    assert not expiry.has_expired(scene.owned)
    scene.clock.seconds += 0.002
    assert expiry.has_expired(scene.owned)
    assert take(scene, 1) == []


@pytest.mark.parametrize("is_own", [False, True])
def test_a_pipe_that_is_younger_than_any_time_costs_no_read(scene, is_own):
    if is_own:
        scene.push(1, ttl_s=TTL_S)
    scene.push(1)
    (scene.entry,) = scene.storage.list_pipes("q").entries
    scene.owned = scene.own()
    scene.clock.seconds += 0.5
    reads = []
    scene.storage.read_batches = lambda *asked: reads.append(asked)
    assert not expiry.has_expired(scene.owned)
    assert scene.owned.take(0).dead == []
    assert reads == []


def test_all_that_has_expired_goes_at_once_however_little_is_wanted(scene):
    scene.push(*[1] * 30)
    scene.clock.seconds += OVER_S
    scene.push(1)
    transactions = []
    transact = scene.storage.transact
    scene.storage.transact = lambda *asked: transactions.append(asked) or transact(*asked)
    assert take(scene, 1) == [31]
    assert len(transactions) == 1


def test_more_than_one_take_may_carry_goes_before_a_message_that_lives(scene):
    scene.push(TAKE_MESSAGES_MAX, 5, TAKE_MESSAGES_MAX)
    scene.clock.seconds += OVER_S
    scene.push(1)
    assert take(scene, 1) == [scene.pushed]


def test_where_all_has_expired_nothing_is_left_behind(scene):
    scene.push(3)
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    assert vars(tally(scene)) == {"popped": 0, "committed": 0, "expired": 3, "dead": 0}
    assert scene.owned.head.floor == 0
    assert not scene.owned.progress.runs
    assert letters(scene) == []


def test_the_count_moves_into_the_head_with_the_floor(scene):
    scene.push(3)
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    scene.push(1)
    assert take(scene, 9) == [4]
    assert scene.storage.load_pipe(scene.pipe).head.expired == 3
    assert tally(scene).expired == 3


def test_it_becomes_a_dead_letter_where_the_queue_says_so(burying, caplog):
    burying.push(2)
    burying.clock.seconds += OVER_S
    burying.push(1)
    with caplog.at_level(logging.WARNING, "cassq.popper"):
        assert take(burying, 9) == [3]
    assert letters(burying) == [(1, b"1", 0, EXPIRED), (2, b"2", 0, EXPIRED)]
    assert vars(tally(burying)) == {"popped": 1, "committed": 0, "expired": 0, "dead": 2}
    assert EXPIRED in caplog.text


def test_what_is_dropped_is_told_in_the_log(scene, caplog):
    scene.push(2)
    scene.clock.seconds += OVER_S
    with caplog.at_level(logging.INFO, "cassq.popper"):
        assert take(scene, 9) == []
    assert "2 messages" in caplog.text


def test_what_a_consumer_has_does_not_expire(scene):
    scene.push(2)
    (taken,) = scene.owned.take(2).runs
    held = scene.hold(taken, scene.clock.latest())
    for _ in range(10):
        scene.clock.seconds += LEASE_S / 2
        held.extend()
        assert scene.own().take(9).runs == []
    held.write(held.marks(_all_of(taken)))
    assert vars(tally(scene)) == {"popped": 2, "committed": 2, "expired": 0, "dead": 0}


def _all_of(taken):
    return Ranges(((taken.run.first, taken.run.last),))


def test_what_came_back_has_expired_too(scene):
    scene.push(2, 3)
    scene.take_back(1, 4)
    scene.clock.seconds += OVER_S
    scene.push(1)
    assert take(scene, 9) == [6]
    told = tally(scene)
    assert (told.popped, told.expired) == (6, 4)  # a consumer still has message 5


def test_what_a_lease_that_ended_brings_back_has_expired_too(scene):
    scene.push(3)
    scene.owned.take(3)
    scene.clock.seconds += OVER_S + LEASE_S
    scene.owned = scene.own()
    assert take(scene, 9) == []
    assert tally(scene).expired == 3


def test_of_a_run_that_came_back_what_still_lives_is_handed_out(scene):
    scene.push(2)
    scene.clock.seconds += OVER_S / 2
    scene.push(3)
    scene.take_back(1, 5)
    scene.clock.seconds += OVER_S / 2 + 0.1
    assert take(scene, 4) == [3, 4, 5]
    told = tally(scene)
    assert (told.popped, told.expired) == (5, 2)


def test_what_lies_behind_the_end_of_a_pipe_is_nobodys(scene):
    scene.push(1, 1)
    scene.storage.transact(scene.pipe, Transaction(Seal(1)))
    scene.clock.seconds += OVER_S
    scene.owned = scene.own()
    assert take(scene, 9) == []
    assert scene.owned.is_over
    assert tally(scene).expired == 1


def test_all_of_a_run_that_came_back_goes_at_once_however_little_is_wanted(scene):
    scene.push(15)
    scene.clock.seconds += OVER_S / 2
    scene.push(5)
    scene.take_back(1, 20)
    scene.clock.seconds += OVER_S / 2 + 0.1
    assert take(scene, 1) == [16]
    assert tally(scene).expired == 15


def test_what_has_expired_is_found_behind_many_that_were_cancelled(scene):
    scene.push(*[1] * 6)
    marks = (Mark(1, 4, End.PURGED),)
    scene.storage.transact(scene.pipe, Transaction(Cancel(new_token(), 1), marks=marks))
    scene.storage.transact(scene.pipe, Transaction(Seal(7, is_free=True)))
    scene.clock.seconds += OVER_S
    scene.push(1)
    scene.owned = scene.own()
    assert take(scene, 9) == [7]
    assert tally(scene).expired == 2


def test_a_queue_of_which_nothing_has_expired_is_read_no_more_often_for_it(scene):
    others = Scene()
    counts = []
    for each in (scene, others):
        calls = []
        read = each.storage.read_batches
        each.storage.read_batches = lambda *asked, read=read, calls=calls: calls.append(asked) or read(*asked)
        for _ in range(10):
            each.push(1)
            assert len(take(each, 1)) == 1
        each.push(*[1] * 30)
        each.take_back(11, 40)
        assert len(take(each, 1)) == 1
        counts.append(len(calls))
    others.storage.close()
    assert counts[0] == counts[1]


def test_a_window_begins_in_a_queue_of_which_nothing_has_expired(scene):
    scene.push(1)
    assert scene.owned.take(1, is_flowing=True).runs
    assert scene.owned.window


def test_what_was_staged_waits_from_its_publication_on(scene):
    scene.push(2)
    scene.clock.seconds += OVER_S
    scene.entry = replace(scene.entry, created_at_ms=scene.owned.estimate_now_ms())
    scene.owned = scene.own()
    assert take(scene, 9) == [1, 2]


def test_what_rests_is_ended_once_it_is_due(scene):
    scene.push(1)
    scene.take_back(1, 1, Return(delay_ms=30_000))
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    assert tally(scene).expired == 0
    scene.clock.seconds += 30 - OVER_S + 0.1
    scene.owned = scene.own()
    assert expiry.has_expired(scene.owned)
    assert take(scene, 9) == []
    assert tally(scene).expired == 1


def test_what_came_back_from_its_last_attempt_is_a_dead_letter_and_does_not_expire(scene):
    scene.push(1)
    for _ in range(3):
        scene.take_back(1, 1, Return(reason="no route"))
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    assert letters(scene) == [(1, b"1", 3, "no route")]


def test_who_was_dropping_and_died_is_followed_by_the_next(scene, monkeypatch):
    scene.push(2)
    scene.clock.seconds += OVER_S

    def refuse(*_):
        raise StorageUnavailableError("no node answers")

    with monkeypatch.context() as patch:
        patch.setattr(scene.storage, "mark", refuse)
        with pytest.raises(StorageUnavailableError):
            take(scene, 9)
    # What is to be dropped stays so, though the queue forgets its time-to-live
    scene.alter(ttl=timedelta(0))
    scene.clock.seconds += LEASE_S + 1
    scene.owned = scene.own()
    assert scene.stands[0][:2] == (1, 2)
    assert take(scene, 9) == []
    assert vars(tally(scene)) == {"popped": 0, "committed": 0, "expired": 2, "dead": 0}
    assert letters(scene) == []


def test_cancelled_ones_among_them_stay_cancelled(scene):
    scene.push(4)
    scene.storage.transact(scene.pipe, Transaction(Cancel(new_token(), 2), marks=(Mark(2, 2, End.PURGED),)))
    scene.clock.seconds += OVER_S
    scene.owned = scene.own()
    assert take(scene, 9) == []
    told = scene.own().tally(4)
    assert (told.expired, told.purged, told.popped) == (3, 1, 0)


def test_nothing_is_taken_behind_the_number_that_a_snapshot_ends_at(scene):
    scene.push(2, 2)
    scene.owned.horizon.until = 2
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    assert tally(scene).expired == 2


def test_the_time_to_live_counts_from_the_next_take_on_when_it_is_altered(scene):
    scene.push(1)
    scene.clock.seconds += OVER_S
    scene.alter(ttl=timedelta(hours=1))
    assert take(scene, 9) == [1]
    scene.push(1)
    scene.clock.seconds += OVER_S
    scene.alter(ttl=timedelta(seconds=1))
    assert take(scene, 9) == []


def test_without_a_time_to_live_nobody_looks(monkeypatch):
    scene = Scene()
    scene.push(1)
    scene.clock.seconds += 10 * 365 * 86400
    monkeypatch.setattr(scene.storage, "read_batches", None)
    assert not expiry.has_expired(scene.owned)
    monkeypatch.undo()
    assert take(scene, 1) == [1]
    scene.storage.close()


def test_no_window_hands_out_what_has_expired(scene):
    scene.push(1)
    assert numbers(scene.owned.take(9, is_flowing=True)) == [1]
    assert scene.owned.window
    scene.push(2)
    scene.alter(ttl=timedelta(seconds=1))
    scene.clock.seconds += 1 + SKEW_S + 0.1
    scene.owned.window.sent_at += 10  # it is renewed in time
    assert take(scene, 9) == []
    assert scene.owned.window is None
    assert tally(scene).expired == 2


def test_a_purge_and_a_drop_count_apart(scene):
    scene.push(2)
    scene.clock.seconds += OVER_S
    assert take(scene, 9) == []
    scene.push(3)
    assert upkeep.purge(scene.owned) == 3
    scene.owned = scene.own()
    told = scene.owned.tally(5)
    assert (told.expired, told.purged) == (2, 3)


class TestATimeToLiveOfItsOwn:
    """A message may have one, whatever its queue says."""

    @pytest.fixture
    def endless(self):
        """A queue whose messages never expire by themselves."""
        scene = Scene()
        yield scene
        scene.storage.close()

    def test_counts_in_a_queue_without_one(self, endless):
        endless.push(2, ttl_s=TTL_S)
        endless.push(1)
        endless.clock.seconds += OVER_S
        assert take(endless, 10) == [3]
        assert tally(endless).expired == 2

    def test_counts_to_the_same_moment_on_every_clock(self, endless):
        endless.push(1, ttl_s=TTL_S)
        endless.clock.seconds += TTL_S + SKEW_S
        assert not expiry.has_expired(endless.owned)
        endless.clock.seconds += 0.002
        assert expiry.has_expired(endless.owned)

    def test_may_be_shorter_than_the_queues(self, scene):
        scene.push(1, ttl_s=1.0)
        scene.push(1)
        scene.clock.seconds += 1.0 + SKEW_S + 0.1
        assert take(scene, 10) == [2]

    def test_may_be_longer_than_the_queues(self, scene):
        scene.push(1, ttl_s=10 * TTL_S)
        scene.push(1)
        scene.clock.seconds += OVER_S
        assert take(scene, 1) == [1]
        assert take(scene, 1) == []
        assert tally(scene).expired == 1

    def test_ends_a_message_behind_one_that_lives_before_it_is_handed_out(self, endless):
        endless.push(1)
        endless.push(1, ttl_s=TTL_S)
        endless.push(1)
        endless.clock.seconds += OVER_S
        assert take(endless, 10) == [1]
        assert take(endless, 10) == [3]
        assert tally(endless).expired == 1

    def test_of_what_came_back_counts_from_the_push(self, endless):
        endless.push(1, ttl_s=TTL_S)
        endless.push(1)
        endless.take_back(1, 2)
        endless.clock.seconds += OVER_S
        assert take(endless, 10) == [2]
        assert tally(endless).expired == 1

    def test_of_what_came_back_lets_nothing_overtake_the_rest(self, endless):
        endless.push(1)
        endless.push(1, ttl_s=TTL_S)
        endless.push(3)
        endless.take_back(1, 5)
        endless.owned = endless.own()
        endless.push(2)
        endless.clock.seconds += OVER_S
        handed = []
        while found := take(endless, 10):
            handed += found
        assert handed == [1, 3, 4, 5, 6, 7]

    def test_is_looked_at_in_a_window(self, endless):
        endless.push(1)
        result = endless.owned.take(1, is_flowing=True)
        assert result.window
        endless.push(1, ttl_s=TTL_S)
        endless.clock.seconds += OVER_S
        endless.push(1)
        handed = [seq for _ in range(3) for seq in take(endless, 10)]
        assert handed == [3]

    def test_is_ended_by_a_reaper_that_looks_at_no_queue_without_any(self, endless):
        reads = []
        read = endless.storage.read_batches
        endless.storage.read_batches = lambda *asked: reads.append(asked) or read(*asked)
        endless.push(1)
        assert not expiry.has_expired(endless.owned)
        assert reads == []
        endless.take_back(1, 1)
        endless.owned = endless.own()
        reads.clear()
        endless.push(1, ttl_s=TTL_S)
        endless.clock.seconds += OVER_S
        assert not expiry.has_expired(endless.owned)  # the oldest one has not
        assert reads

    def test_of_a_message_that_was_staged_counts_from_its_publication(self):
        entry = replace(PipeEntry(new_pipe_id(), "a pusher"), created_at_ms=50_000)
        lifetime = expiry.lifetime_in(QueueSettings(clock_skew_max=timedelta(0)), entry, 51_000)
        staged = Batch(1, (b"x",), None, 1, pushed_at_ms=10_000, ttl_ms=1_000)
        assert not lifetime.is_over(staged)
        assert replace(lifetime, now_ms=51_001).is_over(staged)
