"""What goes with a queue that is deleted, and what does not."""

import pytest

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError, QueueNotFoundError, StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.runtime.clock import SystemClock
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store


class BeforeLetters:
    """A storage in which something happens before dead letters are read."""

    def __init__(self, storage, happens):
        self._storage = storage
        self._happens = happens

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def read_dead(self, *values, **named):
        self._happens()
        return self._storage.read_dead(*values, **named)


@pytest.fixture
def storage():
    made = SqliteStorage(None, is_synced=False, clock=SystemClock())
    yield made
    made.close()


@pytest.fixture
def open_store(storage):
    """Return how to open a store over the storage."""
    clock = SystemClock()
    coordinator = LocalCoordinator(None, clock)
    opened = []

    def open_store(happens=lambda: None):
        seen = BeforeLetters(storage, happens)
        opened.append(Store("memory:", Adapters(seen, coordinator, lambda: None), clock=clock))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()
    coordinator.close()


def letter(pipe, seq):
    return DeadLetter(MessageId(pipe, seq), b"x", {}, 1, 5, "planted")


class TestADeletionThatCannotClearEverything:
    @pytest.fixture
    def failures(self):
        return [StorageUnavailableError("too many tombstones")]

    @pytest.fixture
    def store(self, open_store, failures):
        def fail():
            if failures:
                raise failures.pop()

        store = open_store(fail)
        store.queue("q").push(b"a")
        return store

    @pytest.fixture(autouse=True)
    def deleted(self, storage, store):
        """Delete the queue, without its dead letters; return the error."""
        storage.change_dead("q", added=[letter(new_pipe_id(), 1)])
        with pytest.raises(CassqError) as caught:
            store.delete_queue("q")
        return caught.value

    def test_says_that_the_queue_is_deleted(self, deleted):
        assert type(deleted) is CassqError  # neither "nothing happened" nor "nobody knows"
        assert str(deleted).startswith("queue 'q' is deleted, but not all that it held is cleared: too many")

    def test_has_cleared_the_messages(self, storage, store):
        assert list(storage.list_pipes("q").entries) == []
        assert store.queues() == []

    def test_goes_on_with_the_next_call(self, storage, store):
        store.delete_queue("q")

        assert list(storage.read_dead("q")) == []
        with pytest.raises(QueueNotFoundError):
            store.delete_queue("q")

    def test_says_so_again_where_the_next_call_fails_too(self, store, failures):
        failures.append(StorageUnavailableError("still too many"))

        with pytest.raises(CassqError, match=r"'q' is deleted, .* still too many") as caught:
            store.delete_queue("q")

        assert type(caught.value) is CassqError

    def test_goes_on_with_the_reaper(self, storage, store):
        assert store.reap().retired == 1

        assert list(storage.read_dead("q")) == []


def test_letters_go_with_the_queue_whether_their_pipes_live_or_not(storage, open_store):
    store = open_store()
    queue = store.queue("q")
    pipes = [queue.push(b"a").pipe, *(new_pipe_id() for _ in range(150))]
    storage.change_dead("q", added=[letter(pipe, seq) for pipe in pipes for seq in (1, 2, 4)])

    store.delete_queue("q")

    assert list(storage.read_dead("q")) == []


def test_letters_of_a_later_queue_of_the_name_stay(storage, open_store):
    later = letter(new_pipe_id(), 1)
    is_later = []

    def create():
        if not is_later:
            is_later.append(True)
            open_store().queue("q")
            storage.change_dead("q", added=[later])

    store = open_store(create)
    store.queue("q")
    storage.change_dead("q", added=[letter(new_pipe_id(), 1)])

    store.delete_queue("q")

    assert [each.message_id for each in storage.read_dead("q")] == [later.message_id]
