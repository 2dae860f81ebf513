"""Bulk writes whose messages have priorities, types, keys and due times, on every store."""

from datetime import UTC, datetime, timedelta

import pytest
from support.patience import patiently, until

from cassq.errors import InvalidOptionError, StorageUnavailableError
from cassq.model.shelf import Shelf

FAR = timedelta(days=1)
LISTS = Shelf.READY, Shelf.KEYED, Shelf.DUE, Shelf.SCHEDULED, Shelf.STAGED


@pytest.fixture(autouse=True)
def _patient_looks(monkeypatch):
    """Let a pop wait for the end of its look, however slow the machine is."""
    monkeypatch.setattr("cassq.popping.consumer_line.LOOK_TIMEOUT_S", 120.0)


@pytest.fixture
def small(store, name):
    """A queue whose pipes are small, and whose urgent messages go first."""
    return store.queue(name, pipe_messages_max=5, ageing=timedelta(0), retry_delay=timedelta(0))


def fill(queue, rows, batch=1, task="0"):
    """Stage messages, each with its options; return the pipes."""
    pipes = queue.staging.open("loader", batch, task)
    for body, options in rows:
        pipes.add(body, **options)
    return pipes.close()


def of_each(suffix=b""):
    """A message for each list."""
    return [
        (b"ready" + suffix, {"priority": 3, "type": "refund", "ttl": FAR}),
        (b"keyed" + suffix, {"key": "a"}),
        (b"due" + suffix, {"due": datetime.now(UTC) - FAR}),
        (b"scheduled" + suffix, {"delay": FAR}),
    ]


def counts(queue):
    storage = queue._context.storage
    return [len(storage.list_pipes(queue.name, shelf=shelf).entries) for shelf in LISTS]


def take(popper, count):
    found = []
    while len(found) < count:
        found += popper.pop_many(count - len(found), timeout=60)
    return found


def drain(queue, count):
    """Pop and commit so many; return the bodies, once there is nothing else."""
    with queue.popper() as popper:
        bodies = []
        while len(bodies) < count:
            deliveries = take(popper, 1)
            popper.commit_many(deliveries)
            bodies += [delivery.body for delivery in deliveries]
        assert patiently(lambda: popper.pop(timeout=0)) is None
    return bodies


def test_urgent_messages_of_a_bulk_write_come_first_and_those_of_one_priority_in_their_order(small):
    pipes = fill(small, [(b"%d" % number, {"priority": number % 3}) for number in range(21)])
    assert small.staging.publish("loader", 1, pipes)
    expected = [number for priority in (2, 1, 0) for number in range(21) if number % 3 == priority]
    assert drain(small, 21) == [b"%d" % number for number in expected]


def test_who_asks_for_a_type_gets_the_messages_of_it(small):
    pipes = fill(small, [(b"%d" % number, {"type": ("a", "b", None)[number % 3]}) for number in range(9)])
    assert small.staging.publish("loader", 1, pipes)
    assert {(message.type, message.body) for message in small.peek(9)} == {
        (("a", "b", None)[number % 3], b"%d" % number) for number in range(9)
    }
    with small.popper(types=["b"]) as popper:
        assert [delivery.body for delivery in take(popper, 3)] == [b"1", b"4", b"7"]
        assert patiently(lambda: popper.pop(timeout=0)) is None


def test_one_of_each_key_is_out_at_a_time_and_the_next_ones_in_their_order(small):
    rows = [(b"%d" % number, {"key": f"customer {number % 2}"}) for number in range(40)]
    assert small.staging.publish("loader", 1, fill(small, rows))
    assert {message.key for message in small.peek(40)} == {"customer 0", "customer 1"}
    seen = {"customer 0": [], "customer 1": []}
    with small.popper() as popper:
        for _ in range(20):
            both = take(popper, 2)
            assert {delivery.key for delivery in both} == seen.keys()
            assert patiently(lambda: popper.pop(timeout=0)) is None
            for delivery in both:
                seen[delivery.key].append(int(delivery.body))
                delivery.commit()
    assert seen == {f"customer {rest}": list(range(rest, 40, 2)) for rest in (0, 1)}


def test_a_run_reader_refuses_a_queue_into_which_keys_were_written(small):
    assert small.staging.publish("loader", 1, fill(small, [(b"x", {"key": "a"})]))
    with pytest.raises(InvalidOptionError, match="has messages with keys"):
        small.run_reader("a-reader", lease=timedelta(minutes=1))


def test_nothing_comes_before_it_is_due(small):
    due = datetime.now(UTC) + timedelta(seconds=2)
    pipes = fill(
        small, [(b"past", {"due": due - FAR}), (b"soon", {"due": due}), (b"far", {"due": due + FAR})]
    )
    assert small.staging.publish("loader", 1, pipes)
    with small.popper() as popper:
        past, soon = take(popper, 1) + take(popper, 1)
        assert (past.body, soon.body) == (b"past", b"soon")
        assert abs(soon.due - due) < timedelta(milliseconds=1)
        storage = small._context.storage
        assert storage.list_pipes(small.name).now_ms / 1000 >= due.timestamp() - 0.002
        popper.commit_many([past, soon])
        assert small.stats().delayed == 1


def test_what_has_waited_for_longer_than_its_time_to_live_is_dropped(store, name):
    queue = store.queue(name, clock_skew_max=timedelta(milliseconds=100))
    rows = [(b"brief", {"ttl": timedelta(seconds=1)}), (b"lasting", {"ttl": FAR}), (b"at ease", {})]
    assert queue.staging.publish("loader", 1, fill(queue, rows))
    until(lambda: [message.body for message in queue.peek(9)] == [b"lasting", b"at ease"])
    assert drain(queue, 2) == [b"lasting", b"at ease"]
    until(lambda: queue.stats().expired == 1)


def test_a_batch_is_published_whole_into_every_list(small):
    pipes = fill(small, of_each())
    assert counts(small) == [0, 0, 0, 0, 4]
    assert small.stats().waiting == small.stats().delayed == 0
    assert small.staging.publish("loader", 1, pipes)
    assert counts(small) == [1, 1, 1, 1, 0]
    # And again, by who was not told
    assert small.staging.publish("loader", 1, pipes)
    assert not small.staging.publish("loader", 1, fill(small, of_each(b" again")))
    assert counts(small) == [1, 1, 1, 1, 0]
    assert sorted(drain(small, 3)) == [b"due", b"keyed", b"ready"]


def test_a_batch_that_was_decided_is_published_into_every_list_by_a_reaper(small):
    pipes = fill(small, of_each())
    small.staging._decide("loader", 1, pipes)
    assert counts(small)[:4] == [0, 0, 0, 0]
    assert small.reap().published == 1
    assert counts(small) == [1, 1, 1, 1, 0]
    assert sorted(drain(small, 3)) == [b"due", b"keyed", b"ready"]


@pytest.mark.parametrize("done", range(4))
def test_what_was_published_before_the_driver_died_does_not_come_again(small, monkeypatch, done):
    # Given a driver that dies after so many lists
    pipes = fill(small, of_each())
    storage = small._context.storage
    publish, told = storage.publish_pipes, []

    def die(*args, **how):
        if len(told) == done:
            raise StorageUnavailableError("planted")
        told.append(args)
        publish(*args, **how)

    small.staging._decide("loader", 1, pipes)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "publish_pipes", die)
        assert small.reap().failed
    assert sum(counts(small)[:4]) == done
    assert small.reap().published == 1
    assert counts(small) == [1, 1, 1, 1, 0]
    assert sorted(drain(small, 3)) == [b"due", b"keyed", b"ready"]


def test_a_batch_that_failed_leaves_nothing_in_any_list(small):
    small.staging.discard("loader", 1, fill(small, of_each()))
    assert counts(small) == [0] * 5
    assert drain(small, 0) == []


def test_a_message_that_is_due_later_is_moved_by_its_first_id(small):
    (pipe,) = fill(small, [(b"x", {"delay": FAR})])
    assert small.staging.publish("loader", 1, [pipe])
    assert small.reschedule(f"{pipe}:1", delay=timedelta(0))
    assert drain(small, 1) == [b"x"]
    until(lambda: small.stats().delayed == 0)
