"""What every adapter does with rows that are not cassq's, and after it was closed."""

import os
import warnings
from dataclasses import replace

import pytest
from spoilt import make_rollup
from stored import EARLY_MS, batch, letter, record, run, take

from cassq.errors import ClosedError, DecodeError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import to_datetime
from cassq.model.pipe import End, Head, Mark, PipeEntry
from cassq.model.transaction import (
    Seal,
    Transaction,
)
from cassq.storage.forms import BatchQuery

CALLS = {
    "read_queues": lambda storage: storage.read_queues("q"),
    "list_queues": lambda storage: storage.list_queues(),
    "glance_queue": lambda storage: storage.glance_queue("q"),
    "change_queue": lambda storage: storage.change_queue(None, record("q")),
    "create_pipe": lambda storage: storage.create_pipe("q", PipeEntry(new_pipe_id(), "p"), Head(new_token())),
    "list_pipes": lambda storage: storage.list_pipes("q"),
    "delete_pipe": lambda storage: storage.delete_pipe("q", new_pipe_id()),
    "append": lambda storage: storage.append(new_pipe_id(), batch(1, b"a")),
    "read_batches": lambda storage: storage.read_batches(new_pipe_id(), BatchQuery()),
    "load_pipe": lambda storage: storage.load_pipe(new_pipe_id()),
    "transact": lambda storage: storage.transact(new_pipe_id(), Transaction(Seal(1))),
    "mark": lambda storage: storage.mark(new_pipe_id(), [Mark(1, 1, End.DEAD)]),
    "read_dead": lambda storage: storage.read_dead("q"),
    "change_dead": lambda storage: storage.change_dead("q", [letter(new_pipe_id(), 1)]),
    "publish_pipes": lambda storage: storage.publish_pipes("q", [PipeEntry(new_pipe_id(), "p")]),
    "write_rollups": lambda storage: storage.write_rollups("q", [make_rollup(EARLY_MS)]),
    "read_rollups": lambda storage: storage.read_rollups("q", to_datetime(EARLY_MS).date()),
}


def _outcome(call, storage):
    try:
        call(storage)
    except BaseException as error:
        return type(error).__name__
    return "nothing"


class TestRowsThatAreNotOurs:
    @pytest.mark.parametrize("what", ["phase", "run", "mark"])
    def test_a_pipe_with_one_raises(self, storage, adapter, pipe, what):
        take(storage, pipe, run(1, 1))
        storage.mark(pipe, [Mark(1, 1, End.COMMITTED)])

        adapter.plant(storage, what, pipe)

        with pytest.raises(DecodeError, match="melted"):
            storage.load_pipe(pipe)

    def test_rows_that_cannot_be_true_together_raise(self, storage, adapter, pipe):
        take(storage, pipe, run(1, 2))

        adapter.plant(storage, "cursor", pipe)

        with pytest.raises(DecodeError, match="message 3 was handed out or purged, and no row tells of it"):
            storage.load_pipe(pipe)

    def test_a_batch_that_says_another_number_than_it_has_raises(self, storage, adapter, pipe):
        storage.append(pipe, batch(1, b"a"))

        adapter.plant(storage, "batch", pipe)

        with pytest.raises(DecodeError):
            storage.read_batches(pipe, BatchQuery())

    def test_a_queue_in_a_state_that_there_is_not_raises(self, storage, adapter, queue):
        first = record(queue)
        storage.change_queue(None, first)

        adapter.plant(storage, "record", queue)

        with pytest.raises(DecodeError, match="melted"):
            storage.read_queues(queue)
        storage.change_queue(first, replace(first, op=new_token()))  # others read the list of all queues

    def test_a_letter_without_its_parts_raises(self, storage, adapter, queue):
        storage.change_dead(queue, added=[letter(new_pipe_id(), 1)])

        adapter.plant(storage, "letter", queue)

        with pytest.raises(DecodeError):
            storage.read_dead(queue)


class TestEnds:
    def test_every_method_refuses_after_close(self, adapter):
        storage = adapter.open()
        storage.close()
        storage.close()

        for call in CALLS.values():
            with pytest.raises(ClosedError):
                call(storage)

    def test_every_method_refuses_in_a_forked_child(self, adapter):
        storage = adapter.open()
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
            child = os.fork()
        if child == 0:
            os.write(writer, ",".join(_outcome(call, storage) for call in CALLS.values()).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as said:
            assert said.read().split(",") == ["ClosedError"] * len(CALLS)

        assert list(storage.read_queues("no such queue")) == []  # the parent goes on
        storage.close()
