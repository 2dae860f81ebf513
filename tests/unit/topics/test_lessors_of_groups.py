"""What clients have of a group's messages, whatever comes between: two processes, lost replies, late ones."""

import base64
import threading
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interrupted import lose, refuse
from support.topic_scene import TopicScene, offsets

import cassq
from cassq.errors import (
    CassqError,
    InvalidOptionError,
    OffsetGoneError,
    OutcomeUnknownError,
    PartitionLostError,
)
from cassq.model.group_lease import GroupLease
from cassq.topics.group_leases import GroupLeases
from cassq.topics.group_line import GroupLine
from cassq.topics.lending import IDLE_S, Lending
from cassq.topics.log_end import LogEnd
from cassq.topics.wishes import Wishes

LEASE_S = 30.0


class Process:
    """A process that lends, whose thread does its work when it is told to."""

    def __init__(self, scene, context, **wishes):
        self.line = GroupLine(scene.clock, lambda: None)
        self.lending = Lending(context, scene.group(), Wishes(lambda _: True, **wishes), lambda: None)
        self.leases = GroupLeases(context, self.lending.group_id)

    def ask(self, limit=10, lease_s=LEASE_S):
        """Have a client stand in line; return its future."""
        return self.line.join(limit, timedelta(seconds=lease_s), self.lending.take_back)

    def work(self):
        self.lending.look(is_asked=len(self.line) > 0)
        self.lending.serve(self.line)

    def lease(self, limit=10, lease_s=LEASE_S):
        """Return what a client gets now, or None."""
        future = self.ask(limit, lease_s)
        self.work()
        self.work()  # what the first look lets go of, the second one may claim
        self.line.end([future])
        return next(iter(future.result(0)), None)


@pytest.fixture
def scene():
    made = TopicScene()
    made.group().ensure("earliest")
    return made


@pytest.fixture
def here(scene):
    return Process(scene, scene.context)


@pytest.fixture
def there(scene):
    return Process(scene, scene.elsewhere)


def publish(scene, count):
    end = LogEnd(scene.elsewhere, 0)
    for each in range(count):
        scene.publish(b"%d" % each, end=end)


def next_of(scene):
    return scene.rows.read_progress(scene.group().find(), 0).next


class TestOneClient:
    def test_has_messages_of_a_partition_at_a_time(self, scene, here):
        publish(scene, 3)
        first = here.lease(2)
        assert offsets(first.messages) == [1, 2]
        assert here.lease() is None
        here.lending.note_committed(here.leases.commit(first.token))
        assert offsets(here.lease().messages) == [3]

    def test_that_commits_elsewhere_is_heard_of(self, scene, here, there):
        publish(scene, 3)
        first = here.lease(2)
        there.leases.commit(first.token)
        scene.clock.seconds += 1
        assert offsets(here.lease().messages) == [3]

    def test_that_left_before_it_was_told_takes_nothing_along(self, scene, here):
        publish(scene, 3)
        gone, other = here.ask(), here.ask(2)
        gone.give_back()
        here.work()
        assert offsets(other.result(0)[0].messages) == [1, 2]
        other.give_back()  # it was told nothing
        assert offsets(here.lease().messages) == [1, 2, 3]

    def test_whose_time_is_over_touches_nothing_once_others_have_its_messages(self, scene, here):
        publish(scene, 2)
        slow = here.lease()
        scene.clock.seconds += LEASE_S
        other = here.lease()
        assert offsets(other.messages) == [1, 2]
        assert other.epoch > slow.epoch
        with pytest.raises(PartitionLostError):
            here.leases.commit(slow.token)
        assert next_of(scene) == 1

    def test_whose_time_is_over_may_commit_as_long_as_nobody_has_its_messages(self, scene, here, there):
        publish(scene, 2)
        slow = here.lease(1)
        scene.clock.seconds += LEASE_S
        there.leases.commit(slow.token)
        assert offsets(here.lease().messages) == [2]

    def test_that_gives_back_cannot_commit_what_others_get(self, scene, here, there):
        publish(scene, 1)
        leased = here.lease()
        there.leases.release(leased.token)
        there.leases.release(leased.token)
        scene.clock.seconds += 1
        assert offsets(here.lease().messages) == [1]
        with pytest.raises(PartitionLostError):
            there.leases.commit(leased.token)

    @pytest.mark.parametrize("how", ["before", "after"])
    def test_whose_commit_has_no_answer_is_told_what_stands(self, scene, here, how):
        publish(scene, 1)
        leased = here.lease()
        getattr(scene.storage, how)["change_progress"] = lose
        here.leases.commit(leased.token)
        assert next_of(scene) == 2

    def test_whose_commits_never_have_an_answer_is_told_that_nobody_knows(self, scene, here, monkeypatch):
        publish(scene, 1)
        leased = here.lease()
        monkeypatch.setattr(here.leases, "_storage", Deaf(scene.rows))
        with pytest.raises(OutcomeUnknownError):
            here.leases.commit(leased.token)

    def test_is_told_that_what_comes_next_was_deleted(self, scene, here):
        publish(scene, 2)
        scene.clear()
        waits = here.ask()
        here.work()
        with pytest.raises(OffsetGoneError):
            waits.result(0)

    def test_goes_on_at_the_oldest_where_that_is_wished(self, scene):
        publish(scene, 2)
        scene.clear()
        publish(scene, 1)
        process = Process(scene, scene.context, skips_gone=True)
        leased = process.lease()
        assert offsets(leased.messages) == [3]
        process.leases.commit(leased.token)
        assert next_of(scene) == 4


class Deaf:
    """A storage none of whose changes has an answer, or is carried out."""

    def __init__(self, rows):
        self.read_progress = rows.read_progress

    def change_progress(self, *_):
        raise OutcomeUnknownError("lost")


class TestAMember:
    def test_that_nobody_asks_lets_go_of_what_it_has_not_lent(self, scene, here, there):
        publish(scene, 1)
        leased = here.lease()
        here.lending.note_committed(here.leases.commit(leased.token))
        publish(scene, 1)
        assert there.lease() is None
        scene.clock.seconds += IDLE_S
        here.work()
        scene.clock.seconds += 1
        assert offsets(there.lease().messages) == [2]

    def test_that_nobody_asks_keeps_what_a_client_has(self, scene, here, there):
        publish(scene, 2)
        leased = here.lease(1)
        scene.clock.seconds += 10 * IDLE_S
        here.work()
        assert there.lease() is None
        here.leases.commit(leased.token)

    def test_that_ends_lets_others_have_all(self, scene, here, there):
        publish(scene, 2)
        leased = here.lease(1)
        here.lending.close()
        assert offsets(there.lease().messages) == [1, 2]
        with pytest.raises(PartitionLostError):
            there.leases.commit(leased.token)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_happens_nothing_is_skipped_and_who_was_given_up_commits_nothing(data):
    story = Story(data)
    for _ in range(data.draw(st.integers(1, 25))):
        story.go_on()
    story.end()


class Story:
    """Two processes, their clients and an operator.

    Attributes:
        worked: the offsets that some client said were done, since the last reset.
        over: leases whose messages others have by now.
    """

    ACTS = (
        *("ask", "ask", "ask", "commit", "commit", "commit", "release"),
        *("publish", "pass", "work", "reset", "land"),
    )

    def __init__(self, data):
        self.data = data
        self.scene = TopicScene()
        self.scene.group().ensure("earliest")
        publish(self.scene, 3)
        self.processes = [Process(self.scene, each) for each in (self.scene.context, self.scene.elsewhere)]
        self.given = []  # leases, and by which process
        self.worked = set()
        self.over = set()
        self.late = []

    def draw(self, *of):
        return self.data.draw(st.sampled_from(of))

    def go_on(self):
        getattr(self, f"do_{self.draw(*self.ACTS)}")()
        self.scene.storage.before.clear()
        self.scene.storage.after.clear()
        assert set(range(1, next_of(self.scene))) <= self.worked

    def do_publish(self):
        publish(self.scene, 1)

    def do_pass(self):
        self.scene.clock.seconds += self.draw(0.3, 1.0, 2.5, 31.0)

    def do_work(self):
        with suppress(CassqError):
            self.draw(*self.processes).work()

    def do_reset(self):
        self.scene.group().reset("earliest")
        self.worked.clear()

    def do_ask(self):
        process = self.draw(*self.processes)
        self.disturb()
        try:
            leased = process.lease(self.draw(1, 2, 5))
        except (CassqError, TimeoutError):
            process.line.end_all()
            return
        if leased is None:
            return
        own = set(offsets(leased.messages))
        row = self.scene.rows.read_progress(self.scene.group().find(), 0)
        if leased.epoch == row.epoch:
            assert leased.messages[0].offset == row.next
            self.over |= {token for token, _, has in self.given if has & own}
        else:  # an operator came by, and the member has not heard of it
            self.over.add(leased.token)
        self.given.append((leased.token, process, own))

    def do_commit(self):
        self.settle("commit")

    def do_release(self):
        self.settle("release")

    def settle(self, how):
        if not self.given:
            return
        token, home, has = self.draw(*self.given)
        self.disturb()
        is_over, before = token in self.over, set(self.worked)
        if how == "commit":
            self.worked |= has
        try:
            lease = getattr(self.draw(*self.processes).leases, how)(token)
        except CassqError as error:
            if isinstance(error, PartitionLostError):
                self.worked = before
            return
        if how == "commit" and is_over:
            # Others have its messages: that is all right only where it was committed before they had them.
            assert next_of(self.scene) > max(has)
        if self.draw(True, False):
            (home.lending.note_committed if how == "commit" else home.lending.drop)(lease)

    def disturb(self):
        """Have the next change lose its answer, or land later, or not be carried out at all."""
        match self.draw("", "", "", "lost", "refused", "late"):
            case "lost":
                getattr(self.scene.storage, self.draw("before", "after"))["change_progress"] = lose
            case "refused":
                getattr(self.scene.storage, self.draw("before", "after"))["change_progress"] = refuse
            case "late":
                self.scene.storage.before["change_progress"] = self.defer

    def defer(self, *change):
        self.late.append(change)
        raise OutcomeUnknownError("lost")

    def do_land(self):
        if self.late:
            group, seen, wanted = change = self.late.pop(0)
            assert group == self.scene.group().find()
            if self.scene.rows.change_progress(*change) and wanted.epoch == seen.epoch:
                self.worked |= set(range(seen.next, wanted.next))  # its client said so when it was sent

    def end(self):
        """Have one client do all that is left."""
        self.late.clear()
        last = self.scene.read()[-1].offset
        for _ in range(60):
            self.scene.clock.seconds += LEASE_S + 1
            for process in self.processes:
                process.work()
            if next_of(self.scene) > last:
                return
            if leased := self.processes[0].lease():
                self.processes[0].lending.note_committed(self.processes[0].leases.commit(leased.token))
        pytest.fail("messages are left")


class TestTokens:
    LEASE = GroupLease(3, 7, 100, 150, "host-1-abcdefgh")

    def test_come_back_as_they_were(self):
        group = uuid4()
        assert GroupLease.parse(self.LEASE.to_text(group), group) == self.LEASE

    def test_are_of_one_group(self):
        with pytest.raises(InvalidOptionError, match="of another group"):
            GroupLease.parse(self.LEASE.to_text(uuid4()), uuid4())

    @given(text=st.text(max_size=200))
    def test_are_no_texts_that_somebody_made_up(self, text):
        with pytest.raises(InvalidOptionError):
            GroupLease.parse(text, uuid4())

    @pytest.mark.parametrize("given", [None, 7, b"AQ", ["AQ"]])
    def test_are_texts(self, given):
        with pytest.raises(InvalidOptionError, match="no lease"):
            GroupLease.parse(given, uuid4())

    def test_that_were_altered_anywhere_are_none(self):
        group = uuid4()
        token = self.LEASE.to_text(group)
        for place in range(len(token)):
            for letter in "A_z9":
                changed = token[:place] + letter + token[place + 1 :]
                if base64.urlsafe_b64decode(changed + "==") != base64.urlsafe_b64decode(token + "=="):
                    with pytest.raises(InvalidOptionError):
                        GroupLease.parse(changed, group)


class TestTheLessor:
    @pytest.fixture
    def topic(self):
        with cassq.connect("memory:") as store:
            made = store.topic("t", partitions=2)
            made.declare_group("g")
            yield made

    def test_tells_who_waits_nothing_when_it_is_closed(self, topic):
        lessor = topic.lessor("g")
        futures = [lessor.lease_soon() for _ in range(5)]
        lessor.close()
        assert [each.result(20) for each in futures] == [[]] * 5
        with pytest.raises(cassq.ClosedError):
            lessor.lease_soon()

    def test_whose_group_was_deleted_tells_who_waits(self, topic):
        with topic.lessor("g") as lessor:
            future = lessor.lease_soon()
            topic.delete_group("g")
            with pytest.raises(cassq.GroupNotFoundError):
                future.result(20)
            assert lessor.is_over

    def test_has_one_thread_for_all_who_wait(self, topic):
        with topic.lessor("g") as lessor:
            lessor.lease(1, 0)
            before = threading.active_count()
            futures = [lessor.lease_soon(1) for _ in range(300)]
            assert threading.active_count() == before
            topic.publish_many([b"x"] * 300)
            for _ in range(300):
                leased = next(each for each in futures if each.done() or each.result(20))
                futures.remove(leased)
                lessor.commit(leased.result(0)[0].token)

    @pytest.mark.parametrize("lease", [timedelta(0), timedelta(hours=2), 30, None, "30s"])
    def test_lends_for_a_sensible_time_alone(self, topic, lease):
        with topic.lessor("g") as lessor, pytest.raises(InvalidOptionError, match="lease"):
            lessor.lease(lease=lease)

    def test_is_of_a_group_that_is_there_and_is_no_subscription(self, topic):
        with pytest.raises(cassq.GroupNotFoundError):
            topic.lessor("none")
