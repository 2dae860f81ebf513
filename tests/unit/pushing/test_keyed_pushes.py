"""Messages with keys on their way in: which lane, pipe and list each comes to, and in which order."""

import threading
from contextlib import closing

import pytest
from support.clocks import HandClock
from support.contexts import context_of

import cassq
from cassq.errors import InvalidOptionError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.model.key import NO_SLOT, slot_of
from cassq.model.label import Label
from cassq.model.message import NO_HEADERS
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_keys
from cassq.pushing.due_clock import DueClock
from cassq.pushing.push_buffer import PushBuffer
from cassq.pushing.push_result import PushFuture, PushLatch
from cassq.pushing.pusher import Pusher
from cassq.storage.forms import BatchQuery, DeadLetter

SLOTS = 4

#: A key of each slot.
KEYS = [next(key for key in map(str, range(100)) if slot_of(key, SLOTS) == slot) for slot in range(SLOTS)]


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


@pytest.fixture
def queue(store):
    return store.queue("q", key_slots=SLOTS)


def stored(queue):
    """Return what was pushed with keys by slot, priority and lane, in the order of the pipes."""
    found = {}
    storage = queue._context.storage
    for entry in storage.list_pipes("q", shelf=Shelf.KEYED).entries:
        place = found.setdefault((entry.slot, entry.priority, entry.lane), [])
        for batch in storage.read_batches(entry.pipe, BatchQuery(limit=10_000)):
            place += zip(batch.keys, batch.bodies, strict=True)
    return found


def test_a_key_needs_no_setting_and_the_record_tells_of_it_first(store):
    queue = store.queue("q")
    queue.push(b"x")
    assert not uses_keys(queue.settings)
    queue.push(b"y", key="customer-42")
    assert uses_keys(queue.settings)
    assert stored(queue) == {(slot_of("customer-42", 16), 0, 0): [("customer-42", b"y")]}
    (plain,) = queue._context.storage.list_pipes("q").entries
    assert plain.slot == NO_SLOT


def test_all_ways_to_push_carry_the_key(queue):
    queue.push(b"1", key=KEYS[1])
    queue.push_soon(b"2", key=KEYS[1]).result(30)
    queue.push_many([b"3", (b"4", {"a": "b"})], key=KEYS[1])
    assert stored(queue) == {(1, 0, 0): [(KEYS[1], body) for body in (b"1", b"2", b"3", b"4")]}


def test_slots_and_priorities_have_pipes_of_their_own_and_keys_of_one_slot_share_one(queue):
    other = next(key for key in map(str, range(100, 200)) if slot_of(key, SLOTS) == 2)
    for key, priority in ((KEYS[2], 0), (other, 0), (KEYS[2], 5), (KEYS[3], 0)):
        queue.push(key.encode(), key=key, priority=priority)
    assert stored(queue) == {
        (2, 0, 0): [(KEYS[2], KEYS[2].encode()), (other, other.encode())],
        (2, 5, 0): [(KEYS[2], KEYS[2].encode())],
        (3, 0, 0): [(KEYS[3], KEYS[3].encode())],
    }


def test_what_is_no_key_pushes_nothing(queue):
    for options in ({"key": ""}, {"key": 7}):
        with pytest.raises(InvalidOptionError, match="key="):
            queue.push(b"x", **options)
    assert stored(queue) == {}
    assert not uses_keys(queue.settings)


@pytest.mark.parametrize("width", [2, 3])
def test_of_one_slot_all_goes_to_one_lane_in_the_order_of_the_pushes(store, width):
    queue = store.queue("q", key_slots=SLOTS, push_width=width, pipe_messages_max=7)
    futures = [queue.push_soon(b"%d" % number, key=KEYS[number % SLOTS], timeout=60) for number in range(200)]
    for future in futures:
        future.result(60)
    assert stored(queue) == {
        (slot, 0, slot % width): [(KEYS[slot], b"%d" % number) for number in range(slot, 200, SLOTS)]
        for slot in range(SLOTS)
    }


class Refusing:
    """A storage that refuses the second write of a pipe, until it is told to go on."""

    def __init__(self, storage):
        self._storage = storage
        self.left = 1

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def append(self, pipe, batch):
        if batch.first > 1 and self.left:
            self.left -= 1
            raise StorageUnavailableError("away")
        self._storage.append(pipe, batch)


def test_what_is_pushed_again_in_another_pipe_keeps_its_order_and_its_keys(store, queue):
    context = context_of(Refusing(store.storage), queue.settings, HandClock(), coordinator=store.coordinator)
    with closing(Pusher(context, DueClock(context))) as pusher:
        label = Label(slot=1, key=KEYS[1])
        for number in range(5):
            pusher.push(b"%d" % number, None, 30.0, label)
    assert stored(queue) == {(1, 0, 0): [(KEYS[1], b"%d" % number) for number in range(5)]}


class TestTheBuffer:
    def buffer(self):
        return PushBuffer(HandClock(), 1000, 1_000_000, lanes=2)

    def put(self, buffer, slot, body=b"x"):
        end = PushLatch(Label(slot=slot, key=KEYS[slot])) if slot != NO_SLOT else PushFuture()
        buffer.put_one(body, NO_HEADERS, 1e12, end)

    def test_gives_each_lane_its_own_slots_and_what_has_none_to_whoever_asks(self):
        buffer = self.buffer()
        for slot in (0, 1, 2, 3, NO_SLOT):
            self.put(buffer, slot)
        taken = [request.label.slot for _ in range(4) for request in buffer.get(1)]
        assert sorted(taken) == [NO_SLOT, 1, 3]
        assert [[request.label.slot for request in buffer.get(0)] for _ in range(3)] == [[0], [2], []]

    def test_wakes_a_lane_for_its_own_slots_alone(self):
        buffer = self.buffer()
        self.put(buffer, 0)
        waited = []
        buffer._clock.wait = lambda _condition, seconds: waited.append(seconds)
        buffer.wait(7.0, 0)
        assert waited == []
        buffer.wait(7.0, 1)
        assert waited == [7.0]

    def test_lets_no_lane_spin_at_what_is_left_for_another_as_it_closes(self):
        buffer = self.buffer()
        self.put(buffer, 0)
        buffer.close()
        waited = []
        buffer._clock.wait = lambda _condition, seconds: waited.append(seconds)
        buffer.wait(7.0, 1)
        assert waited == [7.0]
        assert buffer.get(0)
        buffer.wait(7.0, 1)
        assert waited == [7.0]
        assert buffer.is_finished

    def test_keeps_keys_and_messages_together_where_one_was_torn_away(self):
        buffer = self.buffer()
        self.put(buffer, 1, b"a")
        (request,) = buffer._requests
        for row in (request._bodies, request._headers, request._keys):
            row.append("torn")
        self.put(buffer, 1, b"b")
        (request,) = buffer.get(1)
        assert (list(request.bodies), list(request.keys)) == ([b"a", b"b"], [KEYS[1]] * 2)


def test_closing_stores_what_waits_for_every_lane(store):
    queue = store.queue("q", key_slots=SLOTS, push_width=3)
    futures = [queue.push_soon(b"x", key=key) for key in KEYS * 50]
    threading.Thread(target=queue.close).start()
    assert len({future.result(60) for future in futures}) == 200


def test_a_letter_is_put_back_with_its_key_also_into_another_queue(store, queue):
    other = store.queue("other", key_slots=2)
    storage = queue._context.storage
    for body, key in ((b"1", KEYS[3]), (b"2", "")):
        letter = DeadLetter(MessageId(new_pipe_id(), 1), body, {}, 7000, 5, "no", priority=2, key=key)
        storage.change_dead("q", added=[letter])
    assert sorted(letter.key or "" for letter in queue.dead) == ["", KEYS[3]]
    queue.dead.redrive(other, where=lambda letter: letter.key is not None)
    assert queue.dead.put_back() == 1
    (entry,) = storage.list_pipes("other", shelf=Shelf.KEYED).entries
    assert (entry.slot, entry.priority) == (slot_of(KEYS[3], 2), 2)
    assert uses_keys(other.settings)
    assert stored(queue) == {}
