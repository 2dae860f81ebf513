"""What is told of a message whose pipe has moved on since it ended."""

from datetime import timedelta

import pytest

import cassq
from cassq.observing.inspection import MessageState


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


def test_a_message_that_ends_between_two_reads_is_not_told_to_wait(queue, monkeypatch):
    # Given one who asks, and whose first read is followed by a pause in which the message ends, with its rows
    message_id = queue.push(b"x")
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
