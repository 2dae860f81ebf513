"""Bulk writes that happen all or not at all, on every store."""

from functools import partial
from uuid import UUID

import pytest
from support.patience import patiently

from cassq.bulk.writers import ONCE
from cassq.errors import InvalidNameError, OutcomeUnknownError, PipeLostError, StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.shelf import Shelf


def fill(queue, bodies, writer="loader", batch=1, task="0"):
    """Stage messages; return the pipes."""
    pipes = queue.staging.open(writer, batch, task)
    for body in bodies:
        pipes.add(body, {"task": task})
    return pipes.close()


@pytest.fixture(autouse=True)
def _patient_looks(monkeypatch):
    """Let a pop wait for the end of its look, however slow the machine is."""
    monkeypatch.setattr("cassq.popping.consumer_line.LOOK_TIMEOUT_S", 120.0)


def drain(queue):
    """Pop and commit everything; return the bodies."""
    bodies = []
    with queue.popper() as popper:
        while deliveries := patiently(partial(popper.pop_many, 1000, timeout=0.2 if bodies else 1.0)):
            popper.commit_many(deliveries)
            bodies += [delivery.body for delivery in deliveries]
    return bodies


def staged(queue):
    return queue._context.storage.list_pipes(queue.name, shelf=Shelf.STAGED).entries


def numbered(count, prefix=""):
    return [f"{prefix}{number}".encode() for number in range(count)]


@pytest.fixture
def small(store, name):
    """A queue whose pipes are small."""
    return store.queue(name, pipe_messages_max=10)


def id_of(moment):
    """Return a fresh id of a moment, in units of 100 ns."""
    fields = moment & 0xFFFFFFFF, moment >> 32 & 0xFFFF, moment >> 48 & 0x0FFF | 0x1000
    return UUID(fields=(*fields, *new_pipe_id().fields[3:]))


def test_what_is_staged_is_seen_by_nobody_until_it_is_published(queue):
    pipes = fill(queue, numbered(5))
    assert queue.stats().waiting == 0
    assert queue.peek() == []
    assert queue.staging.publish("loader", 1, pipes)
    assert queue.stats().waiting == 5
    assert drain(queue) == numbered(5)
    assert staged(queue) == ()


def test_pipes_are_as_large_as_the_queue_says_and_keep_their_order(small):
    pipes = fill(small, numbered(25))
    assert len(pipes) == 3
    small.staging.publish("loader", 1, pipes)
    assert drain(small) == numbered(25)


def test_pipes_are_found_though_the_low_bits_of_the_time_began_anew_between_them(small, monkeypatch):
    """As they do every seven minutes: then the later id is the smaller number."""
    turn = new_pipe_id().time >> 32 << 32
    ids = [id_of(turn - 1000), id_of(turn + 1000)]
    assert max(ids) == ids[0]
    monkeypatch.setattr("cassq.bulk.staged_pipes.new_pipe_id", lambda: ids.pop(0))
    pipes = fill(small, numbered(15))
    monkeypatch.undo()
    assert small.staging.publish("loader", 1, pipes)
    assert staged(small) == ()
    assert drain(small) == numbered(15)


def test_headers_travel_along(queue):
    queue.staging.publish("loader", 1, fill(queue, [b"x"], task="17"))
    assert queue.peek(1)[0].headers == {"task": "17"}


def test_a_batch_that_is_repeated_is_published_once(queue):
    assert queue.staging.publish("loader", 1, fill(queue, numbered(3, "a")))
    assert not queue.staging.publish("loader", 1, fill(queue, numbered(3, "b")))
    assert staged(queue) == ()
    assert drain(queue) == numbered(3, "a")


def test_an_earlier_batch_than_the_last_is_not_published_any_more(queue):
    queue.staging.publish("loader", 7, fill(queue, [b"seven"], batch=7))
    assert not queue.staging.publish("loader", 6, fill(queue, [b"six"], batch=6))
    assert queue.staging.publish("loader", 8, fill(queue, [b"eight"], batch=8))
    assert sorted(drain(queue)) == [b"eight", b"seven"]


def test_writers_have_their_own_numbers(queue):
    assert queue.staging.publish("one", 1, fill(queue, [b"a"], "one"))
    assert queue.staging.publish("two", 1, fill(queue, [b"b"], "two"))
    assert sorted(drain(queue)) == [b"a", b"b"]


def test_publishing_the_same_pipes_again_says_that_they_are_the_batch(queue):
    pipes = fill(queue, numbered(3))
    assert queue.staging.publish("loader", 1, pipes)
    assert queue.staging.publish("loader", 1, pipes)
    assert drain(queue) == numbered(3)


def test_a_batch_without_messages_counts_as_written(queue):
    assert queue.staging.publish("loader", 1, [])
    assert not queue.staging.publish("loader", 1, fill(queue, [b"late"]))
    assert drain(queue) == []


def test_attempts_that_do_not_count_are_deleted(queue):
    fill(queue, numbered(4, "lost"), task="0.0")
    pipes = fill(queue, numbered(4), task="0.1")
    queue.staging.publish("loader", 1, pipes)
    assert staged(queue) == ()
    assert drain(queue) == numbered(4)


def test_a_writer_of_one_batch_leaves_nothing_in_the_record(queue):
    writer = f"{ONCE}{new_pipe_id()}"
    assert queue.staging.publish(writer, 0, fill(queue, [b"x"], writer, 0))
    assert queue.staging.publish(f"{ONCE}{new_pipe_id()}", 0, [])
    assert queue.record.read().writers == {}
    assert staged(queue) == ()
    assert drain(queue) == [b"x"]


def test_a_task_that_fails_takes_its_pipes_along(small):
    pipes = small.staging.open("loader", 1, "0")
    for body in numbered(25):
        pipes.add(body)
    pipes.discard()
    assert staged(small) == ()


def test_a_batch_that_failed_is_discarded(queue):
    pipes = fill(queue, numbered(3))
    queue.staging.discard("loader", 1, pipes)
    assert staged(queue) == ()
    with pytest.raises(PipeLostError, match="published nothing"):
        queue.staging.publish("loader", 1, pipes)
    assert drain(queue) == []


def test_a_batch_waits_for_the_one_before_that_was_decided_and_not_published(queue):
    before = fill(queue, [b"six"], batch=6)
    queue.staging._decide("loader", 6, before)
    assert queue.staging.publish("loader", 7, fill(queue, [b"seven"], batch=7))
    assert sorted(drain(queue)) == [b"seven", b"six"]
    assert staged(queue) == ()


def test_an_idle_popper_has_what_is_published_soon(queue):
    """Its pipes are older than what the popper has seen since."""
    pipes = fill(queue, [b"bulk"])
    with queue.popper() as popper:
        queue.push(b"single")
        with popper.pop(timeout=5) as delivery:
            assert delivery.body == b"single"
        queue.staging.publish("loader", 1, pipes)
        with popper.pop(timeout=5) as delivery:
            assert delivery.body == b"bulk"


def test_a_repeated_batch_is_left_to_its_tasks_while_they_are_young(store, queue):
    queue.staging.publish("loader", 7, fill(queue, [b"seven"], batch=7))
    again = queue.staging.open("loader", 7, "0")
    again.add(b"seven")
    assert queue.reap().removed == 0
    assert not queue.staging.publish("loader", 7, again.close())
    assert drain(queue) == [b"seven"]


def test_a_writer_of_one_batch_whose_driver_died_is_forgotten_when_it_is_old(store, queue, monkeypatch):
    writer = f"{ONCE}{new_pipe_id()}"
    queue.staging._decide(writer, 0, fill(queue, [b"x"], writer, 0))
    assert queue.reap().published == 1
    assert writer in queue.record.read().writers
    monkeypatch.setattr("cassq.bulk.staging.FORGET_S", -10.0)
    queue.reap()
    assert queue.record.read().writers == {}
    assert drain(queue) == [b"x"]


def test_a_decision_that_was_sent_is_never_told_as_refused_once_it_took_too_long(store, queue, monkeypatch):
    writer = f"{ONCE}{new_pipe_id()}"
    pipes = fill(queue, [b"x"], writer, 0)
    storage = queue._context.storage
    change_queue = storage.change_queue

    def lose(old, new):
        """Lose the reply; before anybody looks it is published, the writer is forgotten, and hours pass."""
        monkeypatch.setattr(storage, "change_queue", change_queue)
        assert change_queue(old, new)
        assert queue.reap().published == 1
        monkeypatch.setattr("cassq.bulk.staging.FORGET_S", -10.0)
        queue.reap()
        monkeypatch.setattr("cassq.bulk.staging.DECIDE_WITHIN_S", -1.0)
        raise OutcomeUnknownError("the reply was lost")

    monkeypatch.setattr(storage, "change_queue", lose)
    assert queue.staging.publish(writer, 0, pipes)
    assert drain(queue) == [b"x"]


def test_a_write_that_failed_is_discarded_however_long_that_takes(store, queue, monkeypatch):
    # Given a driver that stands still for hours in the middle of a discard: it looked at no pipe
    writer = f"{ONCE}{new_pipe_id()}"
    pipes = fill(queue, [b"x"], writer, 0)
    monkeypatch.setattr("cassq.bulk.staging.DECIDE_WITHIN_S", -1.0)

    queue.staging.discard(writer, 0, pipes)

    assert queue._context.storage.list_pipes(queue.name, shelf=Shelf.STAGED).entries == ()
    assert drain(queue) == []


def test_a_batch_is_told_as_refused_only_once_no_earlier_decision_can_land(store, queue, monkeypatch):
    writer = f"{ONCE}{new_pipe_id()}"
    pipes = fill(queue, [b"x"], writer, 0)
    storage = queue._context.storage
    change_queue = storage.change_queue
    sent = []

    def delay(old, new):
        sent.append((old, new))
        raise OutcomeUnknownError("it is on its way")

    monkeypatch.setattr(storage, "change_queue", delay)
    with pytest.raises(OutcomeUnknownError):
        queue.staging.publish(writer, 0, pipes)
    monkeypatch.setattr(storage, "change_queue", change_queue)
    monkeypatch.setattr("cassq.bulk.staged_list.PUBLISH_WITHIN_S", -1.0)
    with pytest.raises(PipeLostError):
        queue.staging.publish(writer, 0, pipes)

    assert not any(change_queue(*change) for change in sent)
    assert queue.reap().published == 0
    assert drain(queue) == []


def test_a_batch_that_an_earlier_call_may_have_decided_is_not_told_as_refused_in_an_outage(
    queue, monkeypatch
):
    pipes = fill(queue, [b"x"])

    def change_queue(*_):
        raise StorageUnavailableError("not now")

    monkeypatch.setattr("cassq.bulk.staged_list.PUBLISH_WITHIN_S", -1.0)
    monkeypatch.setattr(queue._context.storage, "change_queue", change_queue)

    with pytest.raises(OutcomeUnknownError, match="batch 1 may be decided, by an earlier attempt: not now"):
        queue.staging.publish("loader", 1, pipes)


@pytest.mark.parametrize("call", ["publish_pipes", "read_batches"])
def test_a_batch_that_is_decided_is_not_told_as_refused_where_it_cannot_be_published(
    queue, monkeypatch, call
):
    pipes = fill(queue, [b"x"])

    def refuse(*_, **__):
        raise StorageUnavailableError("not now")

    with monkeypatch.context() as broken:
        broken.setattr(queue._context.storage, call, refuse)
        with pytest.raises(OutcomeUnknownError, match="batch 1 is decided"):
            queue.staging.publish("loader", 1, pipes)

    assert queue.staging.publish("loader", 1, pipes)
    assert drain(queue) == [b"x"]


def test_what_a_task_of_a_failed_write_leaves_later_goes_with_the_next_pass(queue):
    writer = f"{ONCE}{new_pipe_id()}"
    queue.staging.discard(writer, 0, fill(queue, [b"failed"], writer, 0))
    fill(queue, [b"late"], writer, 0, task="1.0")
    assert queue.reap().removed == 1
    assert staged(queue) == ()


def test_discarding_leaves_other_attempts_alone(queue):
    failed, other = fill(queue, [b"failed"]), fill(queue, [b"other"])
    queue.staging.discard("loader", 1, failed)
    assert queue.staging.publish("loader", 1, other)
    assert drain(queue) == [b"other"]


class TestWhoeverComesBy:
    """A driver is killed between the decision and the publication."""

    @pytest.fixture
    def pipes(self, small):
        """The pipes of a batch that was decided and not published."""
        pipes = fill(small, numbered(25))
        small.staging._decide("loader", 1, pipes)
        assert small.stats().waiting == 0
        return pipes

    def test_the_reaper_publishes(self, store, small, pipes):
        assert small.reap().published == 1
        assert small.reap().published == 0
        assert drain(small) == numbered(25)
        assert staged(small) == ()

    def test_a_driver_that_repeats_the_batch_publishes(self, small, pipes):
        assert not small.staging.publish("loader", 1, fill(small, numbered(25, "again")))
        assert drain(small) == numbered(25)
        assert staged(small) == ()

    def test_a_driver_that_gives_up_publishes(self, small, pipes):
        small.staging.discard("loader", 1, pipes)
        assert drain(small) == numbered(25)

    def test_a_part_that_was_published_and_consumed_does_not_come_again(self, store, small, pipes):
        storage = small._context.storage
        entries = [entry for entry in staged(small) if entry.pipe == pipes[0]]
        storage.publish_pipes(small.name, entries)
        assert drain(small) == numbered(10)
        store.reap()
        assert sorted(drain(small)) == sorted(numbered(25)[10:])


def test_a_reaper_leaves_a_write_alone_that_is_under_way(store, queue):
    pipes = fill(queue, numbered(3))
    assert queue.reap().removed == 0
    assert queue.staging.publish("loader", 1, pipes)


def test_what_was_staged_too_long_ago_is_not_published(queue, monkeypatch):
    pipes = fill(queue, numbered(3))
    monkeypatch.setattr("cassq.bulk.staged_list.PUBLISH_WITHIN_S", -1.0)
    with pytest.raises(PipeLostError, match="older than"):
        queue.staging.publish("loader", 1, pipes)


def test_the_reaper_deletes_what_was_staged_and_never_decided(store, queue, monkeypatch):
    fill(queue, numbered(3))
    monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
    assert queue.reap().removed == 1
    assert staged(queue) == ()


def test_a_decision_waits_until_the_one_before_is_published(queue):
    first, second = fill(queue, numbered(3)), fill(queue, numbered(3, "second"), batch=2)
    queue.staging._decide("loader", 1, first)
    queue.staging._decide("loader", 2, second)
    queue.staging.publish("loader", 2, second)
    assert sorted(drain(queue)) == sorted(numbered(3) + numbered(3, "second"))


class Killed(Exception):  # noqa: N818 - nothing of the store's
    """The process ends here."""


def killed(*_, **__):
    raise Killed


def test_a_driver_that_dies_while_it_publishes_has_its_batch_published_by_the_reaper(
    store, queue, monkeypatch
):
    pipes = fill(queue, numbered(3))
    monkeypatch.setattr(queue._context.storage, "publish_pipes", killed)
    with pytest.raises(Killed):
        queue.staging.publish("loader", 1, pipes)
    monkeypatch.undo()
    store.reap()
    assert drain(queue) == numbered(3)


class TestADecisionInFlight:
    """A driver died when it had sent its decision, which lands at any time."""

    @pytest.fixture
    def pipes(self, queue):
        return fill(queue, numbered(3))

    @pytest.fixture
    def land(self, queue, pipes, monkeypatch):
        """Let the decision land; tells whether it was applied."""
        storage = queue._context.storage
        sent = []

        def send(*change):
            sent.append(change)
            raise Killed

        monkeypatch.setattr(storage, "change_queue", send)
        with pytest.raises(Killed):
            queue.staging.publish("loader", 1, pipes)
        monkeypatch.undo()
        return lambda: storage.change_queue(*sent[0])

    def test_is_refused_once_the_batch_was_discarded(self, queue, pipes, land):
        queue.staging.discard("loader", 1, pipes)
        assert not land()

    def test_is_refused_once_what_is_old_was_deleted(self, queue, land, monkeypatch):
        monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
        assert queue.staging.tidy().removed
        assert not land()

    def test_counts_where_nobody_came_between(self, store, queue, land):
        assert land()
        store.reap()
        assert drain(queue) == numbered(3)


def test_the_reaper_deletes_nothing_that_was_published_while_it_looked(queue, monkeypatch):
    # Given a batch that is published right after the reaper has read what is staged
    pipes = fill(queue, numbered(3))
    storage = queue._context.storage
    list_pipes = storage.list_pipes

    def list_and_publish(*given, **options):
        listing = list_pipes(*given, **options)
        monkeypatch.setattr(storage, "list_pipes", list_pipes)
        queue.staging.publish("loader", 1, pipes)
        return listing

    monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
    monkeypatch.setattr(storage, "list_pipes", list_and_publish)
    queue.staging.tidy()
    assert drain(queue) == numbered(3)


@pytest.mark.parametrize("writer", ["loader", f"{ONCE}{new_pipe_id()}"], ids=["of many", "of one"])
def test_what_was_decided_stays_for_as_long_as_it_cannot_be_published(store, queue, monkeypatch, writer):
    # Given a batch that is decided, whose publication fails for longer than what is staged is kept, and than
    # a writer of one batch is remembered
    pipes = fill(queue, numbered(3), writer)
    queue.staging._decide(writer, 1, pipes)
    storage = queue._context.storage
    publish_pipes = storage.publish_pipes

    def refuse(*_, **__):
        raise StorageUnavailableError("not now")

    monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
    monkeypatch.setattr("cassq.bulk.staging.FORGET_S", -10.0)
    monkeypatch.setattr(storage, "publish_pipes", refuse)
    tidied = queue.staging.tidy()
    assert (tidied.removed, len(tidied.failed)) == (0, 1)
    # Then it comes as soon as it can
    monkeypatch.setattr(storage, "publish_pipes", publish_pipes)
    queue.staging.tidy()
    assert sorted(drain(queue)) == sorted(numbered(3))


def test_a_task_whose_pipe_was_cleared_away_says_so(queue):
    pipes = queue.staging.open("loader", 1, "0")
    pipes.add(b"x")
    for entry in staged(queue):
        queue._context.storage.delete_pipe(queue.name, entry.pipe, shelf=Shelf.STAGED)
    with pytest.raises(PipeLostError, match="write again"):
        pipes.close()


def test_a_deleted_queue_takes_its_staged_pipes_along(store, queue):
    fill(queue, numbered(3))
    store.delete_queue(queue.name)
    assert staged(queue) == ()


def test_totals_count_what_was_published(store, queue):
    queue.staging.publish("loader", 1, fill(queue, numbered(30)))
    drain(queue)
    store.reap()
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.pipes) == (30, 30, 0)


def test_a_writer_is_named_like_a_queue(queue):
    with pytest.raises(InvalidNameError, match="a/b"):
        queue.staging.open("a/b", 1, "0")
