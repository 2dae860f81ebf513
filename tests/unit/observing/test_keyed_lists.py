"""Messages with keys, for those who look at all of a queue, or end single messages of it by hand."""

from datetime import timedelta

import pytest

import cassq
from cassq import MessageState
from cassq.cli.doctor.pipes import examine
from cassq.errors import InvalidOptionError
from cassq.model.key import slot_of
from cassq.model.ranges import Ranges
from cassq.model.shelf import Shelf
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.pipe_list import PipeList
from cassq.pipes.run_rows import Return
from cassq.storage.sqlite.storage import SqliteStorage


@pytest.fixture
def asked(monkeypatch):
    """Which lists are read."""
    shelves = []
    list_pipes = SqliteStorage.list_pipes

    def noted(self, *arguments, shelf=Shelf.READY, **others):
        shelves.append(shelf)
        return list_pipes(self, *arguments, shelf=shelf, **others)

    monkeypatch.setattr(SqliteStorage, "list_pipes", noted)
    return shelves


@pytest.fixture
def store(asked):
    with cassq.connect("memory:") as opened:
        yield opened


@pytest.fixture
def queue(store):
    return store.queue("q", max_attempts=2)


def keyed(queue):
    return queue._context.storage.list_pipes("q", shelf=Shelf.KEYED).entries


def take(queue, wanted=100):
    """Take from the one pipe of slots, as its owner; return what a consumer holds."""
    context = queue._context
    (entry,) = keyed(queue)
    owned = OwnedPipe(context, entry, context.storage.load_pipe(entry.pipe), Taker("a popper"))
    result = owned.take(wanted)
    (taken,) = result.runs
    return HeldRun(context, entry, taken, context.clock.latest() + 30, on_row_changed=lambda *_rows: None)


def commit(held, *numbers):
    for seq in numbers:
        assert held.write(held.marks(Ranges(((seq, seq),))))


def test_they_are_counted_shown_and_purged(queue):
    queue.push(b"plain")
    ids = queue.push_many([b"1", b"2", b"3"], key="a", priority=2, type="mail")
    held = take(queue, 1)
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.pushed, stats.pipes) == (3, 1, 4, 2)
    assert [(each.priority, each.waiting) for each in stats.priorities] == [(2, 2), (0, 1)]
    told = {(pipe.pushed, pipe.popped, pipe.slot, pipe.to_json()["slot"]) for pipe in queue.pipes()}
    assert told == {(1, 0, None, None), (3, 1, slot_of("a", 16), slot_of("a", 16))}
    shown = {message.body: (message.key, message.priority, message.type) for message in queue.peek(10)}
    assert shown == {b"plain": (None, 0, None), b"2": ("a", 2, "mail"), b"3": ("a", 2, "mail")}
    assert [(run.pipe, run.left) for run in queue.runs()] == [(ids[0].pipe, 1)]
    assert [queue.status(each).state for each in ids[:2]] == [MessageState.PENDING, MessageState.WAITING]
    assert queue.purge() == 3
    commit(held, 1)
    assert queue.stats().waiting == 0


def test_a_pipe_of_a_slot_tells_who_claims_the_slot(queue):
    queue.push(b"1", key="a")
    assert [pipe.owner for pipe in queue.pipes()] == [None]
    with queue.popper() as popper:
        assert popper.pop(timeout=60)
        assert [pipe.owner for pipe in queue.pipes()] == [popper.name]


def test_one_that_nobody_has_is_cancelled_and_one_that_works_is_not(queue):
    ids = queue.push_many([b"1", b"2"], key="a")
    held = take(queue, 1)
    assert queue.cancel(ids[1])
    assert not queue.cancel(ids[0])
    for message_id in ids:
        with pytest.raises(
            InvalidOptionError,
            match=r"has a key, and running=True is refused, .*: let that consumer reject it; or",
        ):
            queue.cancel(message_id, running=True)
    assert held.give_back(Ranges(((1, 1),)), Return())
    assert queue.cancel(ids[0])
    assert queue.status(ids[0]).state is MessageState.PURGED


def test_none_is_moved(queue):
    message_id = queue.push(b"1", key="a")
    for move in (
        lambda: queue.reschedule(message_id, delay=timedelta(minutes=5)),
        lambda: queue.reprioritise(message_id, 5),
    ):
        with pytest.raises(
            InvalidOptionError, match=r"has a key, and is not moved: .* cancel it, and push it"
        ):
            move()
    assert [message.body for message in queue.peek()] == [b"1"]


def test_run_readers_refuse_their_queue(queue):
    queue.push(b"1")
    lease = timedelta(seconds=30)
    reader = queue.run_reader("early", lease=lease)
    assert sum(run.count for run in reader.take(None)) == 1
    queue.push(b"2", key="a")
    reader._is_woken = True
    for read in (lambda: reader.take(None), lambda: queue.run_reader("late", lease=lease)):
        with pytest.raises(InvalidOptionError, match="has messages with keys, of which a reader takes none"):
            read()


def test_a_reaper_seals_returns_and_retires_their_pipes(store, queue):
    ids = queue.push_many([b"1", b"2"], key="a")
    commit(take(queue), 1, 2)
    assert queue.reap().retired == 0
    queue.close()  # which seals it
    again = store.queue("q")
    assert again.reap().retired == 1
    assert keyed(again) == ()
    assert again.stats().committed == 2
    assert again.status(ids[0]).state is MessageState.ENDED


def test_none_is_put_off_for_long_where_others_of_its_key_may_wait(store, queue):
    queue.push(b"1", key="a")
    assert take(queue).give_back(Ranges(((1, 1),)), Return(delay_ms=3_600_000))
    queue.close()
    again = store.queue("q")
    assert again.reap().moved == 0
    assert len(keyed(again)) == 1


def test_the_reaper_buries_what_came_back_from_its_last_attempt_with_its_key(store, queue):
    queue.push(b"1", key="a")
    for _ in range(2):
        assert take(queue).give_back(Ranges(((1, 1),)), Return(reason="no"))
    queue.close()
    again = store.queue("q")
    assert again.reap().buried == 1
    assert [letter.key for letter in again.dead] == ["a"]


def test_they_go_with_their_queue(store, queue):
    queue.push(b"1", key="a")
    storage = store.storage
    (entry,) = keyed(queue)
    assert storage.change_slot(queue.record.incarnation, slot_of("a", 16), None, entry.pipe)
    store.delete_queue("q")
    assert storage.list_pipes("q", shelf=Shelf.KEYED).entries == ()
    assert storage.load_pipe(entry.pipe) is None
    assert storage.read_slot(queue.record.incarnation, slot_of("a", 16)) is None


def test_a_doctor_looks_at_their_pipes(store, queue):
    queue.push(b"1", key="a")
    (finding,) = examine(store)
    assert "1 pipes, none is stuck" in finding.told


def test_pipes_of_slots_are_listed_for_those_alone_who_ask_for_them(queue):
    context = queue._context
    queue.push(b"plain")
    queue.push(b"1", key="a")
    (entry,) = keyed(queue)
    plain, whole = PipeList(context), PipeList(context, has_keyed=True)
    for _ in range(2):
        assert [each.is_keyed for each in plain.refresh(0).entries] == [False]
        assert {each.is_keyed for each in whole.refresh(0).entries} == {False, True}
    whole.forget(entry.pipe)
    assert {each.is_keyed for each in whole.entries} == {False}


def test_a_process_that_has_not_heard_of_keys_finds_one_to_cancel(tmp_path):
    with (
        cassq.connect(f"sqlite:///{tmp_path / 'store.db'}") as first,
        cassq.connect(f"sqlite:///{tmp_path / 'store.db'}") as second,
    ):
        late = second.queue("q")
        message_id = first.queue("q").push(b"1", key="a")
        assert late.cancel(message_id)


def test_queues_without_keys_pay_nothing(store, queue, asked):
    message_id = queue.push(b"1", delay=timedelta(hours=1), priority=3)
    other = queue.push(b"2")
    queue.stats()
    queue.pipes()
    queue.peek()
    queue.runs()
    queue.reap()
    assert queue.reschedule(message_id, delay=timedelta(hours=2))
    assert queue.cancel(other)
    queue.purge()
    list(examine(store))
    store.delete_queue("q")
    assert Shelf.SCHEDULED in asked
    assert Shelf.KEYED not in asked
