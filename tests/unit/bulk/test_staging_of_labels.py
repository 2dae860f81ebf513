"""What steers the messages of a bulk write: each fills a pipe of its like, and bad values write nothing."""

from datetime import UTC, datetime, timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk import staged_pipes
from cassq.bulk.staged_list import StagedList
from cassq.bulk.staged_pipes import PATIENCE_S, StagedPipes
from cassq.errors import ClosedError, InvalidNameError, InvalidOptionError, StorageUnavailableError
from cassq.model.ids import id_time_ms, new_token
from cassq.model.key import slot_of
from cassq.model.queue_record import QueueRecord
from cassq.model.schedule import SOON, SOON_S
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.uses import (
    TYPES_MAX,
    types_of,
    uses_due,
    uses_keys,
    uses_message_ttl,
    uses_priority,
    uses_types,
)
from cassq.observing.inspection import Inspection
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed


class Clock(HandClock):
    """Whoever waits has waited."""

    def wait(self, condition, seconds):
        self.seconds += seconds


class Scene:
    """The staged pipes of one task, and what is stored of them."""

    def __init__(self):
        self.clock = Clock()
        self.storage = witnessed(SqliteStorage(None, is_synced=False, clock=self.clock), self.clock, 1.0)
        settings = QueueSettings(pipe_messages_max=3)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), settings, new_token()))
        self.context = context_of(self.storage, settings, self.clock)
        self.staged = self.task()

    def task(self, **options):
        return StagedPipes(self.context, "loader/1/a task", options=options or None)

    @property
    def now_ms(self):
        return self.storage.list_pipes("q").now_ms

    @property
    def settings(self):
        return self.storage.read_queues("q")[0].settings

    @property
    def entries(self):
        return self.storage.list_pipes("q", shelf=Shelf.STAGED).entries

    def batches(self, pipe):
        return self.storage.read_batches(pipe, BatchQuery(limit=99))

    def bodies(self, pipe):
        return [body for batch in self.batches(pipe) for body in batch.bodies]

    def filled(self):
        """Close the task; return for each pipe what its entry says, and what is in it."""
        pipes = self.staged.close()
        entries = {entry.pipe: entry for entry in self.entries}
        return [(entries[pipe], self.bodies(pipe)) for pipe in pipes]


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.storage.close()


def test_messages_fill_pipes_of_their_priority_and_type_in_their_order(scene):
    likes = {"priority": 5}, {}, {"type": "refund"}, {"priority": 5, "type": "refund"}
    for number in range(8):
        scene.staged.add(b"%d" % number, **likes[number % 4])
    assert [(entry.priority, entry.type, bodies) for entry, bodies in scene.filled()] == [
        (5, "", [b"0", b"4"]),
        (0, "", [b"1", b"5"]),
        (0, "refund", [b"2", b"6"]),
        (5, "refund", [b"3", b"7"]),
    ]


def test_pipes_of_one_label_are_filled_one_after_the_other(scene):
    for number in range(9):
        scene.staged.add(b"%d" % number, priority=number % 2)
    filled = scene.filled()
    assert [(entry.priority, bodies) for entry, bodies in filled] == [
        (0, [b"0", b"2", b"4"]),
        (1, [b"1", b"3", b"5"]),
        (1, [b"7"]),
        (0, [b"6", b"8"]),
    ]
    for priority in (0, 1):
        ids = [entry.pipe.time for entry, _ in filled if entry.priority == priority]
        assert ids == sorted(ids)


def test_what_a_message_does_not_say_the_task_does(scene):
    scene.staged = scene.task(priority=4, type="refund")
    scene.staged.add(b"1")
    scene.staged.add(b"2", priority=1)
    scene.staged.add(b"3", type=None)
    assert [(entry.priority, entry.type, bodies) for entry, bodies in scene.filled()] == [
        (4, "refund", [b"1"]),
        (1, "refund", [b"2"]),
        (4, "", [b"3"]),
    ]


def test_the_record_tells_of_such_messages_before_there_is_a_pipe(scene, monkeypatch):
    def nothing_is_opened(*_, **__):
        raise StorageUnavailableError("planted")

    monkeypatch.setattr(scene.storage, "create_pipe", nothing_is_opened)
    for options, is_told in (
        ({"priority": 1}, uses_priority),
        ({"type": "refund"}, uses_types),
        ({"ttl": timedelta(minutes=1)}, uses_message_ttl),
        ({"key": "a"}, uses_keys),
        ({"delay": timedelta(minutes=1)}, uses_due),
    ):
        assert not is_told(scene.settings)
        with pytest.raises(StorageUnavailableError):
            scene.task().add(b"x", **options)
        assert is_told(scene.settings)


def test_where_the_record_cannot_tell_nothing_is_written(scene, monkeypatch):
    def refused(*_):
        raise StorageUnavailableError("planted")

    began = scene.clock.now()
    with monkeypatch.context() as patch:
        patch.setattr(scene.storage, "change_queue", refused)
        with pytest.raises(StorageUnavailableError, match="planted"):
            scene.staged.add(b"x", priority=1)
    assert scene.clock.now() - began >= PATIENCE_S
    assert scene.entries == ()
    with pytest.raises(ClosedError, match="discard them"):
        scene.staged.add(b"y")


def test_a_batch_has_messages_of_one_time_to_live(scene):
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    scene.staged.add(b"1", ttl=minute)
    scene.staged.add(b"2", ttl=minute)
    scene.staged.add(b"3")
    scene.staged.add(b"4", ttl=hour)
    pipes = scene.staged.close()
    written = [(batch.ttl_ms, batch.bodies) for pipe in pipes for batch in scene.batches(pipe)]
    (one, ms), (none, nothing), (other, _) = written
    assert (ms, none, nothing) == ((b"1", b"2"), 0, (b"3",))
    assert 60_000 <= one <= 60_000 * 65 / 64
    assert 3_600_000 <= other <= 3_600_000 * 65 / 64


def test_a_time_to_live_counts_from_the_publication(scene):
    scene.staged.add(b"x", ttl=timedelta(minutes=1))
    pipes = scene.staged.close()
    scene.clock.seconds += 3600
    StagedList(scene.context).publish(set(pipes))
    scene.clock.seconds += 59
    assert [message.body for message in Inspection(scene.context).peek(9)] == [b"x"]
    scene.clock.seconds += 5
    assert Inspection(scene.context).peek(9) == []


def test_keys_fill_pipes_of_their_slots_and_stand_with_their_messages(scene):
    keys = [f"customer {number}" for number in range(6)]
    for number in range(12):
        scene.staged.add(b"%d" % number, key=keys[number % 6])
    key_slots = scene.settings.key_slots
    for entry, bodies in scene.filled():
        found = [key for batch in scene.batches(entry.pipe) for key in batch.keys]
        assert {slot_of(key, key_slots) for key in found} == {entry.slot}
        assert found == [keys[int(body) % 6] for body in bodies]
        assert bodies == sorted(bodies, key=int)


def test_what_is_due_soon_and_what_is_due_later_fill_pipes_of_their_classes(scene):
    now = datetime.fromtimestamp(scene.now_ms / 1000, UTC)
    leads_s = -3600, 5, SOON_S + 5, 3600, SOON_S + 2
    for lead_s in leads_s:
        scene.staged.add(b"%d" % lead_s, due=now + timedelta(seconds=lead_s))
    filled = scene.filled()
    assert [(entry.due_class, bodies) for entry, bodies in filled] == [
        (SOON, [b"-3600", b"5"]),
        (5, [b"3600"]),
        (2, [b"20", b"17"]),
    ]
    for entry, bodies in filled:
        dues = [due for batch in scene.batches(entry.pipe) for due in batch.dues]
        assert dues == [scene.now_ms + 1000 * int(body) for body in bodies]
        # Keepers look at a pile by the time of its id
        if entry.due_class > SOON:
            assert scene.now_ms + 14_000 <= id_time_ms(entry.pipe) <= min(dues)


def test_what_is_due_before_a_pile_says_has_a_pile_of_its_own(scene):
    # Given a clock that turns out to show less than it might have shown
    scene.staged.add(b"1", delay=timedelta(seconds=SOON_S + 5))
    (filling,) = scene.staged._fillings.values()
    filling.due_from_ms += 10_000
    scene.staged.add(b"2", delay=timedelta(seconds=SOON_S))
    assert [bodies for _, bodies in scene.filled()] == [[b"1"], [b"2"]]


def test_for_one_pipe_too_many_that_is_sealed_to_which_nothing_came_for_longest(scene, monkeypatch):
    monkeypatch.setattr(staged_pipes, "OPEN_MAX", 2)
    for number, priority in enumerate((1, 2, 1, 3, 1, 2)):
        scene.staged.add(b"%d" % number, priority=priority)
        assert len(scene.staged._fillings) <= 2
    assert [(entry.priority, bodies) for entry, bodies in scene.filled()] == [
        (2, [b"1"]),
        (3, [b"3"]),
        (1, [b"0", b"2", b"4"]),
        (2, [b"5"]),
    ]


def test_messages_of_many_labels_in_any_order_have_a_pipe_of_each(scene):
    for number in range(3):
        for kind in range(50):
            for priority in range(4):
                scene.staged.add(b"%d" % number, type=f"type-{kind}", priority=priority)
    filled = scene.filled()
    assert len(filled) == 200
    assert all(bodies == [b"0", b"1", b"2"] for _, bodies in filled)


def test_of_what_is_not_written_the_largest_batch_is_written_where_all_is_too_much(scene, monkeypatch):
    monkeypatch.setattr(staged_pipes, "HELD_BYTES_MAX", 100 * staged_pipes.MESSAGE_BYTES)
    for number in range(200):
        scene.staged.add(b"%d" % number, priority=min(number % 5, 2))
        assert sum(len(filling.bodies) for filling in scene.staged._fillings.values()) <= 100
    filled = scene.filled()
    for priority in range(3):
        told = [int(body) for entry, bodies in filled if entry.priority == priority for body in bodies]
        assert told == [number for number in range(200) if min(number % 5, 2) == priority]


def test_nothing_is_left_of_pipes_of_any_label_that_were_discarded(scene):
    for options in ({}, {"priority": 1}, {"key": "a"}, {"delay": timedelta(hours=1)}):
        scene.staged.add(b"x", **options)
    scene.staged.discard()
    assert scene.entries == ()
    assert scene.staged.close() == ()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"priority": 10}, InvalidOptionError, "priority=10 must be a whole number from 0 to 9"),
        ({"priority": -1}, InvalidOptionError, "priority=-1 must be"),
        ({"type": "x" * 500}, InvalidNameError, "type of messages .* has 500 characters"),
        ({"type": ""}, InvalidNameError, "'' is not a type of messages: use ASCII"),
        ({"ttl": timedelta(0)}, InvalidOptionError, "ttl=0s must be a timedelta from"),
        (
            {"ttl": timedelta(days=99999)},
            InvalidOptionError,
            "ttl=8639913600s must be .* to 315360000s, or left out",
        ),
        (
            {"key": "x" * 257},
            InvalidOptionError,
            "has 257 bytes of UTF-8, and a key has 1 to 256: take a hash",
        ),
        ({"key": ""}, InvalidOptionError, "has 0 bytes .* leave it out"),
        (
            {"due": datetime(2999, 1, 1, tzinfo=UTC)},
            InvalidOptionError,
            "due in .* days, and 1830 are allowed",
        ),
        ({"key": "a", "due": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidOptionError, "goes with no delay"),
    ],
)
def test_a_value_that_breaks_a_rule_is_told_with_the_rule_and_nothing_is_written(
    scene, options, error, words
):
    with pytest.raises(error, match=words):
        scene.staged.add(b"x", **options)
    assert scene.entries == ()
    scene.staged.add(b"y")  # the task goes on, if its caller wants so
    assert [bodies for _, bodies in scene.filled()] == [[b"y"]]


def test_one_type_too_many_is_told(scene):
    for number in range(TYPES_MAX):
        scene.staged.add(b"x", type=f"kind-{number}")
    with pytest.raises(InvalidOptionError, match="'one-more' is one too many"):
        scene.staged.add(b"x", type="one-more")
    assert len(types_of(scene.settings)) == TYPES_MAX
