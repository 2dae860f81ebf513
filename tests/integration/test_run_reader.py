"""A reader that is restarted under its name, on every store."""

import os
import re
import socket
from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

import cassq.bulk.reader_claim
from cassq.bulk.leased_run import LeasedRun, read_leased, tag
from cassq.errors import DecodeError, InvalidNameError, InvalidOptionError
from cassq.model.ranges import Ranges
from cassq.pipes.run_rows import Return
from cassq.runtime.fork_guard import may_run_here, process_name

LEASE = timedelta(minutes=10)


def numbered(first, last):
    return [f"m{number}".encode() for number in range(first, last)]


def bodies_of(queue, runs):
    return [
        body for run in runs for batch in read_leased(queue._context.storage, run) for body in batch.bodies
    ]


def take_all(reader):
    """Take until there is nothing; a first look may come before a wake-up."""
    found = []
    while runs := reader.take(None):
        found += runs
    return found


@pytest.fixture
def queue(store, name):
    """A queue whose pipes are small."""
    return store.queue(name, pipe_messages_max=20)


@pytest.fixture
def reader(queue):
    """An open reader."""
    opened = queue.run_reader("tests", lease=LEASE)
    yield opened
    opened.close()


def test_it_leases_what_waits_without_reading_it(queue, reader):
    queue.push_many(numbered(0, 50))
    runs = take_all(reader)
    assert sum(run.count for run in runs) == 50
    assert bodies_of(queue, runs) == numbered(0, 50)
    assert bodies_of(queue, runs) == numbered(0, 50)
    assert queue.stats().pending == 50


def test_it_takes_about_as_much_as_is_wanted(queue, reader):
    queue.push_many(numbered(0, 50))
    assert sum(run.count for run in reader.take(15)) == 15
    assert sum(run.count for run in reader.take(15)) == 15


def test_what_is_committed_is_gone_and_committing_again_does_no_harm(queue, reader):
    queue.push_many(numbered(0, 50))
    runs = take_all(reader)
    reader.commit(runs)
    reader.commit(runs)
    stats = queue.stats()
    assert (stats.committed, stats.pending, stats.waiting) == (50, 0, 0)


def test_a_run_survives_being_written_down(queue, reader):
    queue.push_many(numbered(0, 5))
    (run,) = take_all(reader)
    assert LeasedRun.from_json(run.to_json()) == run


@pytest.mark.parametrize("found", [[], ["x", "y", 1, 1, []], [1, 2, 3, 4, 5], "text", None])
def test_what_is_no_run_is_named(found):
    with pytest.raises(InvalidOptionError, match="is not a run"):
        LeasedRun.from_json(found)


def test_after_a_restart_what_was_written_down_is_held_and_committed(queue):
    queue.push_many(numbered(0, 50))
    before = queue.run_reader("tests", lease=LEASE)
    runs = take_all(before)
    before.close()
    after = queue.run_reader("tests", lease=LEASE)
    assert after.hold(runs) == []
    after.commit(runs)
    assert queue.stats().committed == 50


def test_after_a_restart_what_was_not_written_down_is_found(queue):
    queue.push_many(numbered(0, 50))
    before = queue.run_reader("tests", lease=LEASE)
    written = before.take(20)
    lost = take_all(before)
    before.close()
    after = queue.run_reader("tests", lease=LEASE)
    found = after.adopt(written)
    assert {run.lease_id: run.parts for run in found} == {run.lease_id: run.parts for run in lost}
    assert Counter(bodies_of(queue, found)) == Counter(bodies_of(queue, lost))
    after.commit([*written, *found])
    assert queue.stats().committed == 50


def test_another_reader_adopts_nothing_of_it(queue, reader):
    queue.push_many(numbered(0, 10))
    take_all(reader)
    other = queue.run_reader("other", lease=LEASE)
    assert other.adopt([]) == []
    other.close()


def test_a_lease_that_ran_out_and_that_nobody_took_begins_anew(store, name):
    queue = store.queue(name, clock_skew_max=timedelta(0))
    queue.push_many(numbered(0, 10))
    before = queue.run_reader("tests", lease=timedelta(milliseconds=100))
    runs = take_all(before)
    before.close()
    while queue.reap().examined and not _is_expired(queue, runs):
        pass
    after = queue.run_reader("tests", lease=LEASE)
    lost = after.hold(runs)
    # The reaper of this process may have been first: then the run is lost, and said to be.
    assert lost in ([], runs)
    after.close()


def _is_expired(queue, runs):
    states = [queue._context.storage.load_pipe(run.pipe) for run in runs]
    return all(
        row.is_expired(state.now_ms, 0) or row.lease_id not in {run.lease_id for run in runs}
        for state in states
        for row in state.runs
    )


def test_what_others_took_is_said_to_be_lost(queue):
    queue.push_many(numbered(0, 10))
    before = queue.run_reader("tests", lease=LEASE)
    runs = take_all(before)
    for run in runs:
        before._leases.held_of(run).give_back(Ranges(run.parts), Return())
    before.close()
    with queue.popper() as popper:
        deliveries = popper.pop_many(10, timeout=5)
        after = queue.run_reader("tests", lease=LEASE)
        assert after.hold(runs) == runs
        assert after.adopt([]) == []
        popper.commit_many(deliveries)
    after.close()


def test_the_leases_are_kept_alive(queue, reader):
    queue.push_many(numbered(0, 10))
    runs = take_all(reader)
    storage = queue._context.storage

    def leased_at():
        return {row.lease_id: row.leased_at_ms for run in runs for row in storage.load_pipe(run.pipe).runs}

    before = leased_at()
    while leased_at() == before:
        reader.keep_alive()
    assert leased_at().keys() == before.keys()
    assert all(leased_at()[lease_id] > before[lease_id] for lease_id in before)


def test_nothing_is_taken_that_is_pushed_after_the_present(queue, reader):
    queue.push_many(numbered(0, 30))
    reader.stop_at_present()
    assert not reader.is_at_stop()
    queue.push_many(numbered(30, 60))
    runs = take_all(reader)
    assert Counter(bodies_of(queue, runs)) == Counter(numbered(0, 30))
    assert reader.is_at_stop()


def test_what_is_sealed_behind_the_present_is_no_damage(store, name):
    queue = store.queue(name)
    queue.push_many(numbered(0, 6))
    reader = queue.run_reader("tests", lease=LEASE)
    reader.stop_at_present()
    queue.push_many(numbered(6, 10))
    queue._workers._pusher.close()  # seals the pipe
    assert bodies_of(queue, take_all(reader)) == numbered(0, 6)
    assert reader.is_at_stop()


def test_a_process_that_lost_its_name_holds_nothing_any_more(queue, monkeypatch):
    queue.push_many(numbered(0, 10))
    frozen = queue.run_reader("tests", lease=LEASE)
    runs = take_all(frozen)
    frozen._claim.release()
    after = queue.run_reader("tests", lease=LEASE)
    with pytest.raises(InvalidOptionError, match="by this process"):
        frozen.commit(runs)
    frozen.keep_alive()
    assert after.hold(runs) == []
    after.commit(runs)
    assert queue.stats().committed == 10


class Interrupted:
    """The storage of a process that is frozen once, behind one call of one method."""

    def __init__(self, storage, method, meanwhile):
        self._storage = storage
        self._method = method
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        call = getattr(self._storage, name)
        return partial(self._interrupted, call) if name == self._method else call

    def _interrupted(self, call, *arguments, **options):
        found = call(*arguments, **options)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return found


def lose_claim(reader):
    reader._claim.release()


def test_who_lost_the_name_while_it_adopted_takes_nothing_away_from_the_next(queue):
    queue.push_many(numbered(0, 10))
    frozen = queue.run_reader("tests", lease=LEASE)
    taken = []

    def meanwhile():
        lose_claim(frozen)
        after = queue.run_reader("tests", lease=LEASE)
        taken.append((after, take_all(after)))

    frozen._storage = Interrupted(frozen._storage, "list_pipes", meanwhile)

    adopted = frozen.adopt([])

    ((after, runs),) = taken
    assert {run.lease_id for run in adopted} <= {run.lease_id for run in runs}
    after.commit(runs)
    assert queue.stats().committed == 10


def test_who_lost_the_name_while_it_began_a_lease_anew_holds_what_others_adopted_since(queue):
    queue.push_many(numbered(0, 10))
    dead = queue.run_reader("tests", lease=LEASE)
    runs = take_all(dead)
    lose_claim(dead)
    frozen = queue.run_reader("tests", lease=LEASE)
    others = []

    def meanwhile():
        lose_claim(frozen)
        other = queue.run_reader("tests", lease=LEASE)
        others.append(other.adopt([]))
        lose_claim(other)

    leases = frozen._leases
    leases._storage = Interrupted(leases._storage, "transact", meanwhile)

    # Which of the two may work on it the checkpoint tells: both have the same run.
    assert frozen.hold(runs) == []
    assert others == [runs]


def test_what_was_held_before_the_name_was_lost_is_committed_once(queue):
    queue.push_many(numbered(0, 10))
    frozen = queue.run_reader("tests", lease=LEASE)
    runs = take_all(frozen)
    lose_claim(frozen)
    other = queue.run_reader("tests", lease=LEASE)
    assert other.adopt([]) == runs
    other.commit(runs)
    lose_claim(other)

    frozen.commit(runs)

    assert queue.stats().committed == 10


class TestACheckpointThatIsOlderThanTheClaim:
    """Spark reads it before the stream claims its name, and what is written down in between is unknown."""

    def test_takes_nothing_away_that_was_written_down_since(self, queue):
        queue.push_many(numbered(0, 10))
        writer = queue.run_reader("tests", lease=LEASE)
        runs = take_all(writer)  # written down, and in the sink
        lose_claim(writer)
        behind = queue.run_reader("tests", lease=LEASE)
        behind.adopt([])  # Spark refuses its batch, because that is written down
        lose_claim(behind)
        after = queue.run_reader("tests", lease=LEASE)

        after.commit(runs)

        assert after.adopt(runs) == []

    def test_nor_where_the_name_was_lost_and_is_had_again(self, queue):
        behind = queue.run_reader("tests", lease=LEASE)
        lose_claim(behind)
        queue.push_many(numbered(0, 10))
        writer = queue.run_reader("tests", lease=LEASE)
        runs = take_all(writer)
        lose_claim(writer)
        behind.adopt([])
        lose_claim(behind)
        after = queue.run_reader("tests", lease=LEASE)

        assert after.hold(runs) == []


def test_a_longer_lease_holds_for_what_is_held_from_before(queue):
    queue.push_many(numbered(0, 10))
    before = queue.run_reader("tests", lease=LEASE / 2)
    runs = take_all(before)
    before.close()
    after = queue.run_reader("tests", lease=LEASE)
    assert after.hold(runs) == []
    (row,) = queue._context.storage.load_pipe(runs[0].pipe).runs
    assert row.lease_ms == 1000 * LEASE.total_seconds()


def test_claims_are_given_up_so_that_others_have_what_is_pushed_meanwhile(queue, reader):
    queue.push_many(numbered(0, 5))
    assert sum(run.count for run in take_all(reader)) == 5
    assert set(queue._context.coordinator.holders(queue.name)) == {reader._claim.place}


def test_a_queue_that_is_empty_is_at_its_stop(reader):
    reader.stop_at_present()
    assert reader.is_at_stop()


def test_dead_letters_keep_their_bodies(store, name):
    queue = store.queue(name, max_attempts=1)
    queue.push(b"poison", {"a": "b"})
    with queue.popper() as popper:
        popper.pop(timeout=5).rollback()
        reader = queue.run_reader("tests", lease=LEASE)
        while not queue.dead.peek():
            assert reader.take(None) == []
        reader.close()
    (letter,) = queue.dead.peek()
    assert (letter.body, letter.headers) == (b"poison", {"a": "b"})


def test_what_ended_beside_a_dead_letter_is_none(store, name):
    # Given a run that comes back from its last attempt, and has a message that was committed
    queue = store.queue(name, max_attempts=1)
    queue.push_many(numbered(1, 4))
    with queue.popper() as popper:
        deliveries = popper.pop_many(3, timeout=5)
        assert len({delivery.run for delivery in deliveries}) == 1
        deliveries[1].commit()
        assert deliveries[0].run.give_back(Ranges(((1, 3),)), Return())
        # When a reader meets it
        reader = queue.run_reader("tests", lease=LEASE)
        while not queue.dead.peek():
            assert reader.take(None) == []
        reader.close()
    # Then the others are given up
    assert [letter.body for letter in queue.dead.peek()] == [b"m1", b"m3"]
    stats = queue.stats()
    assert (stats.committed, stats.dead) == (1, 2)


def test_a_paused_queue_gives_nothing(queue, reader):
    queue.push_many(numbered(0, 10))
    queue.pause()
    while queue.record.may_take():
        pass
    assert reader.take(None) == []


def test_two_processes_cannot_read_under_one_name(queue, reader, monkeypatch):
    monkeypatch.setattr(cassq.bulk.reader_claim, "NEIGHBOUR_PATIENCE_S", 0.0)
    with pytest.raises(InvalidOptionError, match=rf"by this process \({re.escape(reader._holder)}\)"):
        queue.run_reader("tests", lease=LEASE)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        (f"{process_name()}-1-orders", True),
        (f"{socket.gethostname()}-{2**31 - 1}-1-orders", False),
        (f"elsewhere-{os.getpid()}-1-orders", False),
        ("", False),
    ],
    ids=["here", "here no more", "elsewhere", "nobody"],
)
def test_a_holder_that_still_runs_on_this_machine_is_known(name, runs):
    assert may_run_here(name) is runs


@pytest.mark.parametrize(
    ("reader_name", "lease", "error"),
    [("a/b", LEASE, InvalidNameError), ("tests", timedelta(0), InvalidOptionError)],
)
def test_wrong_arguments_are_named(queue, reader_name, lease, error):
    with pytest.raises(error):
        queue.run_reader(reader_name, lease=lease)


def test_messages_that_are_gone_are_an_error(store, queue, reader):
    queue.push_many(numbered(0, 5))
    (run,) = take_all(reader)
    queue._context.storage.delete_pipe(queue.name, run.pipe)
    with pytest.raises(DecodeError, match="are gone"):
        list(read_leased(queue._context.storage, run))


def test_people_see_the_readers_name_as_the_holder(queue, reader):
    queue.push_many(numbered(0, 5))
    (run,) = take_all(reader)
    (row,) = queue._context.storage.load_pipe(run.pipe).runs
    assert row.holder == tag("tests") == "reader tests"
