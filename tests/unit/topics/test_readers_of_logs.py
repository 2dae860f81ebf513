"""What comes between the calls of who reads a log."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.interrupted import Interrupted
from support.topic_scene import TopicScene, offsets

from cassq.errors import CorruptError, OffsetGoneError
from cassq.model.ids import new_token
from cassq.topics.bell import Bell
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.segments import Segments
from cassq.topics.topic_reader import TopicReader


@pytest.fixture
def scene():
    return TopicScene()


class Damaged:
    """A storage that has lost a batch, or what is in it."""

    def __init__(self, storage, is_lost):
        self._storage = storage
        self._is_lost = is_lost
        self.reads = 0

    def read_log(self, place, query):
        self.reads += 1
        assert self.reads < 100, "it reads for ever"
        found = self._storage.read_log(place, replace(query, limit=query.limit + 10))
        return [each for each in found if not self._is_lost(each, query)][: query.limit]

    def __getattr__(self, name):
        return getattr(self._storage, name)


class TestLogReader:
    def test_a_log_with_a_hole_is_told_as_damaged(self, scene):
        end = LogEnd(scene.elsewhere, 0)
        for body in (b"1", b"2", b"3"):
            scene.publish(body, end=end)
        reader = LogReader(scene.context_of(Damaged(scene.rows, lambda each, _: each.first == 2)), 0, 1)

        assert offsets(reader.read()) == [1]

        with pytest.raises(CorruptError):
            reader.read()

    def test_a_batch_whose_bodies_are_lost_is_told_as_damaged(self, scene):
        scene.publish(b"1")
        reader = LogReader(scene.context_of(Damaged(scene.rows, lambda _, query: not query.is_outline)), 0, 1)

        with pytest.raises(CorruptError):
            reader.read()

    def test_a_log_with_a_hole_is_told_as_damaged_though_others_publish_all_the_time(self, scene):
        scene.publish(b"1")
        damaged = Damaged(scene.rows, lambda each, _: each.first == 1)
        reader = LogReader(scene.context_of(damaged), 0, 1)
        scene.rows.glance_head = lambda place: (scene.publish(b"more"), scene.rows.load_head(place))[1]

        with pytest.raises(CorruptError):
            reader.read()

    def test_a_batch_that_is_on_its_way_to_all_replicas_is_read_once_the_head_is_settled(self, scene):
        scene.publish(b"1")
        slow = Damaged(scene.rows, lambda *_: not settled)
        settled = []
        slow.load_head = lambda place: (settled.append(place), scene.rows.load_head(place))[1]

        assert offsets(LogReader(scene.context_of(slow), 0, 1).read()) == [1]

    def test_a_reader_at_the_end_of_a_segment_that_goes_reads_on_in_the_next_one(self, scene):
        scene.publish(b"1")
        reader = LogReader(scene.context, 0, 1)
        assert offsets(reader.read()) == [1]
        scene.storage.after["read_log"] = lambda *_, **__: (scene.clear(), scene.publish(b"2"))

        assert offsets(reader.read()) == [2]

    @pytest.mark.parametrize("call", ["list_segments", "read_log", "glance_head"])
    def test_what_is_cleared_while_it_is_read_is_told_as_gone(self, scene, call):
        scene.publish(b"1")
        reader = LogReader(scene.context, 0, 1)
        scene.storage.before[call] = lambda *_, **__: (scene.clear(), scene.publish(b"2"))

        try:
            assert offsets(reader.read()) == [1]
        except OffsetGoneError as error:
            assert error.oldest == 2


class TestWhereALogBeginsAndEnds:
    def test_the_end_is_found_though_its_segment_goes_before_its_head_is_read(self, scene):
        scene.publish(b"1")
        scene.storage.after["list_segments"] = lambda *_, **__: scene.clear()

        assert Segments(scene.context, 0).latest() == 2

    def test_the_beginning_is_found_though_all_segments_go_before_their_heads_are_read(self, scene):
        scene.publish(b"1")
        scene.storage.after["list_segments"] = lambda *_, **__: scene.clear()

        assert Segments(scene.context, 0).earliest() == 2

    def test_a_time_is_found_though_all_segments_go_before_their_heads_are_read(self, scene):
        scene.publish(b"1")
        scene.storage.after["list_segments"] = lambda *_, **__: scene.clear()

        assert Segments(scene.context, 0).offset_at(datetime.now(UTC) + timedelta(days=1)) == 2

    def test_a_time_is_found_though_its_segment_goes_while_it_is_read(self, scene):
        scene.publish(b"1")
        scene.storage.before["read_log"] = lambda *_, **__: (scene.clear(), scene.publish(b"2"))

        assert Segments(scene.context, 0).offset_at(datetime(2000, 1, 1, tzinfo=UTC)) == 2


class TestTopicReader:
    @pytest.mark.parametrize("call", range(1, 5))
    def test_a_reader_that_skips_what_is_gone_skips_it_again_where_retention_is_faster(self, scene, call):
        scene.publish(b"1")
        bell = Bell(scene.coordinator, "t", scene.clock, str(new_token()))
        reader = TopicReader(
            scene.context, bell, start="earliest", partitions=None, types=None, on_gone="oldest"
        )
        scene.clear()
        scene.publish(b"2")
        lists = []

        def clear_again(*_, **__):
            lists.append(1)
            if len(lists) == call:
                scene.clear()
                scene.publish(b"3")
            scene.storage.after["list_segments"] = clear_again

        scene.storage.after["list_segments"] = clear_again

        assert offsets(reader.read_many()) == ([3] if len(lists) >= call else [2])
        assert reader.skipped == (2 if len(lists) >= call else 1)


def test_a_storage_without_interruptions_reads_all(scene):
    scene.publish(b"1")

    assert [each.body for each in scene.read(storage=Interrupted(scene.rows))] == [b"1"]
