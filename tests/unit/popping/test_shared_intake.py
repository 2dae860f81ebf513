"""Who shares an intake with whom, and what closing does to those that go on."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import cassq
from cassq.errors import DeliveryExpiredError, StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.message import Batch
from cassq.popping import commits, grouped_commits
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery import BatchSlice
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import SystemClock


@pytest.fixture
def queue():
    with cassq.connect("memory:") as store:
        yield store.queue("q", lease=timedelta(seconds=30))


def names(poppers):
    return [popper.name for popper in poppers]


@pytest.mark.parametrize("commit", ["each", "grouped"])
def test_poppers_that_commit_in_one_way_share_one_intake(queue, commit):
    poppers = [queue.popper(commit=commit) for _ in range(5)]
    assert len(set(names(poppers))) == 1


def test_poppers_that_commit_in_different_ways_share_nothing(queue):
    assert queue.popper().name != queue.popper(commit="grouped").name


def test_after_the_last_of_them_has_left_another_is_made(queue):
    poppers = [queue.popper() for _ in range(2)]
    for popper in poppers:
        popper.close()
    assert queue.popper().name not in names(poppers)


def test_a_popper_that_is_closed_by_many_at_once_is_counted_out_once(queue):
    closed, sharing = queue.popper(), queue.popper()
    together = threading.Barrier(8)

    def close(_):
        together.wait(30)
        closed.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(close, range(8)))
    queue.push(b"for those that stay")
    assert sharing.pop(timeout=10).body == b"for those that stay"


class _Run:
    """A run whose commits take as long as the test wants."""

    is_live = True
    clock = SystemClock()

    def still_runs(self):
        return True

    def __init__(self):
        self.began, self.may_end, self.committed = threading.Event(), threading.Event(), []

    def marks(self, parts):
        return [tuple(part) for part in parts]

    def write(self, marks):
        self.began.set()
        assert self.may_end.wait(30)
        self.committed.append(marks)
        return True


def delivery(run, number):
    batch = Batch(number, (b"x",), None, 1, 0)
    return BatchSlice(run, batch, DirectCommitter(commit_soon=None)).deliveries(number, number)[0]


def test_whoever_flushes_waits_for_what_came_before_and_for_nothing_else(monkeypatch):
    monkeypatch.setattr(grouped_commits, "GROUP_S", 3600.0)
    run = _Run()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    grouped.commit([delivery(run, 1)])
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(grouped.flush)  # or nothing would be written for an hour
        assert run.began.wait(30)
        grouped.commit([delivery(run, 3)])
        second = pool.submit(grouped.flush)
        assert not first.done()
        run.may_end.set()
        second.result(30)
        first.result(30)
        assert run.committed == [[(1, 1)], [(3, 3)]]
    grouped.close()


def test_whoever_closes_or_flushes_waits_for_what_another_writes_meanwhile():
    run = _Run()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    grouped.close()
    with ThreadPoolExecutor(3) as pool:
        late = pool.submit(grouped.commit, [delivery(run, 1)])  # it writes by itself, as nobody else does now
        assert run.began.wait(30)
        others = [pool.submit(grouped.close), pool.submit(grouped.flush)]
        assert not any(other.done() for other in others)
        run.may_end.set()
        for each in (late, *others):
            each.result(30)
            assert run.committed == [[(1, 1)]]


def test_a_popper_that_leaves_writes_its_commits_first(queue, monkeypatch):
    monkeypatch.setattr(grouped_commits, "GROUP_S", 3600.0)
    poppers = [queue.popper(commit="grouped") for _ in range(2)]
    queue.push(b"x")
    poppers[-1].pop(timeout=10).commit()
    poppers[-1].close()
    assert queue.stats().committed == 1


def test_what_was_taken_ahead_goes_back_when_one_of_those_that_share_it_leaves(queue):
    first, sharing = queue.popper(), queue.popper()
    queue.push_many([b"%d" % number for number in range(5000)])
    popped = 0
    while popped < 500 or not sharing._intake.buffer._hand.count:
        deliveries = sharing.pop_many(5, timeout=10)
        sharing.commit_many(deliveries)
        popped += len(deliveries)
    sharing.close()
    while queue.stats().pending:  # the test's own time limit ends it otherwise
        time.sleep(0.01)
    assert queue.stats().waiting == 5000 - popped
    assert first.pop(timeout=10).attempt == 1


class _Ended(_Run):
    """A run whose lease has ended."""

    is_live = False
    pipe = new_pipe_id()
    attempt = 1

    def still_runs(self):
        return False


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_committed_beside_a_message_that_came_too_late_is_written(place):
    run = _Run()
    run.may_end.set()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    deliveries = [delivery(run, 1)]
    late = delivery(_Ended(), 2)
    deliveries.insert(place, late)
    with pytest.raises(DeliveryExpiredError, match="has ended"):
        grouped.commit(deliveries)
    grouped.flush()
    assert run.committed == [[(1, 1)]]
    grouped.close()


def test_what_is_committed_after_the_close_is_written_at_once():
    run = _Run()
    run.may_end.set()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    grouped.close()
    grouped.commit([delivery(run, 1)])
    assert run.committed == [[(1, 1)]]


class _OutOfReach(_Run):
    """A run whose partition no node answers for, until it is `may_end`."""

    left_s = 3600.0

    def write(self, marks):
        self.began.set()
        if not self.may_end.is_set():
            raise StorageUnavailableError("no node answers")
        return super().write(marks)


def wait_for(is_so):
    while not is_so():  # the test's own time limit ends it otherwise
        time.sleep(0.001)


def written(run):
    return [number for marks in run.committed for first, last in marks for number in range(first, last + 1)]


@pytest.mark.parametrize("place", [0, 1])
def test_a_run_that_cannot_be_written_holds_up_no_other(monkeypatch, place):
    monkeypatch.setattr(commits, "PAUSE_S", 1000.0)
    # Given two runs of one group, of which one cannot be written, nor tried again for long
    away, run = _OutOfReach(), _Run()
    run.may_end.set()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    deliveries = [delivery(run, 1)]
    deliveries.insert(place, delivery(away, 1))
    grouped.commit(deliveries)
    wait_for(lambda: written(run) == [1])
    # Then what comes later is written, also what comes while another group is being written
    run.began.clear()
    run.may_end.clear()
    grouped.commit([delivery(run, 2)])
    assert run.began.wait(30)
    grouped.commit([delivery(run, 3)])
    run.may_end.set()
    wait_for(lambda: written(run) == [1, 2, 3])
    assert not away.committed  # and nobody closes it: that would wait for the next attempt


def test_whoever_flushes_waits_for_what_is_tried_again_though_others_overtake_it():
    away, run = _OutOfReach(), _Run()
    run.may_end.set()
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    grouped.commit([delivery(away, 1)])
    assert away.began.wait(30)
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(grouped.flush)
        grouped.commit([delivery(run, number) for number in (1, 3, 5)])
        wait_for(lambda: written(run) == [1, 3, 5])
        away.began.clear()
        assert away.began.wait(30)
        assert not flushed.done()
        # What comes of that run meanwhile goes with it
        grouped.commit([delivery(away, 2)])
        away.may_end.set()
        flushed.result(30)
    assert 1 in written(away)
    grouped.close()
    assert written(away) == [1, 2]


def test_an_error_that_nobody_expected_ends_neither_the_thread_nor_what_is_tried_again(monkeypatch):
    away, odd = _OutOfReach(), _Run()
    monkeypatch.setattr(odd, "write", lambda _: 1 / 0)
    grouped = grouped_commits.GroupedCommitter(SystemClock(), BackgroundThread("cassq-futures"))
    grouped.commit([delivery(away, 1)])
    assert away.began.wait(30)
    grouped.commit([delivery(odd, 1)])
    away.began.clear()
    assert away.began.wait(30)
    away.may_end.set()
    grouped.close()
    assert written(away) == [1]


def test_of_many_commits_all_are_tried_before_one_is_tried_again(monkeypatch):
    run, away = _Run(), _Run()
    run.may_end.set()
    seen = []

    def write(marks):
        seen.append(list(run.committed))
        if not run.committed:
            raise StorageUnavailableError("no node answers")
        return True

    away.left_s = 3600.0
    monkeypatch.setattr(away, "write", write)
    DirectCommitter(commit_soon=None).commit([delivery(away, 1), delivery(run, 1)])
    assert seen == [[], [[(1, 1)]]]
