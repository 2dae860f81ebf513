"""A caller may be torn out of a read, a poll or an end anywhere, as by Ctrl-C: nothing is skipped."""

from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from support.topic_scene import TopicScene, hand_out, offsets
from support.torn import LIBRARY, is_ended_before

from cassq.model.ids import new_token
from cassq.topics import consumer as consumers
from cassq.topics.bell import Bell
from cassq.topics.consumer import Consumer
from cassq.topics.group import Group
from cassq.topics.log_end import LogEnd
from cassq.topics.topic_reader import TopicReader

COUNT = 5

TOPICS = f"{LIBRARY}/topics/"


@pytest.fixture
def scene():
    scene = TopicScene()
    end = LogEnd(scene.elsewhere, 0)
    for each in range(COUNT):
        scene.publish(b"%d" % each, end=end)
    return scene


@pytest.fixture
def bell(scene):
    return Bell(scene.coordinator, "t", scene.clock, str(new_token()))


class Tended:
    """A periodic thread that a test steps itself."""

    def __init__(self, *_):
        pass

    def repeat(self, *_):
        return SimpleNamespace(poke=lambda: None, close=lambda: None)


def make_consumer(scene, bell, monkeypatch):
    monkeypatch.setattr(consumers, "PeriodicThread", Tended)
    group = Group(scene.context, str(new_token()))
    made = Consumer(scene.context, bell, group, commit="grouped", types=None, start="earliest")
    for _ in range(3):
        scene.clock.seconds += 2.0
        made._tend()
    assert made.partitions == [0]
    return made, group


def put_into(found, read, limit):
    found += read(limit)


def next_of(scene, group):
    return scene.rows.read_progress(group.find(), 0).next


def open_reader(scene, bell, start="earliest"):
    return TopicReader(scene.context, bell, start=start, partitions=None, types=None, on_gone="error")


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_whoever_is_torn_out_of_a_read_skips_nothing(scene, bell, limit):
    for line in count(1):
        reader = open_reader(scene, bell)
        found = []
        is_through = is_ended_before(line, partial(put_into, found, reader.read_many, limit), TOPICS)
        saved = reader.positions
        while more := reader.read_many(limit):
            found += more
        assert offsets(found) == [*range(1, COUNT + 1)], line
        assert saved[0] <= COUNT + 1
        if is_through:
            break
    assert line > 5


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_where_whoever_is_torn_out_of_a_read_is_told_to_go_on_nothing_is_skipped(scene, bell, limit):
    for line in count(1):
        reader = open_reader(scene, bell)
        found = []
        is_through = is_ended_before(line, partial(put_into, found, reader.read_many, limit), TOPICS)
        again = open_reader(scene, bell, reader.positions)
        while more := again.read_many(limit):
            found += more
        assert offsets(found) == [*range(1, COUNT + 1)], line
        if is_through:
            break
    assert line > 10


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_whoever_is_torn_out_of_a_poll_is_handed_all_and_progress_passes_nothing(
    scene, bell, monkeypatch, limit
):
    for line in count(1):
        one, group = make_consumer(scene, bell, monkeypatch)
        found = []
        is_through = is_ended_before(line, partial(put_into, found, one.poll, limit), TOPICS)
        one._tend()
        assert next_of(scene, group) == 1
        while more := one.poll(limit):
            found += more
        assert offsets(found) == [*range(1, COUNT + 1)], line
        for message in found:
            message.done()
        one._tend()
        assert next_of(scene, group) == COUNT + 1
        one.close()
        group.delete()
        if is_through:
            break
    assert line > 10


@pytest.mark.parametrize("what", ["done", "again"])
def test_whoever_is_torn_out_of_the_end_of_a_message_loses_none(scene, bell, monkeypatch, what):
    for line in count(1):
        one, group = make_consumer(scene, bell, monkeypatch)
        first, second, third, *_ = one.poll()
        first.done()
        third.done()
        is_through = is_ended_before(line, getattr(second, what), TOPICS)
        one._tend()
        assert next_of(scene, group) <= (4 if second.is_done else 2)
        one.close()

        held = scene.member(group.find(), "another")
        came = offsets(hand_out(held))
        assert came == [*range(next_of(scene, group), COUNT + 1)], line
        group.delete()
        if is_through:
            break
    assert line > 5


def test_whoever_is_torn_out_of_a_commit_loses_nothing(scene, bell, monkeypatch):
    for line in count(1):
        one, group = make_consumer(scene, bell, monkeypatch)
        messages = one.poll(3)
        is_through = is_ended_before(line, partial(one.commit, messages), TOPICS)
        one.close()
        done = [each for each in messages if each.is_done]
        progress = next_of(scene, group)
        assert 1 <= progress <= len(done) + 1
        group.delete()
        if is_through:
            break
    assert line > 10
    assert progress == 4
