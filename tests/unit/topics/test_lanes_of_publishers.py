"""What callers of a publisher hear, whatever interrupts it."""

import pytest
from support.interrupted import lose, refuse
from support.topic_scene import TopicScene

from cassq.errors import ClosedError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import BATCH_MESSAGES_MAX
from cassq.model.ids import new_token
from cassq.runtime.background_thread import AnsweredFuture
from cassq.topics.bell import Bell
from cassq.topics.log_end import LogEnd
from cassq.topics.partition_lane import PartitionLane
from cassq.topics.publish_request import Numbered, PublishRequest
from cassq.topics.publisher import Publisher


@pytest.fixture
def scene():
    return TopicScene()


@pytest.fixture
def lane(scene):
    made = PartitionLane(scene.context, 0, Bell(scene.coordinator, "t", scene.clock, str(new_token())))
    yield made
    made.close()


@pytest.fixture
def publisher(scene):
    made = Publisher(scene.context, Bell(scene.coordinator, "t", scene.clock, str(new_token())))
    yield made
    made.close()


class Always:
    """A storage of which some calls always do something before they are carried out."""

    def __init__(self, storage, **calls):
        self._storage = storage
        self._calls = calls

    def __getattr__(self, name):
        real = getattr(self._storage, name)

        def call(*values, **named):
            self._calls.get(name, lambda: None)()
            return real(*values, **named)

        return call


def request_of(scene, lane, body=b"x", within_s=5.0):
    return PublishRequest(lane.thread, (body,), ({},), scene.clock.now() + within_s)


class TestLane:
    @pytest.mark.parametrize("is_closed", [False, True])
    def test_ctrl_c_as_a_message_is_put_in_leaves_nobody_waiting(self, scene, lane, is_closed):
        real = lane.thread.submit

        def submit(*_):
            lane.thread.submit = real
            raise KeyboardInterrupt

        lane.thread.submit = submit
        first, second = request_of(scene, lane), request_of(scene, lane)
        with pytest.raises(KeyboardInterrupt):
            lane.put(first)

        if is_closed:
            lane.close()
        else:
            lane.put(second)
            assert second.future.result(10).offset == 2

        assert first.future.result(10).offset == 1

    def test_an_error_that_nobody_expects_is_heard_and_the_lane_goes_on(self, scene, lane):
        def fail(*_, **__):
            raise RuntimeError("odd")

        scene.storage.before["link"] = fail
        first, second = request_of(scene, lane), request_of(scene, lane)
        lane.put(first)

        with pytest.raises(OutcomeUnknownError):
            first.future.result(10)

        lane.put(second)
        assert second.future.result(10).offset == 1

    def test_what_is_larger_than_a_batch_is_linked_alone(self, scene, lane):
        count = BATCH_MESSAGES_MAX + 1
        large = PublishRequest(
            lane.thread, (b"x",) * count, ({},) * count, scene.clock.now() + 5, Numbered("w", 1)
        )
        before, after = request_of(scene, lane), request_of(scene, lane)
        lane._waiting.extend([before, large, after])

        assert [lane._take() for _ in range(4)] == [[before], [large], [after], []]

    def test_who_was_refused_until_nobody_waited_hears_that_nothing_is_published(self, scene):
        rival = LogEnd(scene.context, 0)

        def come_first():
            other = request_of(scene, lane)
            other.begin()
            rival.publish([other], scene.clock.now() + 5)

        storage = Always(scene.rows, link=come_first)
        lane = PartitionLane(
            scene.context_of(storage), 0, Bell(scene.coordinator, "t", scene.clock, str(new_token()))
        )
        request = request_of(scene, lane, within_s=1.0)
        assert request.begin()

        lane._publish([request])

        with pytest.raises(StorageUnavailableError, match="others were first"):
            request.future.result(10)
        lane.close()

    def test_who_has_little_time_hears_in_time_though_another_one_has_much(self, scene):
        storage = Always(scene.rows, link=lose, load_head=lambda: heads.pop() or refuse())
        heads = [False] * 100_000 + [True]
        lane = PartitionLane(
            scene.context_of(storage), 0, Bell(scene.coordinator, "t", scene.clock, str(new_token()))
        )
        hurried, patient = request_of(scene, lane, within_s=1.0), request_of(scene, lane, within_s=100.0)
        later = request_of(scene, lane, within_s=2.0)
        ended = {}
        for each in (hurried, patient, later):
            each.future.add_done_callback(lambda of: ended.setdefault(of, scene.clock.now()))
            lane._waiting.append(each)
        assert hurried.begin()
        assert patient.begin()
        lane._waiting.clear()
        lane._waiting.append(later)

        lane._publish([hurried, patient])

        assert isinstance(hurried.future.exception(0), OutcomeUnknownError)
        assert ended[hurried.future] < hurried.deadline + 0.5
        assert isinstance(later.future.exception(0), StorageUnavailableError)
        assert ended[later.future] < later.deadline + 0.5
        assert isinstance(patient.future.exception(0), OutcomeUnknownError)


class TestPublisher:
    def test_a_closed_publisher_takes_nothing_into_a_partition_that_it_never_used(self, scene, publisher):
        publisher.close()

        with pytest.raises(ClosedError):
            publisher.publish(b"late", None, 5.0, {})

        assert scene.read() == []

    def test_what_a_caller_waited_for_the_buffer_is_part_of_its_timeout(self, scene, publisher, monkeypatch):
        waited = []

        def result(_, timeout=None):
            waited.append(timeout)
            raise TimeoutError

        class Full:
            thread = None

            def put(self, _):
                scene.clock.seconds += 9.0

        monkeypatch.setattr(AnsweredFuture, "result", result)
        monkeypatch.setattr(publisher, "_lane", lambda _: Full())

        with pytest.raises(StorageUnavailableError):
            publisher.publish(b"x", None, 10.0, {})

        assert waited[0] == 1.0

    @pytest.mark.parametrize(
        ("begins", "told"), [(False, StorageUnavailableError), (True, OutcomeUnknownError)]
    )
    def test_many_messages_without_an_answer_in_time_are_told_with_an_error_of_cassq(
        self, publisher, monkeypatch, begins, told
    ):
        class Stuck:
            thread = None

            def put(self, request):
                if begins:
                    request.begin()

        def end(_, timeout=None):
            raise TimeoutError(timeout)

        monkeypatch.setattr(AnsweredFuture, "result", end)
        monkeypatch.setattr(AnsweredFuture, "exception", end)
        monkeypatch.setattr(publisher, "_lane", lambda _: Stuck())

        with pytest.raises(told):
            publisher.publish_many([b"1", b"2"], None, 1.0, None, {})
