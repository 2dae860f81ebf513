"""What a task's staged pipes make of writes that fail, for a while and for good."""

from dataclasses import replace
from itertools import pairwise

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk.staged_pipes import PATIENCE_S, PAUSE_MAX_S, StagedPipes
from cassq.errors import (
    ClosedError,
    OutcomeUnknownError,
    PipeLostError,
    QueueNotFoundError,
    StorageUnavailableError,
)
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.storage.forms import BatchQuery
from cassq.storage.sqlite.storage import SqliteStorage


class Clock(HandClock):
    """Whoever waits has waited."""

    def wait(self, condition, seconds):
        self.seconds += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def storage(clock):
    made = SqliteStorage(None, is_synced=False, clock=clock)
    assert made.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
    yield made
    made.close()


@pytest.fixture
def staged(storage, clock):
    context = context_of(storage, QueueSettings(pipe_messages_max=3), clock)
    return StagedPipes(context, "a-writer/1/a task")


def bodies(storage, pipes):
    """What is in each of the pipes, in order."""
    found = (storage.read_batches(pipe, BatchQuery(limit=99)) for pipe in pipes)
    return [[body for batch in batches for body in batch.bodies] for batches in found]


def listed(storage):
    return [entry.pipe for entry in storage.list_pipes("q", shelf=Shelf.STAGED).entries]


def fill(staged, count):
    for number in range(count):
        staged.add(b"%d" % number)


METHODS = ["create_pipe", "append", "transact"]


@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "reply lost"])
@pytest.mark.parametrize("method", METHODS)
def test_a_write_that_fails_for_a_while_is_made_again(storage, staged, monkeypatch, method, is_done):
    real = getattr(storage, method)
    times = []

    def fail(*args, **how):
        times.append(None)
        if len(times) % 3 == 0:
            return real(*args, **how)
        if is_done:
            real(*args, **how)
            raise OutcomeUnknownError("planted")
        raise StorageUnavailableError("planted")

    monkeypatch.setattr(storage, method, fail)
    fill(staged, 5)
    # Then each message is there once, in order, and each pipe ends behind its last one
    pipes = staged.close()
    assert bodies(storage, pipes) == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert [storage.load_pipe(pipe).head.last for pipe in pipes] == [3, 2]
    # And what was opened without an answer is not among them
    assert set(pipes) <= set(listed(storage))


@pytest.mark.parametrize("method", METHODS)
def test_a_write_that_fails_for_good_ends_the_task_and_nothing_can_be_added(
    storage, staged, clock, monkeypatch, method
):
    times = []

    def fail(*_, **__):
        times.append(clock.now())
        raise OutcomeUnknownError("planted")

    began = clock.now()
    with monkeypatch.context() as patch:
        patch.setattr(storage, method, fail)
        with pytest.raises(OutcomeUnknownError):
            fill(staged, 4)
    # It was tried with pauses that grow, and for as long as was promised
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    assert max(pauses) <= PAUSE_MAX_S
    assert PATIENCE_S <= clock.now() - began <= PATIENCE_S + PAUSE_MAX_S
    # The database is back: what is added now would get the numbers of what may still land
    with pytest.raises(ClosedError, match="discard them"):
        staged.add(b"later")
    staged.discard()
    assert set(listed(storage)) == set()


def test_a_pipe_that_was_cleared_away_is_told_as_lost(storage, staged):
    staged.add(b"0")
    (pipe,) = listed(storage)
    storage.delete_pipe("q", pipe, shelf=Shelf.STAGED)
    with pytest.raises(PipeLostError):
        staged.close()


def test_nothing_is_left_of_what_was_discarded(storage, staged):
    fill(staged, 4)
    staged.discard()
    assert listed(storage) == []
    assert staged.close() == ()


def test_pipes_hold_as_many_bytes_as_the_queue_says(storage, clock):
    settings = QueueSettings(pipe_bytes_max=2**21, body_bytes_max=2**20)
    staged = StagedPipes(context_of(storage, settings, clock), "a-writer/1/a task")
    for _ in range(5):
        staged.add(b"x" * (2**20 - 100))
    sizes = [len(found) for found in bodies(storage, staged.close())]
    assert sizes == [2, 2, 1]


def test_a_task_may_close_twice_and_go_on_after_it(storage, staged):
    fill(staged, 2)
    pipes = staged.close()
    assert staged.close() == pipes
    fill(staged, 2)
    assert bodies(storage, staged.close()) == [[b"0", b"1"]] * 2


def test_what_is_staged_while_the_queue_is_created_anew_is_refused(storage, staged):
    fill(staged, 4)
    (old,) = storage.read_queues("q")
    gone = replace(old, state=QueueState.DELETED, op=new_token())
    assert storage.change_queue(old, gone)
    assert storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(key_slots=3), new_token()))
    fill(staged, 4)

    with pytest.raises(QueueNotFoundError):
        staged.close()
