"""What becomes of messages that a publisher lets others link."""

import pytest
from support.interrupted import Interrupted, refuse
from support.topic_scene import TopicScene

from cassq.errors import OutcomeUnknownError
from cassq.model.offer import Offer
from cassq.model.topic import SegmentState, closed
from cassq.runtime.background_thread import BackgroundThread
from cassq.storage.topic_port import LogQuery
from cassq.topics import shared_end
from cassq.topics.log_end import LogEnd, open_next
from cassq.topics.publish_request import PublishRequest
from cassq.topics.retention import Retention
from cassq.topics.shared_end import SharedEnd


class WithOffers:
    """A file's storage in which offers are kept beside."""

    def __init__(self, rows):
        self._rows = rows
        self._offers = {}

    def __getattr__(self, name):
        return getattr(self._rows, name)

    def offer(self, place, offer):
        """Keep the later one of its source."""
        seen = self._offers.get((place, offer.source))
        if seen is None or seen.number < offer.number:
            self._offers[place, offer.source] = offer
        return True

    def read_offers(self, place):
        """Return what is offered in a segment."""
        return [offer for (where, _), offer in self._offers.items() if where == place]


@pytest.fixture
def scene(monkeypatch):
    monkeypatch.setattr(shared_end, "IS_ON", True)
    return TopicScene()


@pytest.fixture
def storage(scene):
    return Interrupted(WithOffers(scene.rows))


@pytest.fixture
def end(scene, storage):
    """An end that was refused once on what it had just read, while another process has the claim."""
    assert scene.coordinator.claim("t~", shared_end.claimed(0), "another")
    made = SharedEnd(scene.context_of(storage), 0, BackgroundThread("test"))
    storage.before["link"] = lambda *_: publish_elsewhere(scene, b"first")
    return made


def request(scene, body, within_s=5.0):
    return PublishRequest(BackgroundThread("test"), (body,), ({},), scene.clock.now() + within_s)


def publish_elsewhere(scene, body):
    LogEnd(scene.elsewhere, 0).publish([request(scene, body)], scene.clock.now() + 1)


def publish(scene, end, body=b"mine", within_s=5.0, told=lambda _: None):
    made = request(scene, body, within_s)
    end.publish([made], made.deadline, told)
    return made.future.result(0)


def link_all(scene, storage):
    """Link what is offered, as a scribe elsewhere does."""
    scribe = SharedEnd(scene.context_of(storage), 0, BackgroundThread("test"))
    scribe.tend((), scene.clock.now() + 1)


def bodies(scene):
    found = []
    for segment in scene.rows.list_segments(scene.key).segments:
        for batch in scene.rows.read_log(scene.key.segment(segment.number), LogQuery(segment.first, 100)):
            found += batch.bodies
    return found


class TestAnOffer:
    def test_is_linked_once_by_another_process_and_its_caller_hears_where(self, scene, storage, end):
        storage.before["glance_writer"] = lambda *_: (link_all(scene, storage), link_all(scene, storage))

        assert publish(scene, end).offset == 2
        assert bodies(scene) == [b"first", b"mine"]

    def test_that_nobody_links_is_linked_by_its_publisher_who_is_the_scribe_from_then_on(self, scene, end):
        assert publish(scene, end).offset == 2
        assert end.is_scribe
        assert bodies(scene) == [b"first", b"mine"]

    def test_whose_segment_is_closed_is_offered_anew_in_the_next_one(self, scene, storage, end):
        storage.before["glance_writer"] = lambda *_: LogEnd(scene.elsewhere, 0).close_segment()

        assert publish(scene, end).offset == 2
        assert bodies(scene) == [b"first", b"mine"]

    def test_that_was_linked_before_its_segment_was_closed_is_not_offered_anew(self, scene, storage, end):
        def link_and_close(*_):
            link_all(scene, storage)
            LogEnd(scene.elsewhere, 0).close_segment()

        storage.before["glance_writer"] = link_and_close

        assert publish(scene, end).offset == 2
        assert bodies(scene) == [b"first", b"mine"]

    def test_whose_segment_goes_is_told_that_nobody_knows_and_is_never_offered_anew(
        self, scene, storage, end
    ):
        def link_and_clear(*_):
            link_all(scene, storage)
            Retention(scene.elsewhere, 0).clear()

        storage.before["glance_writer"] = link_and_clear

        with pytest.raises(OutcomeUnknownError):
            publish(scene, end)
        assert bodies(scene) == []

    def test_that_is_refused_again_and_again_is_unknown_and_never_told_as_not_published(
        self, scene, storage, end
    ):
        told = []

        def come_first(*_):
            told.clear()
            publish_elsewhere(scene, b"another")

        storage.after["read_offers"] = come_first

        assert publish(scene, end, told=told.append).offset
        assert told
        assert all(told)

    def test_of_which_nobody_heard_whether_it_was_written_is_linked_once(self, scene, storage, end):
        def lose(*_):
            raise OutcomeUnknownError("no answer")

        storage.after["offer"] = lose

        assert publish(scene, end).offset == 2
        assert bodies(scene) == [b"first", b"mine"]

    def test_waits_through_an_outage(self, scene, storage, end):
        storage.before["glance_writer"] = refuse

        assert publish(scene, end).offset == 2
        assert bodies(scene) == [b"first", b"mine"]


class TestAScribe:
    def test_without_offers_for_a_while_is_none_any_more(self, scene, end):
        publish(scene, end)
        scene.clock.seconds += 2

        end.tend((), scene.clock.now() + 1)

        assert not end.is_scribe

    def test_links_no_offer_of_an_earlier_segment(self, scene, storage):
        place = scene.key.segment(1)
        storage.offer(place, Offer("~a", 1, (b"late",), None))
        head = scene.rows.load_head(place)
        assert scene.rows.link(place, head, closed(head, SegmentState.CLOSED))
        open_next(scene.elsewhere, place, scene.rows.load_head(place))

        link_all(scene, storage)

        assert bodies(scene) == []


class TestWithoutOffers:
    @pytest.mark.parametrize("is_on", [False, True])
    def test_a_file_is_published_to_as_ever(self, scene, monkeypatch, is_on):
        monkeypatch.setattr(shared_end, "IS_ON", is_on)
        end = SharedEnd(scene.context, 0, BackgroundThread("test"))
        scene.storage.before["link"] = lambda *_: publish_elsewhere(scene, b"first")

        assert publish(scene, end).offset == 2
        assert not end.is_scribe
