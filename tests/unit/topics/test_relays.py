"""What comes between the calls of a relay: failures, deaths, other relays, poppers and reapers."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from support.contexts import context_of
from support.interrupted import Killed, die, lose, refuse
from support.topic_scene import TopicScene

from cassq.errors import (
    CassqError,
    CorruptError,
    GroupNotFoundError,
    OffsetGoneError,
    OutcomeUnknownError,
    PartitionLostError,
    QueueNotFoundError,
)
from cassq.model import ids
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Mark, Phase
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.settings import QueueSettings
from cassq.model.subscription import Subscription
from cassq.model.topic import OFFSET_HEADER, Progress, ProgressKey
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.pipe_list import PipeList
from cassq.pipes.relayed import is_named, pusher_of
from cassq.reaping.reaper import Reaper
from cassq.storage.forms import BatchQuery
from cassq.topics import relay as relays
from cassq.topics.bell import POLL_MAX_S
from cassq.topics.group import Group
from cassq.topics.log_end import LogEnd
from cassq.topics.wishes import Wishes

CALLS = "change_progress", "read_progress", "create_pipe", "append", "transact", "read_batches", "read_log"
WRITES = "change_progress", "create_pipe", "append", "transact"

SETTINGS = QueueSettings(pipe_messages_max=100, push_age_max=timedelta(seconds=10))


class Scene(TopicScene):
    """A topic, and a queue that is subscribed to it."""

    def __init__(self, messages=5):
        super().__init__()
        record = QueueRecord("q", new_token(), SETTINGS, new_token())
        assert self.rows.change_queue(None, record)
        self.group = Group(self.elsewhere, "q").ensure("earliest")
        self.key = ProgressKey(self.group, 0)
        self.end = LogEnd(self.elsewhere, 0)
        for number in range(messages):
            self.publish(b"%d" % number, end=self.end)
        self.target, self.target_elsewhere = (
            context_of(storage, SETTINGS, self.clock, coordinator=self.coordinator)
            for storage in (self.storage, self.rows)
        )

    def relay(self, name, **how):
        """Return a relay's partition; one called "a" is interrupted."""
        target = self.target if name == "a" else self.target_elsewhere
        return self.relayed(self.group, name, target, **how)

    def progress(self):
        return self.rows.read_progress(self.group, 0)

    def bring_all(self, held):
        while held.step():
            pass

    def entries(self):
        return self.rows.list_pipes("q").entries

    def queued(self):
        """Return the bodies that the queue's pipes let in, in the order of the pipes."""
        found = []
        for entry in self.entries():
            last = self.rows.load_pipe(entry.pipe).head.last
            query = BatchQuery(last=last, limit=1000)
            for batch in self.rows.read_batches(entry.pipe, query):
                found += batch.bodies[: last - batch.first + 1]
        return found

    def reap(self):
        report = Reaper(self.target_elsewhere, "reaper", lambda _: None).run_once()
        assert not report.failed
        return report


@pytest.fixture
def scene():
    return Scene()


def is_passed(scene, offset):
    """Tell whether a relay that goes on a moment later writes that all before an offset is in the queue."""
    scene.clock.seconds += 2
    held = scene.relay("c")
    held.step()
    return scene.progress().next == offset


def leave(scene):
    """Have the progress name no pipe."""
    seen = scene.progress()
    assert scene.rows.change_progress(scene.group, seen, replace(seen, epoch=seen.epoch + 1, pipe=None))


def subscribe(scene):
    """Have the topic's record tell of the subscription."""
    scene.elsewhere.known.change(
        lambda seen: replace(seen, subscriptions={"q": Subscription(scene.target.record.incarnation)})
    )


def work_on(scene, held):
    """Relay until it is told that it may not."""
    for _ in range(10):
        held.step()
        scene.clock.seconds += 2


def numbers(count):
    return [b"%d" % number for number in range(count)]


class TestRelaying:
    def test_each_message_is_in_the_queue_with_its_place(self, scene):
        scene.bring_all(scene.relay("b"))

        (entry,) = scene.entries()
        (batch,) = scene.rows.read_batches(entry.pipe, BatchQuery())
        assert batch.bodies == tuple(numbers(5))
        assert [each[OFFSET_HEADER] for each in batch.headers] == [f"0:{offset}" for offset in range(1, 6)]

    def test_what_the_queue_does_not_want_is_passed_by(self, scene):
        scene.bring_all(scene.relay("b", wishes=Wishes(lambda message: message.body in {b"1", b"4"})))

        assert scene.queued() == [b"1", b"4"]
        assert is_passed(scene, 6)

    def test_a_pipe_that_is_full_or_old_is_sealed_and_the_next_one_named(self, scene):
        held = scene.relay("b")
        for number in range(5, 150):
            scene.publish(b"%d" % number, end=scene.end)
        scene.bring_all(held)
        scene.clock.seconds += 11
        scene.publish(b"150", end=scene.end)
        scene.bring_all(held)

        heads = [scene.rows.load_pipe(entry.pipe).head for entry in scene.entries()]
        assert scene.queued() == numbers(151)
        assert [head.phase for head in heads] == [Phase.SEALED, Phase.SEALED, Phase.OPEN]
        assert scene.progress().pipe == scene.entries()[-1].pipe

    def test_an_old_pipe_is_sealed_though_nothing_comes(self, scene):
        held = scene.relay("b")
        scene.bring_all(held)
        scene.clock.seconds += 11

        held.step()

        assert scene.progress() == Progress(0, scene.progress().epoch, "b", 6, None, scene.entries()[0].pipe)
        assert scene.rows.load_pipe(scene.entries()[0].pipe).head.last == 5

    def test_who_leaves_seals_what_it_filled(self, scene):
        held = scene.relay("b")
        scene.bring_all(held)

        held.leave()

        assert scene.progress().pipe is None
        assert scene.rows.load_pipe(scene.entries()[0].pipe).head.last == 5

    @pytest.mark.parametrize("successor", ["b", "c"])
    def test_a_pipe_has_a_later_id_than_the_one_before_whatever_the_clock_says(
        self, scene, monkeypatch, successor
    ):
        held = scene.relay("b")
        scene.bring_all(held)
        (first,) = scene.entries()
        monkeypatch.setattr("cassq.topics.relayed_pipe.new_pipe_id", _an_hour_before(first.pipe))
        held.leave()
        scene.publish(b"5", end=scene.end)
        scene.bring_all(held if successor == "b" else scene.relay(successor))

        assert [entry.pipe.time > first.pipe.time for entry in scene.entries()] == [False, True]

    def test_a_deleted_queue_ends_it(self, scene):
        held = scene.relay("b")
        (record,) = scene.rows.read_queues("q")
        scene.rows.change_queue(record, replace(record, state=QueueState.DELETED, op=new_token()))
        scene.clock.seconds += 5

        with pytest.raises(QueueNotFoundError):
            held.step()

    def test_what_is_gone_is_told_or_skipped(self, scene):
        scene.clear()
        scene.publish(b"5", end=scene.end)

        with pytest.raises(OffsetGoneError):
            scene.relay("b").step()
        scene.bring_all(scene.relay("c", wishes=Wishes(lambda _: True, skips_gone=True)))

        assert scene.queued() == [b"5"]


def _an_hour_before(pipe):
    def new_pipe_id(at_ms=None):
        return ids.new_pipe_id(ids.id_time_ms(pipe) - 3_600_000 if at_ms is None else at_ms)

    return new_pipe_id


class TestTrouble:
    @pytest.mark.parametrize("trouble", [lose, refuse])
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("turn", range(4))
    def test_one_call_that_fails_loses_nothing_and_brings_nothing_twice(
        self, scene, call, when, trouble, turn
    ):
        if (call in WRITES) and when == "after" and trouble is refuse:
            trouble = lose  # what was written is never told as refused
        held = scene.relay("a")
        _step_through(scene, held, call, when, trouble, turn)

        for number in range(5, 8):
            scene.publish(b"%d" % number, end=scene.end)
        scene.bring_all(held if not held.is_lost else scene.relay("c"))

        assert scene.queued() == numbers(8)

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("turn", range(4))
    def test_whoever_comes_after_one_that_died_brings_the_rest(self, scene, call, when, turn):
        held = scene.relay("a")
        _step_through(scene, held, call, when, die, turn)
        scene.reap()

        for number in range(5, 8):
            scene.publish(b"%d" % number, end=scene.end)
        scene.bring_all(scene.relay("b"))

        assert scene.queued() == numbers(8)

    @pytest.mark.parametrize("call", WRITES)
    @pytest.mark.parametrize("turn", range(4))
    def test_whoever_stood_still_in_a_call_brings_nothing_twice(self, scene, call, turn):
        """Another relay comes by, and works, between a relay's decision and its write."""
        held = scene.relay("a")

        def come_by(*_, **__):
            scene.clock.seconds += 3600
            scene.reap()
            scene.bring_all(scene.relay("b"))
            scene.reap()

        _step_through(scene, held, call, "before", come_by, turn)
        scene.publish(b"5", end=scene.end)
        scene.bring_all(scene.relay("c"))

        assert scene.queued() == numbers(6)

    def test_who_leaves_with_a_batch_whose_answer_got_lost_seals_nothing(self, scene):
        held = scene.relay("a")
        scene.storage.after["append"] = lose
        with pytest.raises(OutcomeUnknownError):
            held.step()

        held.leave()
        scene.bring_all(scene.relay("b"))

        assert scene.queued() == numbers(5)

    def test_a_name_that_lands_late_is_refused(self, scene):
        """A pipe was named, nobody heard of it, and another one was; the first change is still under way."""
        held = scene.relay("a")
        flying = []

        def send(*change):
            flying.append(change)
            raise OutcomeUnknownError("lost")

        scene.storage.before["change_progress"] = send
        with pytest.raises(CassqError):
            held.step()
        scene.bring_all(held)
        assert not scene.rows.change_progress(*flying[0])

        scene.bring_all(scene.relay("b"))

        assert scene.queued() == numbers(5)

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_change_that_nobody_can_look_at_is_looked_at_before_all_else(self, scene, when):
        held = scene.relay("a")
        scene.bring_all(held)
        getattr(scene.storage, when)["change_progress"] = lose
        scene.storage.before["read_progress"] = refuse
        with pytest.raises(CassqError):
            held.leave()
        scene.reap()  # what was left may retire

        scene.publish(b"5", end=scene.end)
        scene.bring_all(held)

        assert scene.queued() == numbers(6)
        assert not held.is_lost


def _step_through(scene, held, call, when, what, turn):
    """Relay in several steps; in one of them something happens beside a call."""
    first = len(scene.queued())
    assert first == 0
    for number in range(4):
        if number == turn:
            getattr(scene.storage, when)[call] = what
        try:
            if number == 2:
                held.leave()
            else:
                held.step()
        except Killed:
            return
        except (CassqError, PartitionLostError):
            continue
    scene.storage.before.clear()
    scene.storage.after.clear()


class TestThreads:
    @pytest.fixture
    def relay(self, scene, monkeypatch):
        monkeypatch.setattr(relays, "PeriodicThread", Tended)
        bell = SimpleNamespace(listen=lambda *_: True, unlisten=lambda _: None)
        subscription = Subscription(scene.target.record.incarnation)
        made = relays.Relay(scene.elsewhere, bell, scene.target_elsewhere, subscription, scene.group)
        made.start()
        return made

    def test_an_outage_is_waited_for(self, scene, relay):
        relay._run_once()
        assert relay._step.seconds == 0.0  # something came
        relay._share = shared(refuse)
        pauses = []
        for _ in range(5):
            relay._run_once()
            pauses.append(relay._step.seconds)

        assert 0.0 < pauses[0] < pauses[-1] <= POLL_MAX_S

    def test_a_partition_in_trouble_holds_no_other_one_up(self, relay):
        steps = Counter()
        relay._share = shared(refuse, lambda: steps.update("b"), lambda: steps.update("c"))
        for _ in range(6):
            relay._run_once()

        assert min(steps["b"], steps["c"]) >= 6

    def test_each_partition_has_its_turn_however_slow_they_are(self, scene, relay):
        steps = Counter()

        def step(name):
            steps[name] += 1
            scene.clock.seconds += 0.3
            return True

        relay._share = shared(*(partial(step, name) for name in "abcde"))
        for _ in range(10):
            relay._run_once()

        assert len(steps) == 5
        assert max(steps.values()) <= min(steps.values()) + 4

    def test_ctrl_c_in_the_middle_of_a_close_leaves_the_partitions_to_others(self, scene, relay):
        relay._run_once()
        assert relay.partitions == [0]

        def interrupt():
            raise KeyboardInterrupt

        relay._step.close = interrupt
        with pytest.raises(KeyboardInterrupt):
            relay.close()

        assert relay.partitions == []
        assert relay.wait(0.0)
        scene.bring_all(scene.relay("b"))
        assert scene.queued() == numbers(5)

    def test_what_is_published_while_a_relay_begins_to_listen_is_heard_of(self, scene, relay):
        listened = []

        class BusyBell:
            def listen(self, _name, hear):
                listened.append(hear())
                return True

        relay._bell = BusyBell()
        while not listened:
            scene.clock.seconds += 2
            relay._run_once()

        assert not relay._is_heard


def shared(*steps):
    """Return a share of partitions that take these steps."""
    held = [SimpleNamespace(is_lost=False, step=step) for step in steps]
    return SimpleNamespace(held=lambda: held, has=lambda _: True, look=lambda: None, drop=lambda _: None)


class Tended:
    """A periodic thread that a test steps itself."""

    def __init__(self, *_):
        pass

    def repeat(self, *_):
        return SimpleNamespace(poke=lambda: None, close=lambda: None, seconds=0.0)


class TestOperators:
    def test_what_comes_after_a_reset_from_before_it_is_not_in_the_queue(self, scene):
        """A relay stands still, the subscription goes back, another relay goes on; then the first appends."""
        slow = scene.relay("b")
        scene.bring_all(slow)

        subscribe(scene)
        Group(scene.elsewhere, "q").reset({0: 6})
        scene.publish(b"5", end=scene.end)
        scene.bring_all(scene.relay("c"))
        with pytest.raises(PartitionLostError):
            work_on(scene, slow)

        assert scene.queued() == numbers(6)

    def test_what_comes_after_the_end_of_a_subscription_is_not_in_the_queue(self, scene):
        slow = scene.relay("b")
        scene.bring_all(slow)
        subscribe(scene)
        refused = []

        def come_by(*_):
            with pytest.raises(GroupNotFoundError) as found:
                scene.relay("c")
            refused.append(found)

        scene.storage.before["change_topic"] = come_by
        Group(scene.context, "q").delete(is_subscription=True)
        scene.publish(b"5", end=scene.end)
        with pytest.raises(PartitionLostError):
            work_on(scene, slow)

        assert refused
        assert scene.queued() == numbers(5)


class TestWhoElseEndsPipes:
    def test_a_popper_asks_once_a_second_whether_a_relay_goes_on(self, scene):
        scene.bring_all(scene.relay("b"))
        (entry,) = scene.entries()
        pipes = PipeList(scene.target)
        pipes.refresh(0)
        scene.clock.seconds += 3600
        pipes.refresh(0)
        asked = []
        for _ in range(10):
            scene.storage.before["read_progress"] = lambda *_: asked.append(scene.clock.seconds)
            assert not pipes.is_abandoned(entry)
            scene.clock.seconds += 0.3

        assert len(asked) == 3

    def test_a_named_pipe_is_not_sealed_and_is_once_it_was_left(self, scene):
        scene.bring_all(scene.relay("b"))
        reaper = Reaper(scene.target_elsewhere, "reaper", lambda _: None)
        reaper.run_once()
        scene.clock.seconds += 3600

        assert reaper.run_once().sealed == 0
        leave(scene)
        scene.clock.seconds += 2
        assert reaper.run_once().sealed == 1

    def test_a_named_pipe_that_is_over_does_not_retire_until_it_was_left(self, scene):
        scene.bring_all(scene.relay("b"))
        (entry,) = scene.entries()
        state = scene.rows.load_pipe(entry.pipe)
        OwnedPipe(scene.target_elsewhere, entry, state, Taker("popper")).take(100)
        scene.rows.mark(entry.pipe, [Mark(1, 5, End.COMMITTED)])
        assert scene.rows.transact(entry.pipe, Transaction(Seal(5))).is_applied

        assert scene.reap().retired == 0
        leave(scene)
        assert scene.reap().retired == 1

    @pytest.mark.parametrize("pusher", ["relay", "relay/x/0", "a pusher", "relay/00/1/2"])
    def test_another_pushers_pipe_is_nobodys_to_ask_for(self, scene, pusher):
        scene.bring_all(scene.relay("b"))
        (entry,) = scene.entries()

        assert entry.pusher == pusher_of(scene.key)
        assert not is_named(scene.rows, replace(entry, pusher=pusher))

    def test_a_message_without_its_place_is_told_as_damage(self, scene):
        held = scene.relay("b")
        scene.bring_all(held)
        scene.rows.append(scene.entries()[0].pipe, Batch(6, (b"x",), None, 1))

        with pytest.raises(CorruptError, match=OFFSET_HEADER):
            scene.relay("c").step()

    def test_what_was_handed_out_before_the_seal_is_in_front_of_it(self, scene):
        """A relay that stood still appends, and a popper takes it, while another one looks for the end."""
        slow = scene.relay("b")
        scene.bring_all(slow)
        (entry,) = scene.entries()

        def append_and_take(*_, **__):
            scene.publish(b"5", end=scene.end)
            scene.bring_all(slow)
            state = scene.rows.load_pipe(entry.pipe)
            owned = OwnedPipe(scene.target_elsewhere, entry, state, Taker("popper"))
            assert [taken.count for taken in owned.take(100).runs] == [6]

        scene.storage.after["read_batches"] = append_and_take
        scene.bring_all(scene.relay("a"))

        assert scene.queued() == numbers(6)

    def test_a_pipe_that_others_sealed_under_its_hands_is_gone_on_from(self, scene):
        """As a reaper of an older version may: what came behind the seal is brought once more."""
        held = scene.relay("b")
        scene.bring_all(held)
        assert scene.rows.transact(scene.entries()[0].pipe, Transaction(Seal(3))).is_applied
        for number in range(5, 150):
            scene.publish(b"%d" % number, end=scene.end)

        scene.bring_all(held)

        assert scene.queued() == numbers(150)

    def test_a_named_pipe_that_was_deleted_is_told_of(self, scene):
        """As a reaper of an older version may."""
        scene.bring_all(scene.relay("b"))
        scene.rows.delete_pipe("q", scene.entries()[0].pipe)
        scene.storage.create_pipe = lambda *_, **__: None  # as where deletions stand

        with pytest.raises(CorruptError, match="reset"):
            scene.relay("a").step()

        subscribe(scene)
        Group(scene.context, "q").reset({0: 4})
        scene.bring_all(scene.relay("b"))
        assert scene.queued() == [b"3", b"4"]

    def test_a_subscription_whose_pipe_was_deleted_can_be_ended(self, scene):
        scene.bring_all(scene.relay("b"))
        scene.rows.delete_pipe("q", scene.entries()[0].pipe)
        scene.storage.create_pipe = lambda *_, **__: None
        subscribe(scene)

        Group(scene.context, "q").delete(is_subscription=True)

        assert scene.progress() is None

    def test_a_seal_of_another_relay_is_where_it_ends(self, scene):
        """It was sealed before all that was sent had come; what came later is brought once more."""
        held = scene.relay("b")
        scene.bring_all(held)
        (entry,) = scene.entries()
        assert scene.rows.transact(entry.pipe, Transaction(Seal(3))).is_applied

        scene.bring_all(scene.relay("c"))

        assert scene.queued() == numbers(5)
