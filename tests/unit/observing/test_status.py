"""What is told of a message whose pipe has moved on since it ended."""

from datetime import timedelta

import pytest
from support.patience import until

import cassq
from cassq.model.ids import MessageId
from cassq.observing import inspection
from cassq.observing.inspection import MessageState
from cassq.storage.sqlite.storage import SqliteStorage


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q", max_attempts=1, lease=timedelta(seconds=60))


def test_a_message_that_was_given_up_is_dead_for_as_long_as_its_letter_is_there(queue):
    # Given a message that was given up and one that was committed, in a pipe that has moved on past both
    dead, committed = queue.push(b"dead"), queue.push(b"committed")
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback()
        popper.pop(timeout=60).commit()
        while queue._context.storage.load_pipe(dead.pipe).head.floor < committed.seq:
            assert queue.push(b"later").pipe == dead.pipe
            popper.pop(timeout=60).commit()
        # Then its letter tells of the one, and nobody of the other
        assert [queue.status(each).state for each in (dead, committed)] == [
            MessageState.DEAD,
            MessageState.ENDED,
        ]
        # Until it is dealt with
        queue.dead.discard(dead)
        assert queue.status(dead).state is MessageState.ENDED


def test_a_queue_has_what_is_in_its_pipes_and_what_is_dead():
    with cassq.connect("memory:") as store:
        queue = store.queue("q", max_attempts=1)
        dead, committed = queue.push(b"dead"), queue.push(b"committed")
        foreign = store.queue("others").push(b"x")
        assert [queue.has(each) for each in (dead, str(committed), foreign)] == [True, True, False]

        # And once their pipe has retired, what is a dead letter
        with queue.popper() as popper:
            popper.pop(timeout=60).rollback()
            popper.pop(timeout=60).commit()
        queue.close()
        until(lambda: store.reap() and not store.queue("q").pipes())
        again = store.queue("q")
        assert [again.has(each) for each in (dead, committed)] == [True, False]


@pytest.mark.parametrize("has_come_back", [False, True])
def test_a_message_that_ends_between_two_reads_is_not_told_to_wait(queue, monkeypatch, has_come_back):
    # Given one who asks, and whose first read is followed by a pause in which the message ends, with its rows
    message_id = queue.push(b"x")
    if has_come_back:
        with queue.popper() as popper:
            popper.pop(timeout=60).give_back()
    storage = queue._context.storage
    load = storage.load_pipe

    def load_and_pause(pipe):
        state = load(pipe)
        monkeypatch.undo()
        with queue.popper() as popper:
            popper.pop(timeout=60).commit()
        storage.delete_batches(pipe)
        return state

    monkeypatch.setattr(storage, "load_pipe", load_and_pause)

    # Then he is told that it has ended, not that it waits
    assert queue.status(message_id).state is MessageState.COMMITTED


def test_a_number_that_nobody_pushed_is_unknown_however_busy_its_pipe_is(queue, monkeypatch):
    # Given a pipe that is another one at each look
    pipe = queue.push(b"x").pipe
    load, looks = inspection.load_seen, []
    with queue.popper() as popper:

        def work_and_load(storage, pipe):
            looks.append(pipe)
            popper.pop(timeout=60).commit()
            assert queue.push(b"x").pipe == pipe
            return load(storage, pipe)

        monkeypatch.setattr(inspection, "load_seen", work_and_load)
        # Then two looks are enough
        assert queue.status(MessageId(pipe, 1000)).state is MessageState.UNKNOWN
        assert looks == [pipe, pipe]


@pytest.fixture
def keyed(queue):
    """Five messages: two of a key, another one, a third of the first key, one without a key."""
    ids = [queue.push(b"%d" % number, key=key) for number, key in enumerate("aaba")]
    return [*ids, queue.push(b"plain")]


def waits(queue, ids):
    return [queue.status(each).waits_for for each in ids]


def test_a_message_waits_for_the_first_one_of_its_key_that_has_not_ended(queue, keyed):
    first, second, _, fourth, _ = keyed
    assert waits(queue, keyed) == [None, first, None, first, None]
    with queue.popper() as popper:
        got = {each.body: each for each in (popper.pop(timeout=60) for _ in range(3))}
        assert got.keys() == {b"0", b"2", b"plain"}
        # Both are leased to the popper, and in nobody's hands
        held = [queue.status(each) for each in (second, fourth)]
        assert [each.state for each in held] == [MessageState.PENDING] * 2
        assert [each.waits_for for each in held] == [first, first]
        got[b"0"].commit()
        popper.pop(timeout=60)
        assert waits(queue, keyed) == [None, None, None, second, None]


def test_none_is_told_where_keys_have_no_order():
    with cassq.connect("memory:") as store:
        exclusive = store.queue("q", keys="exclusive")
        ids = exclusive.push_many([b"1", b"2"], key="a")
        assert waits(exclusive, ids) == [None, None]


def test_what_waits_for_its_key_is_found_behind_what_has_ended(queue):
    ids = [queue.push(b"1", key=f"a{number % 50}") for number in range(150)]
    for each in (*ids[:30], ids[50]):
        assert queue.cancel(each)
    assert queue.status(ids[149]).waits_for == ids[49]
    assert queue.status(ids[100]).waits_for is None
    assert queue.status(ids[81]).waits_for == ids[31]


def test_the_status_of_a_message_without_a_key_reads_no_others(queue, monkeypatch):
    ids = queue.push_many([b"1", b"2", b"3"])
    queries = []
    read_batches = SqliteStorage.read_batches
    monkeypatch.setattr(
        SqliteStorage,
        "read_batches",
        lambda self, pipe, query: queries.append(query) or read_batches(self, pipe, query),
    )
    assert queue.status(ids[2]).state is MessageState.WAITING
    assert [query.is_newest_first for query in queries] == [True]
