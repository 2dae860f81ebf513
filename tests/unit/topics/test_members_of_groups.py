"""What comes between the calls of the members of a group, and of who resets it."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interrupted import lose, refuse
from support.topic_scene import TopicScene, hand_out, offsets

from cassq.errors import AccessDeniedError, GroupNotFoundError, OutcomeUnknownError, PartitionLostError
from cassq.model.ids import new_token
from cassq.model.topic import Progress, first_head
from cassq.topics import consumer as consumers
from cassq.topics.bell import Bell
from cassq.topics.consumer import Consumer
from cassq.topics.group import Group
from cassq.topics.log_end import LogEnd


@pytest.fixture
def scene():
    return TopicScene()


@pytest.fixture
def group(scene):
    return scene.group().ensure("earliest")


def deny(*_, **__):
    raise AccessDeniedError("no more")


def publish(scene, count):
    end = LogEnd(scene.elsewhere, 0)
    for each in range(count):
        scene.publish(b"%d" % each, end=end)


def next_of(scene, group):
    return scene.rows.read_progress(group, 0).next


class TestAgain:
    def test_a_message_that_went_back_already_moves_nothing_forward(self, scene, group):
        """It, and one before it, went back; the one before is being read again as it goes back once more."""
        publish(scene, 3)
        held = scene.member(group, "a")
        first, _, third = hand_out(held)
        first.again()
        scene.storage.after["read_log"] = lambda *_, **__: third.again()

        read = [*hand_out(held), *hand_out(held)]
        held.commit_all()

        assert next_of(scene, group) == 1
        assert offsets(read)[:1] == [1]

    def test_a_message_that_is_done_goes_back_and_moves_no_progress(self, scene, group):
        publish(scene, 2)
        held = scene.member(group, "a")
        first, second = hand_out(held)
        first.done()
        second.done()
        held.commit_all()

        first.again()
        held.commit_all()

        assert next_of(scene, group) == 3
        assert offsets(hand_out(held)) == [1, 2]

    @settings(max_examples=300)
    @given(data=st.data())
    def test_whatever_goes_back_no_message_is_skipped(self, data):
        scene = TopicScene()
        publish(scene, 4)
        group = scene.group().ensure("earliest")
        held = scene.member(group, "a", lambda each: each.body != b"2")
        handed, done, wanted = [], set(), {1, 2, 4, 5, 6, 7, 8}
        chosen = st.sampled_from(["read", "done", "again", "commit", "lost", "refused", "publish"])

        def act(what):
            match what:
                case "read":
                    handed.extend(hand_out(held))
                case "publish":
                    scene.publish(b"x")
                case "commit":
                    held.commit()
                case "lost" | "refused":
                    how = data.draw(st.sampled_from(["before", "after"]))
                    getattr(scene.storage, how)["change_progress"] = lose if what == "lost" else refuse
                    with suppress(Exception):
                        held.commit()
                    scene.storage.before.pop("change_progress", None)
                    scene.storage.after.pop("change_progress", None)
                case _ if handed:
                    message = data.draw(st.sampled_from(handed))
                    if what == "again":
                        message.again()
                    else:
                        message.done()
                        done.add(message.offset)

        for what in data.draw(st.lists(chosen, max_size=14)):
            if what == "read" and data.draw(st.booleans()):
                inner = data.draw(st.sampled_from(["done", "again", "commit"]))
                scene.storage.after["read_log"] = lambda *_, inner=inner, **__: act(inner)
            act(what)
            scene.storage.after.pop("read_log", None)
            assert wanted & set(range(1, next_of(scene, group))) <= done


class TestCommits:
    def test_done_with_each_is_told_only_once_its_own_progress_stands(self, scene, group):
        """The commit before it had no answer, and was applied: so its own is refused at first."""
        publish(scene, 2)
        held = scene.member(group, "a", is_each=True)
        first, second = hand_out(held)
        scene.storage.after["change_progress"] = lose
        with pytest.raises(OutcomeUnknownError):
            first.done()

        second.done()

        assert next_of(scene, group) == 3

    def test_a_commit_that_lands_late_never_moves_the_progress_back(self, scene, group):
        publish(scene, 2)
        held = scene.member(group, "a")
        first, second = hand_out(held)
        sent = []
        scene.storage.before["change_progress"] = lambda *values, **__: (sent.append(values), lose())
        first.done()
        with pytest.raises(OutcomeUnknownError):
            held.commit()
        second.done()
        held.commit_all()

        assert not scene.rows.change_progress(*sent[0])
        assert next_of(scene, group) == 3

    @pytest.mark.parametrize("call", ["read_progress", "change_progress"])
    def test_a_reset_beside_a_take_over_is_not_undone_by_it(self, scene, group, call):
        publish(scene, 3)
        one = scene.member(group, "a")
        for message in hand_out(one):
            message.done()
        one.commit_all()
        scene.storage.before[call] = lambda *_, **__: scene.group().reset("earliest")

        other = scene.member(group, "b")

        assert offsets(hand_out(other)) == [1, 2, 3]
        with pytest.raises(PartitionLostError):
            one.check()

    def test_a_take_over_that_lands_late_is_one_take_over(self, scene, group):
        publish(scene, 1)
        sent = []
        scene.storage.before["change_progress"] = lambda *values, **__: (sent.append(values), lose())
        scene.storage.after["read_progress"] = lambda *_, **__: scene.storage.after.update(
            read_progress=lambda *_, **__: scene.rows.change_progress(*sent[0])
        )

        held = scene.member(group, "a")

        for message in hand_out(held):
            message.done()
        held.commit_all()
        assert next_of(scene, group) == 2


class TestLeaving:
    def test_what_is_read_as_the_partition_is_about_to_go_is_not_handed_out(self, scene, group):
        publish(scene, 1)
        held = scene.member(group, "a")
        idle = []

        def leave(*_, **__):
            held.is_leaving = True
            idle.append(held.is_idle)

        scene.storage.after["read_log"] = leave

        assert hand_out(held) == []
        assert idle == [True]

    def test_what_is_read_as_the_partition_is_lost_is_not_handed_out(self, scene, group):
        publish(scene, 1)
        held = scene.member(group, "a")
        scene.storage.after["read_log"] = lambda *_, **__: setattr(held, "is_lost", True)

        assert hand_out(held) == []


class TestResets:
    def test_a_reset_that_ends_in_an_outage_on_the_way_is_told_as_unknown(self):
        scene = TopicScene(partitions=2)
        for partition in (0, 1):
            place = scene.context.key(partition).segment(1)
            scene.rows.create_segment(place, first_head(place, 1))
        group = Group(scene.context, "g")
        group.ensure("earliest")
        scene.storage.after["change_progress"] = lambda *_, **__: scene.storage.before.update(
            read_progress=refuse
        )

        with pytest.raises(OutcomeUnknownError):
            group.reset("earliest")

    def test_a_group_made_anew_outlives_the_deletion_of_the_one_before(self, scene):
        old = scene.group().ensure("earliest")
        made = []
        scene.storage.before["read_topics"] = lambda *_, **__: (
            scene.group().delete(),
            made.append(scene.group().ensure("earliest")),
        )

        Group(scene.context, "g").delete()

        assert made != [old]
        assert scene.group().find() == made[0]


class Tended:
    """A periodic thread that a test steps itself."""

    def __init__(self, *_):
        pass

    def repeat(self, *_):
        return SimpleNamespace(poke=lambda: None, close=lambda: None)


class TestConsumers:
    @pytest.fixture
    def make(self, scene, monkeypatch):
        monkeypatch.setattr(consumers, "PeriodicThread", Tended)

        def make(**how):
            bell = Bell(scene.coordinator, "t", scene.clock, str(new_token()))
            options = {"commit": "grouped", "types": None, "start": "earliest"} | how
            return Consumer(scene.context, bell, Group(scene.context, "g"), **options)

        return make

    def tend(self, scene, *members):
        for _ in range(3):
            scene.clock.seconds += 2.0
            for each in members:
                each._tend()

    def test_what_is_done_by_hand_stays_with_its_member_until_it_is_committed(self, scene, make):
        publish(scene, 2)
        one = make(commit="manual")
        self.tend(scene, one)
        messages = one.poll()
        (held,) = one._share.held()
        one.leave(held)
        for each in messages:
            each.done()
        self.tend(scene, one)

        one.commit()

        assert scene.rows.list_progress(scene.group().find(), 1)[0].next == 3

    def test_what_is_done_by_hand_and_lost_is_told_by_the_commit(self, scene, make):
        publish(scene, 2)
        one = make(commit="manual")
        self.tend(scene, one)
        messages = one.poll()
        (held,) = one._share.held()
        scene.storage.before["change_progress"] = lambda *_, **__: scene.group().reset("earliest")

        with pytest.raises(PartitionLostError):
            one.commit(messages)

        assert held.is_lost

    def test_a_partition_that_goes_between_the_end_of_messages_and_their_commit_is_told(self, scene, make):
        publish(scene, 2)
        one = make(commit="manual")
        self.tend(scene, one)
        messages = one.poll()
        (held,) = one._share.held()
        done = held.end

        def end(message):
            done(message)
            if message is messages[-1]:
                one._share.drop(held)

        held.end = end

        with pytest.raises(PartitionLostError):
            one.commit(messages)

    def test_two_members_share_nothing_though_a_read_takes_longer_than_the_leave(self, scene, make):
        publish(scene, 2)
        one = make()
        self.tend(scene, one)
        (held,) = one._share.held()
        others = []

        def leave(*_, **__):
            one.leave(held)
            if held.is_idle:
                one._let_go(held)
            two = make()
            self.tend(scene, two)
            others.extend(two.poll())

        scene.storage.after["read_log"] = leave

        assert one.poll() == []
        assert offsets(others) == [1, 2]

    def test_a_reset_that_the_record_was_never_told_of_is_heard_of_all_the_same(self, scene, make):
        publish(scene, 2)
        one = make()
        self.tend(scene, one)
        for each in one.poll():
            each.done()
        self.tend(scene, one)
        group = scene.group().find()
        seen = scene.rows.read_progress(group, 0)

        assert scene.rows.change_progress(group, seen, Progress(0, seen.epoch + 1, "", 1))
        self.tend(scene, one)

        assert offsets(one.poll()) == [1, 2]

    def test_a_partition_is_let_go_once_what_was_handed_out_of_it_is_done(self, scene, make):
        publish(scene, 2)
        one = make()
        self.tend(scene, one)
        messages = one.poll()
        (held,) = one._share.held()

        one.leave(held)
        one._tend()
        assert one._share.held() == [held]
        for each in messages:
            each.done()
        one._tend()

        assert held not in one._share.held()
        assert next_of(scene, scene.group().find()) == 3

    def test_a_member_whose_group_is_gone_stands_in_the_way_of_no_other(self, scene, make):
        one = make()
        self.tend(scene, one)
        assert one.partitions == [0]
        scene.group().delete()
        self.tend(scene, one)

        two = make()
        self.tend(scene, one, two)

        with pytest.raises(GroupNotFoundError):
            one.poll()
        assert two.partitions == [0]

    def test_a_member_that_was_once_denied_access_keeps_nothing_that_nobody_polls(self, scene, make):
        publish(scene, 1)
        one = make()
        self.tend(scene, one)
        scene.storage.before["glance_topic"] = deny
        self.tend(scene, one)

        two = make()
        self.tend(scene, one, two)

        with pytest.raises(AccessDeniedError):
            one.poll()
        assert offsets(two.poll()) == [1]
