"""What comes between the calls of who publishes into a log, clears it, or deletes it."""

from contextlib import suppress
from dataclasses import replace

import pytest
from support.interrupted import lose, refuse
from support.topic_scene import TopicScene

from cassq.errors import AccessDeniedError, OutcomeUnknownError, TopicNotFoundError
from cassq.model.topic import TopicState
from cassq.topics.log_end import LogEnd
from cassq.topics.publish_request import Numbered
from cassq.topics.retention import Retention


@pytest.fixture
def scene():
    return TopicScene()


def deny(*_, **__):
    raise AccessDeniedError("no more")


class TestAnUnknownLink:
    def test_whose_segment_goes_while_it_is_settled_is_never_published_twice(self, scene):
        """The head that counts it is read, and then its segment is deleted."""
        seen = []
        scene.storage.after["link"] = lambda *_, **__: (scene.publish(b"other"), lose())
        scene.storage.after["load_head"] = lambda *_, **__: scene.storage.after.update(
            load_head=lambda *_, **__: (seen.extend(scene.read()), scene.clear())
        )

        with pytest.raises(OutcomeUnknownError):
            scene.publish(b"once", end=LogEnd(scene.context, 0))

        assert [each.body for each in seen] == [b"once", b"other"]
        assert scene.read(since=3) == []

    def test_of_a_writer_whose_segment_goes_while_it_is_settled_is_known_by_its_number(self, scene):
        scene.storage.after["link"] = lambda *_, **__: (scene.publish(b"other"), lose())
        scene.storage.after["load_head"] = lambda *_, **__: scene.storage.after.update(
            load_head=lambda *_, **__: scene.clear()
        )
        request = scene.request(b"once", Numbered("w", 7))
        with suppress(OutcomeUnknownError):
            LogEnd(scene.context, 0).publish([request], request.deadline)

        again = scene.publish(b"once", Numbered("w", 7))

        assert (again.offset, again.is_repeat) == (1, True)
        assert scene.read(since=3) == []

    def test_that_cannot_be_settled_as_the_database_refuses_the_user_is_told_as_unknown(self, scene):
        scene.storage.after["link"] = lose
        scene.storage.after["load_head"] = lambda *_, **__: scene.storage.before.update(load_head=deny)

        with pytest.raises(OutcomeUnknownError):
            scene.publish(b"there", end=LogEnd(scene.context, 0))

        assert [each.body for each in scene.read()] == [b"there"]

    def test_that_was_refused_as_its_segment_closed_is_sent_into_the_next_one(self, scene):
        """It was lost on its way; who closed the segment made sure that it never lands."""
        scene.storage.before["link"] = lambda *_, **__: (
            scene.publish(b"other"),
            LogEnd(scene.elsewhere, 0).close_segment(),
            lose(),
        )

        assert scene.publish(b"mine", end=LogEnd(scene.context, 0)).offset == 2

        assert [each.body for each in scene.read()] == [b"other", b"mine"]

    def test_that_lands_while_it_is_settled_is_published_once(self, scene):
        sent = []
        scene.storage.before["link"] = lambda *values, **__: (sent.append(values), lose())
        scene.storage.after["load_head"] = lambda *_, **__: scene.storage.after.update(
            load_head=lambda *_, **__: scene.rows.link(*sent[0])
        )

        assert scene.publish(b"once", end=LogEnd(scene.context, 0)).offset == 1

        assert [each.body for each in scene.read()] == [b"once"]


class TestClear:
    def test_clear_beside_a_publish_deletes_what_was_there_when_it_began(self, scene):
        scene.publish(b"old")
        scene.storage.before["link"] = lambda *_, **__: scene.publish(b"new")

        Retention(scene.context, 0).clear()

        assert scene.rows.list_segments(scene.key).segments[0].first > 1

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_clear_whose_closing_nobody_answered_for_deletes_what_was_there(self, scene, when):
        scene.publish(b"old")
        getattr(scene.storage, when)["link"] = lose

        Retention(scene.context, 0).clear()

        assert scene.rows.list_segments(scene.key).segments[0].first == 2

    def test_nothing_is_deleted_that_could_not_be_retired_before(self, scene):
        """A reader that misses something there would hear that the log is damaged."""
        scene.publish(b"old")
        LogEnd(scene.elsewhere, 0).close_segment()
        real = scene.rows.link
        scene.rows.link = lambda *_: lose()

        with pytest.raises(OutcomeUnknownError):
            Retention(scene.context, 0).clear()

        scene.rows.link = real
        assert [each.body for each in scene.read()] == [b"old"]


class TestDeletion:
    def delete_record(self, scene):
        scene.elsewhere.known.record = scene.record
        scene.elsewhere.known.change(lambda seen: replace(seen, state=TopicState.DELETED))

    @pytest.mark.parametrize("call", ["list_segments", "load_head"])
    def test_no_publish_is_acknowledged_after_a_deletion_during_which_another_one_cleared(self, scene, call):
        scene.publish(b"old")
        self.delete_record(scene)
        scene.storage.after["list_segments"] = lambda *_, **__: scene.clear()

        Retention(scene.context, 0).end()

        with pytest.raises(TopicNotFoundError):
            scene.publish(b"late")

    def test_no_publish_is_acknowledged_after_a_deletion_during_which_segments_rolled(self, scene):
        scene.publish(b"old")
        self.delete_record(scene)
        scene.storage.after["load_head"] = lambda *_, **__: (
            scene.publish(b"other"),
            LogEnd(scene.elsewhere, 0).close_segment(),
        )

        Retention(scene.context, 0).end()

        with pytest.raises(TopicNotFoundError):
            scene.publish(b"late")

    def test_a_segment_that_was_to_follow_does_not_come_after_the_deletion(self, scene):
        scene.publish(b"old")
        scene.storage.before["create_segment"] = lambda *_, **__: (self.delete_record(scene), scene.end())

        with pytest.raises(TopicNotFoundError):
            LogEnd(scene.context, 0).close_segment()

        assert scene.rows.list_segments(scene.key).segments == ()


class TestAChangedRecord:
    def test_a_deletion_that_was_applied_without_an_answer_is_told_as_done(self, scene):
        scene.storage.after["change_topic"] = lose

        changed = scene.context.known.change(lambda seen: replace(seen, state=TopicState.DELETED))

        assert changed.is_deleted

    def test_a_change_that_may_be_applied_is_never_told_as_an_outage(self, scene):
        scene.storage.after["change_topic"] = lambda *_, **__: (
            scene.storage.before.update(read_topics=refuse),
            lose(),
        )

        with pytest.raises(OutcomeUnknownError):
            scene.context.known.change(lambda seen: seen)
