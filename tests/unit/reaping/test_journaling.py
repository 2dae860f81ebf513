"""Each pipe that retires has one event in the journal, whoever dies, whatever gets lost, whoever is there."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.clocks import HandClock
from support.contexts import context_of
from support.interrupted import Interrupted, Killed, die, lose, refuse

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError
from cassq.model.fates import Stretch
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.journal import PipeEvent
from cassq.model.message import Batch, Origin
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.topic import TopicMessage, partition_of
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.reaping.reaper import Reaper
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.topics.journal import NAME, find_event
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.publish_request import PublishRequest
from cassq.topics.retention import Retention

SETTINGS = QueueSettings(journal="outline")


class PassingClock(HandClock):
    """Moves by what is waited, at once."""

    def wait(self, _condition: Any, seconds: float | None) -> None:
        self.seconds += seconds or 0.0


class AtCall:
    """A storage at one of whose calls something happens: the first, the second …

    Attributes:
        calls: how many there were so far.
        number: the call.
        before, after: what happens then.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.number, self.calls = -1, 0
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            self.calls += 1
            is_it = self.calls == self.number
            if is_it:
                self.before()
            answer = getattr(self._storage, name)(*values, **named)
            if is_it:
                self.after()
            return answer

        return call


class Scene:
    """A queue with a journal, reapers of it, each as if of another process, and the journal's topic."""

    def __init__(self):
        self.clock = PassingClock()
        self.rows = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.settings = SETTINGS
        assert self.rows.change_queue(None, QueueRecord("q", new_token(), self.settings, new_token()))
        self.coordinators = []

    def context(self, storage=None):
        coordinator = LocalCoordinator(None, self.clock)
        self.coordinators.append(coordinator)
        made = context_of(self.rows, self.settings, self.clock, coordinator=coordinator)
        return replace(made, storage=storage or self.rows)

    def reaper(self, storage=None):
        """Return a reaper that knows nothing, and whose claims nobody sees."""
        return Reaper(self.context(storage), f"reaper {len(self.coordinators)}", lambda _: None)

    def finish(self, count=3, end=End.COMMITTED, pipe=None, **of_entry):
        """Make a pipe that is over."""
        entry = PipeEntry(pipe or new_pipe_id(), "a pusher", **of_entry)
        self.rows.create_pipe("q", entry, Head(new_token()))
        self.rows.append(entry.pipe, Batch(1, (b"body",) * count, None, count))
        assert self.rows.transact(entry.pipe, Transaction(Seal(count, is_free=True))).is_applied
        owned = OwnedPipe(self.context(), entry, self.rows.load_pipe(entry.pipe), Taker("p"))
        assert owned.take(count).runs
        self.rows.mark(entry.pipe, [Mark(1, count, end)])
        return entry

    def topic(self):
        """Return what the parts of the journal's topic work with, or None before there is one."""
        record = self.rows.glance_topic(NAME)
        if record is None or record.is_deleted:
            return None
        return self.reaper()._journaling._context_of(record)

    def retire_alone(self, entry):
        """Have a reaper die between the retirement and the event."""
        storage = Interrupted(self.rows)
        storage.before["link"] = die
        with pytest.raises(Killed):
            self.reaper(storage).run_once()
        state = self.rows.load_pipe(entry.pipe)
        assert state.head.phase is Phase.RETIRED
        assert state.head.journal

    def partition(self, entry):
        return partition_of(str(entry.pipe), 4)

    def roll(self, entry):
        LogEnd(self.topic(), self.partition(entry)).close_segment()

    def publish(self, entry, count=1):
        """Publish something else where the event of a pipe belongs."""
        for _ in range(count):
            end = LogEnd(self.topic(), self.partition(entry))
            request = PublishRequest(None, (b"else",), ({"key": "else"},), self.clock.now() + 5.0)
            assert request.begin()
            end.publish([request], request.deadline)

    def delete_topic(self):
        self.reaper()._journaling._catalog.delete(self.topic().known)

    def clear(self, entry):
        Retention(self.topic(), self.partition(entry)).clear()

    def events(self) -> list[TopicMessage]:
        context, found = self.topic(), []
        for partition in range(4) if context else ():
            reader = LogReader(context, partition, 1, skips_gone=True)
            while more := reader.read():
                found += [each for each in more if each.key != "else"]
        return found

    def told(self, entry) -> list[PipeEvent]:
        return [PipeEvent.from_body(each.body) for each in self.events() if each.key == str(entry.pipe)]

    @property
    def listed(self):
        return [entry.pipe for entry in self.rows.list_pipes("q").entries]

    def end_all(self):
        """Have reapers come until nothing is left."""
        for _ in range(3):
            self.reaper().run_once()
        assert not self.listed

    def close(self):
        for each in self.coordinators:
            each.close()
        self.rows.close()


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()


def calls_of_a_pass():
    """Return how many calls a pass makes that makes the topic, and retires a pipe."""
    made = Scene()
    made.finish()
    storage = AtCall(made.rows)
    made.reaper(storage).run_once()
    made.close()
    return storage.calls


CALLS = calls_of_a_pass()


class TestOnePipe:
    def test_its_event_tells_how_everything_ended_and_it_goes(self, scene):
        entry = scene.finish(3, type="refund", priority=4)

        report = scene.reaper().run_once()

        assert (report.retired, report.failed, scene.listed) == (1, [], [])
        (told,) = scene.told(entry)
        assert (told.queue, told.pusher, told.messages) == ("q", "a pusher", 3)
        assert (told.priority, told.type) == (4, "refund")
        assert told.stretches == (Stretch(1, 3, End.COMMITTED, attempts=1, holder="p"),)
        assert told.retired_at.timestamp() * 1000 == pytest.approx(scene.rows._file.now_ms(), abs=1000)

    def test_readers_find_it_by_its_queue_and_its_pipe(self, scene):
        entry = scene.finish()

        scene.reaper().run_once()

        (message,) = scene.events()
        assert message.headers == {"type": "q", "key": str(entry.pipe)}
        assert message.partition == scene.partition(entry)

    def test_what_was_moved_here_is_known_by_its_first_ids(self, scene):
        source = new_pipe_id()
        entry = PipeEntry(new_pipe_id(), "a pusher", moved_from=source)
        scene.rows.create_pipe("q", entry, Head(new_token()))
        origins = tuple(Origin(ids, 1_000) for ids in ((source, 7), (source, 8), (source, 3)))
        scene.rows.append(entry.pipe, Batch(1, (b"body",) * 3, None, 3, origins=origins))
        assert scene.rows.transact(entry.pipe, Transaction(Seal(3, is_free=True))).is_applied
        owned = OwnedPipe(scene.context(), entry, scene.rows.load_pipe(entry.pipe), Taker("p"))
        assert owned.take(3).runs
        scene.rows.mark(entry.pipe, [Mark(1, 3, End.COMMITTED)])

        scene.reaper().run_once()

        (told,) = scene.told(entry)
        assert [tuple(each) for each in told.origins] == [(1, 2, source, 7), (3, 1, source, 3)]

    def test_a_queue_without_a_journal_asks_for_no_topic(self, scene):
        scene.settings = QueueSettings()
        entry = scene.finish()
        storage = Interrupted(scene.rows)
        for call in ("read_topics", "glance_topic", "list_segments", "load_head", "link", "create_segment"):
            storage.before[call] = die

        assert scene.reaper(storage).run_once().retired == 1

        assert not scene.listed
        assert not scene.told(entry)

    def test_many_pipes_share_a_link_for_each_partition(self, scene):
        entries = [scene.finish() for _ in range(20)]
        storage, links = Interrupted(scene.rows), []
        link = scene.rows.link
        storage.link = lambda *values: links.append(values) or link(*values)

        assert scene.reaper(storage).run_once().retired == 20

        assert len(links) == len({scene.partition(each) for each in entries})
        assert {each.key for each in scene.events()} == {str(each.pipe) for each in entries}


MEANWHILE = ("nothing", "another event and a roll")


def happen(scene, entry, what):
    if what != "nothing" and scene.topic():
        scene.publish(entry)
        scene.roll(entry)


class TestWhoDies:
    @pytest.mark.parametrize("what", MEANWHILE)
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("number", range(1, CALLS + 1))
    def test_at_any_call_leaves_a_pipe_that_the_next_one_ends_with_one_event(self, scene, number, when, what):
        entry = scene.finish()
        storage = AtCall(scene.rows)
        storage.number = number
        setattr(storage, when, die)
        with pytest.raises(Killed):
            scene.reaper(storage).run_once()
        happen(scene, entry, what)

        scene.end_all()

        assert len(scene.told(entry)) == 1

    @pytest.mark.parametrize("trouble", [lose, refuse])
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("number", range(1, CALLS + 1))
    def test_a_call_that_fails_leaves_one_event_too(self, scene, number, when, trouble):
        if (when, trouble) == ("after", refuse):
            trouble = lose  # what was written is never told as refused
        entry = scene.finish()
        storage = AtCall(scene.rows)
        storage.number = number
        setattr(storage, when, trouble)
        reaper = scene.reaper(storage)
        with suppress(CassqError):
            reaper.run_once()
        happen(scene, entry, MEANWHILE[-1])

        for _ in range(3):
            reaper.run_once()

        assert not scene.listed
        assert len(scene.told(entry)) == 1


class TestTwoReapers:
    @pytest.mark.parametrize("what", MEANWHILE)
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("number", range(1, CALLS + 1))
    def test_one_that_does_all_at_any_call_of_another_leaves_one_event(self, scene, number, when, what):
        entry = scene.finish()

        def meanwhile():
            happen(scene, entry, what)
            scene.reaper().run_once()
            happen(scene, entry, what)

        storage = AtCall(scene.rows)
        storage.number = number
        setattr(storage, when, meanwhile)
        scene.reaper(storage).run_once()

        scene.end_all()

        assert len(scene.told(entry)) == 1

    def test_a_link_that_lands_late_is_refused_once_another_reaper_linked(self, scene):
        entry = scene.finish()
        storage, sent = Interrupted(scene.rows), []
        storage.before["link"] = lambda *values: sent.append(values) or die()
        with pytest.raises(Killed):
            scene.reaper(storage).run_once()
        scene.end_all()

        (late,) = sent

        assert not scene.rows.link(*late)
        assert len(scene.told(entry)) == 1

    def test_a_link_that_lands_late_and_before_another_reapers_is_found(self, scene):
        entry = scene.finish()
        first, sent = Interrupted(scene.rows), []
        first.before["link"] = lambda *values: sent.append(values) or die()
        with pytest.raises(Killed):
            scene.reaper(first).run_once()
        second = Interrupted(scene.rows)
        second.before["link"] = lambda *_: scene.rows.link(*sent[0])

        scene.reaper(second).run_once()

        scene.end_all()
        assert len(scene.told(entry)) == 1

    def test_who_retires_beside_another_goes_by_what_stands_in_the_head(self, scene):
        entry = scene.finish()
        storage = Interrupted(scene.rows)
        storage.before["transact"] = lambda *_: (scene.retire_alone(entry), scene.publish(entry, 2))

        scene.reaper(storage).run_once()

        assert not scene.listed
        assert len(scene.told(entry)) == 1

    def test_what_another_one_retired_and_works_on_is_left_to_it(self, scene):
        entry = scene.finish()
        scene.retire_alone(entry)
        reaper = scene.reaper()
        coordinator = scene.coordinators[-1]
        assert coordinator.claim("q", entry.pipe, "another reaper")

        assert reaper.run_once().busy == 1

        assert scene.listed == [entry.pipe]
        coordinator.release("q", entry.pipe, "another reaper")
        assert reaper.run_once().retired == 1


class TestWhereTheEventIsLookedFor:
    def test_one_that_stands_in_a_segment_that_was_closed_since_is_found(self, scene):
        entry = scene.finish()
        storage = Interrupted(scene.rows)
        storage.after["link"] = die
        with pytest.raises(Killed):
            scene.reaper(storage).run_once()
        scene.roll(entry)
        scene.publish(entry)

        scene.end_all()

        assert len(scene.told(entry)) == 1

    def test_where_what_is_named_was_cleared_it_is_published_then(self, scene):
        entry = scene.finish()
        scene.retire_alone(entry)
        scene.publish(entry)
        scene.clear(entry)

        scene.end_all()

        assert len(scene.told(entry)) == 1

    def test_where_what_is_named_was_cleared_it_is_found_in_what_is_left(self, scene):
        entry = scene.finish()
        scene.retire_alone(entry)
        scene.publish(entry)
        scene.clear(entry)
        storage = Interrupted(scene.rows)
        storage.after["link"] = die
        with pytest.raises(Killed):
            scene.reaper(storage).run_once()

        scene.end_all()

        assert len(scene.told(entry)) == 1

    def test_of_a_topic_that_was_made_anew_it_is_looked_for_in_all_of_it(self, scene):
        other = scene.finish()
        scene.reaper().run_once()
        scene.publish(other, 3)
        entry = scene.finish()
        while scene.partition(entry) != scene.partition(other):
            scene.reaper().run_once()
            entry = scene.finish()
        scene.retire_alone(entry)
        scene.delete_topic()
        storage = Interrupted(scene.rows)
        storage.after["link"] = die
        with pytest.raises(Killed):
            scene.reaper(storage).run_once()

        scene.end_all()

        assert len(scene.told(entry)) == 1

    def test_what_was_retired_is_journaled_also_where_the_journal_was_turned_off_since(self, scene):
        entry = scene.finish()
        scene.retire_alone(entry)
        scene.settings = QueueSettings()

        scene.end_all()

        assert len(scene.told(entry)) == 1


class TestWhoLooksForAnEvent:
    @pytest.mark.parametrize("hours", [-2, 0, 2])
    def test_finds_it_whatever_time_the_id_of_the_pipe_has(self, scene, hours):
        others = [scene.finish() for _ in range(8)]
        scene.reaper().run_once()
        entry = scene.finish(pipe=new_pipe_id(scene.rows._file.now_ms() + hours * 3_600_000))
        scene.reaper().run_once()
        scene.publish(entry, 3)
        scene.roll(entry)
        scene.publish(entry, 3)

        for each in (entry, *others):
            assert find_event(scene.topic(), each.pipe) == scene.told(each)[0]

    def test_hears_where_there_is_none(self, scene):
        scene.finish()
        scene.reaper().run_once()

        assert find_event(scene.topic(), new_pipe_id()) is None


class TestTheJournalOutOfReach:
    def test_nothing_is_deleted_until_the_event_is_known(self, scene):
        entry = scene.finish()
        storage = Interrupted(scene.rows)
        reaper = scene.reaper(storage)
        for _ in range(2):
            storage.before["link"] = refuse

            report = reaper.run_once()

            assert (report.retired, len(report.failed)) == (0, 1)
            assert scene.rows.load_pipe(entry.pipe, is_whole=True).marks
        assert reaper.run_once().retired == 1
        assert len(scene.told(entry)) == 1

    def test_what_is_not_known_of_a_link_is_settled_within_the_pass(self, scene):
        entry = scene.finish()
        storage = Interrupted(scene.rows)
        storage.after["link"] = lose

        assert scene.reaper(storage).run_once().retired == 1

        assert len(scene.told(entry)) == 1

    def test_other_pipes_go_on(self, scene):
        entry, open_ = scene.finish(), PipeEntry(new_pipe_id(), "a pusher")
        scene.rows.create_pipe("q", open_, Head(new_token()))
        scene.clock.seconds += (SETTINGS.push_age_max + SETTINGS.push_grace + timedelta(seconds=1)).seconds
        storage = Interrupted(scene.rows)
        storage.before["glance_topic"] = refuse

        report = scene.reaper(storage).run_once()

        assert entry.pipe in scene.listed
        assert len(report.failed) == 1
        assert report.examined == 2


class TestAPipeOfWhichHeadersAreKept:
    """Its parts are there once each, whoever dies, and whatever the queue is altered to."""

    @pytest.fixture
    def scene(self, monkeypatch):
        monkeypatch.setattr("cassq.model.journal.PART_WEIGHT", 100)
        scene = Scene()
        scene.settings = QueueSettings(journal="headers")
        return scene

    def finish(self, scene, batches=5):
        entry = PipeEntry(new_pipe_id(), "a pusher")
        scene.rows.create_pipe("q", entry, Head(new_token()))
        for first in range(1, batches + 1):
            scene.rows.append(entry.pipe, Batch(first, (b"body",), ({"text": "x" * 60},), 1))
        assert scene.rows.transact(entry.pipe, Transaction(Seal(batches, is_free=True))).is_applied
        owned = OwnedPipe(scene.context(), entry, scene.rows.load_pipe(entry.pipe), Taker("p"))
        assert owned.take(batches).runs
        scene.rows.mark(entry.pipe, [Mark(1, batches, End.COMMITTED)])
        return entry

    def test_it_has_an_event_for_each(self, scene):
        entry = self.finish(scene)

        assert scene.reaper().run_once().retired == 1

        assert [(each.first, each.last) for each in scene.told(entry)] == [(seq, seq) for seq in range(1, 6)]

    @pytest.mark.parametrize("kind", ["headers", "outline", "off"])
    def test_a_reaper_that_died_at_any_call_is_gone_on_for(self, scene, kind, monkeypatch):
        monkeypatch.setattr("cassq.topics.publish_request.BATCH_MESSAGES_MAX", 2)  # several links
        number = 0
        while True:
            entry, dying = self.finish(scene), AtCall(scene.rows)
            dying.number, dying.after = (number := number + 1), die
            with suppress(Killed):
                scene.reaper(dying).run_once()
            is_named = (state := scene.rows.load_pipe(entry.pipe)) is None or state.head.journal
            scene.settings = QueueSettings(journal=kind)
            for _ in range(2):
                scene.reaper().run_once()
            scene.settings = QueueSettings(journal="headers")
            assert scene.rows.load_pipe(entry.pipe) is None
            told = [(each.first, each.last) for each in scene.told(entry)]
            if is_named:
                assert told == [(seq, seq) for seq in range(1, 6)], number
            else:
                assert len(told) == {"headers": 5, "outline": 1, "off": 0}[kind]
            if dying.calls < number:
                return
