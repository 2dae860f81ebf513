"""Opening the next pipe while the one before is still worked on."""

import threading

import pytest
from support.contexts import context_of

import cassq
from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_token
from cassq.model.transaction import Retire, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.popping.pipe_opener import AHEAD_MAX, PipeOpener, Refusal
from cassq.runtime.background_thread import BackgroundThread
from cassq.storage.port import Storage


class Counted:
    """A storage that counts its reads, knows the threads that made them, and can be out of reach."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.reads = 0
        self.readers = set()
        self.is_out = False
        self.bugs = set()

    def load_pipe(self, pipe):
        self._fail_in("load_pipe")
        if self.is_out:
            raise StorageUnavailableError("out of reach")
        return self._storage.load_pipe(pipe)

    def read_batches(self, pipe, query):
        self._fail_in("read_batches")
        self.reads += 1
        self.readers.add(threading.current_thread().name)
        return self._storage.read_batches(pipe, query)

    def _fail_in(self, method):
        if method in self.bugs:
            raise RuntimeError("a bug")

    def __getattr__(self, name):
        return getattr(self._storage, name)


@pytest.fixture
def store():
    with cassq.connect("memory:") as store:
        yield store


@pytest.fixture
def queue(store):
    return store.queue("orders", pipe_messages_max=100)


@pytest.fixture
def storage(store):
    return Counted(store.storage)


@pytest.fixture
def threads():
    threads = [BackgroundThread("beside") for _ in range(AHEAD_MAX)]
    yield threads
    for thread in threads:
        thread.shutdown()


@pytest.fixture
def opener(store, queue, storage, threads):
    context = context_of(storage, queue.settings, queue="orders", coordinator=store.coordinator)
    return PipeOpener(context, "me", Taker("me", beside=threads[0]), threads)


@pytest.fixture
def entries(store, queue):
    queue.push_many([b"%d" % number for number in range(150)])
    entries = store.storage.list_pipes("orders").entries
    assert len(entries) == 2
    return entries


def holders(store):
    return store.coordinator.holders("orders")


def test_what_was_opened_ahead_is_taken_without_another_read(opener, entries, storage):
    opener.open_ahead(entries[:1])
    owned = opener.open(entries[0])
    reads_before = storage.reads

    result = owned.take(100)

    assert [taken.count for taken in result.runs] == [100]
    assert storage.reads == reads_before == 1


def test_so_many_are_opened_ahead_and_no_more(opener, store, queue):
    queue.push_many([b"%d" % number for number in range(100 * (AHEAD_MAX + 1))])
    entries = store.storage.list_pipes("orders").entries
    opener.open_ahead(entries)
    opener.open_ahead(entries)
    for entry in entries[:AHEAD_MAX]:
        opener.open(entry)

    assert len(entries) > AHEAD_MAX
    assert holders(store).keys() == {entry.pipe for entry in entries[:AHEAD_MAX]}


def test_what_is_not_listed_any_more_is_given_up(opener, entries, store):
    opener.open_ahead(entries)
    opener.keep_only({entries[1].pipe})

    assert isinstance(opener.open(entries[1]), OwnedPipe)  # however long that takes
    assert dict(holders(store)) == {entries[1].pipe: "me"}


def test_dropping_gives_the_claim_up(opener, entries, store):
    opener.open_ahead(entries[:1])
    opener.drop()

    assert not opener.has_any
    assert not holders(store)


def test_a_pipe_that_somebody_else_claims_is_busy_and_stays_theirs(opener, entries, store):
    store.coordinator.claim("orders", entries[0].pipe, "you")
    opener.open_ahead(entries[:1])

    assert opener.open(entries[0]) is Refusal.BUSY
    opener.open_ahead(entries[:1])
    opener.drop()
    assert dict(holders(store)) == {entries[0].pipe: "you"}


def test_a_pipe_that_is_gone_is_not_kept_claimed(opener, entries, store):
    pipe = entries[0].pipe
    op = store.storage.load_pipe(pipe).head.op
    assert store.storage.transact(pipe, Transaction(Retire(op, new_token()))).is_applied
    store.storage.delete_pipe("orders", pipe)
    opener.open_ahead(entries[:1])

    assert opener.open(entries[0]) is Refusal.GONE
    assert not holders(store)


def test_an_outage_while_it_was_opened_ahead_is_forgotten_when_it_is_over(
    opener, entries, storage, store, threads
):
    storage.is_out = True
    opener.open_ahead(entries[:1])
    for thread in threads:
        thread.submit(lambda: None).result()
    storage.is_out = False

    assert opener.open(entries[0]).pipe == entries[0].pipe
    assert dict(holders(store)) == {entries[0].pipe: "me"}


def test_an_outage_that_lasts_is_told_and_leaves_no_claim(opener, entries, storage, store):
    storage.is_out = True
    opener.open_ahead(entries[:1])

    with pytest.raises(StorageUnavailableError, match="out of reach"):
        opener.open(entries[0])
    assert not holders(store)


@pytest.mark.parametrize("method", ["load_pipe", "read_batches"])
def test_an_error_that_nobody_expected_does_not_hold_up_giving_the_rest_up(
    opener, entries, storage, store, threads, method
):
    storage.bugs = {method}
    opener.open_ahead(entries[:1])
    for thread in threads:
        thread.submit(lambda: None).result()
    storage.bugs = set()
    opener.open_ahead(entries)

    opener.drop()

    assert not opener.has_any
    assert not holders(store)


def test_pipes_of_many_batches_are_read_on_while_takes_are_under_way(store, queue, opener, storage):
    bodies = [b"%d" % number for number in range(60)]
    for body in bodies:
        queue.push(body)
    popped = []
    for entry in store.storage.list_pipes("orders").entries:
        owned = opener.open(entry)
        while result := owned.take(7).runs:
            popped += [body for taken in result for _, body, *_ in taken.messages]

    assert popped == bodies
    assert "beside" in storage.readers
