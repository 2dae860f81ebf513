"""Messages with keys come in, are seen and are ended, on every store."""

import asyncio
from datetime import timedelta

import pytest
from support.patience import until

import cassq.aio
from cassq import MessageState
from cassq.model.key import slot_of
from cassq.model.pipe import End, Mark
from cassq.model.ranges import Ranges
from cassq.model.shelf import Shelf
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return


def keyed(queue):
    return queue._context.storage.list_pipes(queue.name, shelf=Shelf.KEYED).entries


def take(queue, entry):
    """Take all of a pipe, as its owner; return what a consumer holds."""
    context = queue._context
    owned = OwnedPipe(context, entry, context.storage.load_pipe(entry.pipe), Taker("a popper"))
    (taken,) = owned.take(100).runs
    return HeldRun(context, entry, taken, context.clock.latest() + 30, on_row_changed=lambda *_rows: None)


def test_they_are_pushed_seen_and_ended(queue, store, name):
    plain = queue.push(b"plain")
    one = queue.push(b"1", {"a": "b"}, key="customer-42", priority=3)
    two = queue.push_soon(b"2", key="customer-42", priority=3).result(30)
    many = queue.push_many([b"3", b"4"], key="ü")
    entries = {entry.pipe: entry for entry in keyed(queue)}
    assert {pipe: (entry.slot, entry.priority) for pipe, entry in entries.items()} == {
        one.pipe: (slot_of("customer-42", 16), 3),
        many[0].pipe: (slot_of("ü", 16), 0),
    }
    shown = {message.message_id: (message.body, message.key) for message in queue.peek(10)}
    assert shown == {
        plain: (b"plain", None),
        one: (b"1", "customer-42"),
        two: (b"2", "customer-42"),
        many[0]: (b"3", "ü"),
        many[1]: (b"4", "ü"),
    }
    assert queue.stats().waiting == 5
    assert queue.cancel(two)
    held = take(queue, entries[many[0].pipe])
    assert held.write(held.marks(Ranges(((1, 1),))))
    assert held.give_back(Ranges(((2, 2),)), Return(reason="no", is_last=True), [(2, b"4", {}, 1, None)])
    marks = queue._context.storage.load_pipe(many[0].pipe).marks
    assert marks[0] == Mark(1, 1, End.COMMITTED, attempt=1)
    assert [letter.key for letter in queue.dead] == ["ü"]
    assert queue.purge() == 2
    assert queue.status(one).state is MessageState.PURGED
    queue.close()
    again = store.queue(name)
    assert again.reap().retired == 3
    assert keyed(again) == ()
    told = again.stats()
    assert (told.pushed, told.committed, told.dead, told.purged) == (5, 1, 1, 3)
    assert again.dead.put_back() == 1
    assert [message.key for message in again.peek()] == ["ü"]


def test_a_commit_that_lands_late_leaves_its_key_busy(store, name):
    queue = store.queue(name, lease=timedelta(milliseconds=300), clock_skew_max=timedelta(milliseconds=100))
    queue.push(b"1", key="a")
    (entry,) = keyed(queue)
    late = take(queue, entry).marks(Ranges(((1, 1),)))
    until(lambda: _load(queue, entry).expired())
    take(queue, entry)
    queue._context.storage.mark(entry.pipe, late)
    pipe = _load(queue, entry)
    (run,) = pipe.progress.runs.values()
    assert run.attempt == 2
    assert list(pipe.progress.ended_before(run)) == [(1, 1)]
    assert not pipe.is_over


def _load(queue, entry):
    context = queue._context
    return OwnedPipe(context, entry, context.storage.load_pipe(entry.pipe), Taker("a popper"))


def test_tasks_push_with_keys(store, name):
    async def push():
        queue = await cassq.aio.Store(store).queue(name)
        return await asyncio.gather(*(queue.push(b"x", key=key) for key in "abab"))

    ids = asyncio.run(push())
    assert {entry.pipe for entry in keyed(store.queue(name))} == {each.pipe for each in ids}


def test_they_go_with_their_queue(store, name):
    queue = store.queue(name)
    message_id = queue.push(b"x", key="a")
    store.delete_queue(name)
    assert store.storage.list_pipes(name, shelf=Shelf.KEYED).entries == ()
    assert store.storage.load_pipe(message_id.pipe) is None


@pytest.mark.parametrize("late", [{"delay": timedelta(seconds=5)}, {"ttl": timedelta(0)}, {"key": "x" * 257}])
def test_what_is_refused_pushes_nothing(queue, late):
    with pytest.raises(cassq.InvalidOptionError):
        queue.push(b"x", **({"key": "a"} | late))
    assert keyed(queue) == ()
