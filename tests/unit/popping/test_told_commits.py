"""Commits that nobody waits for: what their futures are told, and when."""

import gc
import logging
import threading

import pytest

from cassq.errors import (
    AccessDeniedError,
    ClosedError,
    DeliveryExpiredError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UsageError,
)
from cassq.model.ids import new_pipe_id
from cassq.model.message import Batch
from cassq.popping import grouped_commits
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery import BatchSlice
from cassq.popping.grouped_commits import GroupedCommitter
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import SystemClock
from cassq.runtime.reentry import noted

WAIT_S = 60.0


class Run:
    """A run whose commits take as long, and end, as the test wants."""

    clock = SystemClock()
    attempt, left_s, lease_s = 1, 0.0, 30.0

    def __init__(self, *failures):
        self.pipe = new_pipe_id()
        self.began, self.may_end = threading.Event(), threading.Event()
        self.failures, self.written, self.runs = list(failures), [], True
        self.may_end.set()

    def still_runs(self):
        return self.runs

    def marks(self, parts):
        return [tuple(part) for part in parts]

    def write(self, marks):
        self.began.set()
        assert self.may_end.wait(WAIT_S)
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(marks)
        return True


@pytest.fixture
def answers():
    thread = BackgroundThread("cassq-futures")
    yield thread
    thread.shutdown()


@pytest.fixture
def committer(answers):
    made = GroupedCommitter(SystemClock(), answers)
    yield made
    made.close()


@pytest.fixture(params=["each", "grouped"])
def popped(request, committer):
    """Return what makes the deliveries of a popper that commits in this way."""

    def make(run, count=1, first=1):
        batch = Batch(first, (b"x",) * count, None, count, 0)
        used = committer if request.param == "grouped" else DirectCommitter(committer.commit_soon)
        return BatchSlice(run, batch, used).deliveries(first, first + count - 1)

    return make


def test_a_future_ends_once_the_mark_is_written_and_not_before(popped):
    run = Run()
    run.may_end.clear()
    (delivery,) = popped(run)
    future = delivery.commit_soon()
    assert run.began.wait(WAIT_S)
    assert not future.done()
    assert not future.cancel()
    run.may_end.set()
    assert future.result(WAIT_S) is None
    assert run.written == [[(1, 1)]]
    with pytest.raises(ClosedError, match="committed before"):
        delivery.commit_soon()


@pytest.fixture
def busy(committer):
    """Have the committer's thread write something that takes until the event is set."""
    run = Run()
    run.may_end.clear()
    (delivery,) = BatchSlice(run, Batch(1, (b"x",), None, 1, 0), committer).deliveries(1, 1)
    delivery.commit_soon()
    assert run.began.wait(WAIT_S)
    yield run.may_end
    run.may_end.set()


def test_one_that_is_waited_for_waits_for_no_company(popped, monkeypatch):
    monkeypatch.setattr(grouped_commits, "GROUP_S", 3600.0)
    (delivery,) = popped(Run())
    assert delivery.commit_soon().result(WAIT_S) is None


def test_neighbours_that_come_during_a_write_are_the_next_one(popped, busy):
    run = Run()
    futures = [each.commit_soon() for each in popped(run, 1000)]
    assert run.written == []
    busy.set()
    for future in futures:
        assert future.exception(WAIT_S) is None
    assert run.written == [[(1, 1000)]]


def test_one_that_is_not_acknowledged_is_tried_again_before_it_ends(popped):
    run = Run(StorageUnavailableError("away"), OutcomeUnknownError("too late"))
    (delivery,) = popped(run)
    assert delivery.commit_soon().result(WAIT_S) is None
    assert run.written == [[(1, 1)]]


def test_what_was_not_written_in_time_is_told_and_not_logged(popped, caplog):
    run = Run()
    run.runs = False
    (delivery,) = popped(run)
    with caplog.at_level(logging.WARNING, "cassq"), pytest.raises(DeliveryExpiredError):
        delivery.commit_soon().result(WAIT_S)
    assert not caplog.records


def test_what_may_have_been_written_is_told_as_unknown(popped):
    class Ending(Run):
        def write(self, marks):
            self.runs = False
            raise OutcomeUnknownError("no answer")

    (delivery,) = popped(Ending())
    with pytest.raises(OutcomeUnknownError, match="may come again"):
        delivery.commit_soon().result(WAIT_S)


def test_what_was_refused_can_be_ended_later(popped):
    run = Run(AccessDeniedError("may not write"))
    (delivery,) = popped(run)
    with pytest.raises(AccessDeniedError):
        delivery.commit_soon().result(WAIT_S)
    assert delivery.commit_soon().result(WAIT_S) is None


def test_an_error_that_nobody_expected_is_told_too_and_the_others_go_on(popped):
    (broken,), (sound,) = popped(Run(ZeroDivisionError("a fault"))), popped(Run())
    first, second = broken.commit_soon(), sound.commit_soon()
    with pytest.raises(ZeroDivisionError):
        first.result(WAIT_S)
    assert second.result(WAIT_S) is None


def test_only_what_nobody_is_told_is_logged(committer, busy, caplog):
    run = Run(AccessDeniedError("may not write"))
    deliveries = BatchSlice(run, Batch(1, (b"x",) * 5, None, 5, 0), committer).deliveries(1, 5)
    future = deliveries[0].commit_soon()
    for each in deliveries[1:]:
        each.commit()
    with caplog.at_level(logging.WARNING, "cassq"):
        busy.set()
        committer.flush()
    assert isinstance(future.exception(WAIT_S), AccessDeniedError)
    (record,) = caplog.records
    assert record.message.startswith("4 commits failed")


def test_a_flush_ends_after_what_it_tells_and_logs(committer, busy):
    (delivery,) = BatchSlice(
        Run(AccessDeniedError("no")), Batch(1, (b"x",), None, 1, 0), committer
    ).deliveries(1, 1)
    delivery.commit()
    seen: list[str] = []
    flushing = threading.Thread(target=lambda: (committer.flush(), seen.append("flushed")))

    class Slow(logging.Handler):
        def emit(self, _):
            flushing.join(0.3)  # a flush that does not wait for this one ends meanwhile
            seen.append("logged")

    handler, log = Slow(), logging.getLogger("cassq.popper")
    log.addHandler(handler)
    try:
        flushing.start()
        busy.set()
        flushing.join(WAIT_S)
    finally:
        log.removeHandler(handler)
    assert seen == ["logged", "flushed"]


def test_who_waits_in_a_callback_is_told_so_and_may_ask_for_the_next(popped):
    seen: list[object] = []
    first, second = popped(Run(), 2)
    ended = threading.Event()

    def go_on(_):
        following = second.commit_soon()
        try:
            following.result(WAIT_S)
        except UsageError as error:
            seen.append(error)
        following.add_done_callback(lambda future: (seen.append(future.result()), ended.set()))

    first.commit_soon().add_done_callback(go_on)
    assert ended.wait(WAIT_S)
    error, result = seen
    assert "in a callback" in str(error)
    assert result is None


def test_who_waits_where_others_wait_for_it_is_told_so(popped):
    run = Run()
    run.may_end.clear()
    (delivery,) = popped(run)
    future = delivery.commit_soon()
    with noted(), pytest.raises(UsageError, match="waiting for a commit interrupted"):
        future.result()
    run.may_end.set()
    assert future.result(WAIT_S) is None


def test_after_the_close_a_future_ends_all_the_same_and_its_callback_may_commit(popped, committer, answers):
    committer.close()
    answers.shutdown()
    first, second = popped(Run(), 2)
    told: list[object] = []
    ended = threading.Event()

    def go_on(_):
        second.commit_soon().add_done_callback(lambda future: (told.append(future.exception()), ended.set()))

    first.commit_soon().add_done_callback(go_on)
    assert ended.wait(WAIT_S)
    assert told == [None]


def test_the_close_waits_for_what_is_on_its_way(popped, committer):
    run = Run()
    run.may_end.clear()
    (delivery,) = popped(run)
    future = delivery.commit_soon()
    assert run.began.wait(WAIT_S)
    closing = threading.Thread(target=committer.close)
    closing.start()
    run.may_end.set()
    closing.join(WAIT_S)
    assert run.written == [[(1, 1)]]
    assert future.result(WAIT_S) is None


def test_no_thread_is_started_before_the_first_commit(answers):
    before = set(threading.enumerate())
    made = GroupedCommitter(SystemClock(), answers)
    made.flush()
    made.close()
    assert set(threading.enumerate()) <= before


def test_where_no_thread_can_be_started_who_commits_writes(popped, committer, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread at interpreter shutdown")

    run = Run()
    (delivery,) = popped(run)
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        future = delivery.commit_soon()
        assert future.done()
    assert future.result() is None
    assert run.written == [[(1, 1)]]
    assert popped(run, first=2)[0].commit_soon().result(WAIT_S) is None


def test_a_write_that_is_interrupted_ends_its_futures_as_unknown(popped, committer, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    committer.close()  # from now on, who commits writes
    (delivery,) = popped(Run())
    delivery.finish("committed")
    asked = grouped_commits.CommitFuture(committer._answers, delivery)
    monkeypatch.setattr(grouped_commits, "group_by_run", interrupt)
    committer._collect(delivery, asked)
    with pytest.raises(OutcomeUnknownError, match="interrupted"):
        asked.result(WAIT_S)


def test_after_the_close_nobody_waits_in_the_call(popped, committer):
    committer.close()
    run = Run()
    run.may_end.clear()
    (delivery,) = popped(run)
    future = delivery.commit_soon()  # it would wait for ever
    assert not future.done()
    run.may_end.set()
    assert future.result(WAIT_S) is None


class TwoWordsError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def test_an_error_of_any_form_is_told(popped):
    (delivery,) = popped(Run(TwoWordsError("a", "fault")))
    with pytest.raises(TwoWordsError, match="a fault"):
        delivery.commit_soon().result(WAIT_S)


def test_a_callback_that_exits_stops_nobody(popped, busy):
    def leave(_):
        raise SystemExit(1)

    futures = [each.commit_soon() for each in popped(Run(), 3)]
    futures[0].add_done_callback(leave)
    busy.set()
    assert [each.result(WAIT_S) for each in futures] == [None] * 3
    (later,) = popped(Run())
    assert later.commit_soon().result(WAIT_S) is None


def test_a_failure_that_nobody_asked_for_is_logged(popped, committer, answers, caplog):
    run = Run()
    run.runs = False
    (delivery,) = popped(run)
    with caplog.at_level(logging.WARNING, "cassq"):
        delivery.commit_soon()
        committer.flush()
        answers.submit(gc.collect).result(WAIT_S)
        answers.submit(gc.collect).result(WAIT_S)
    (record,) = caplog.records
    assert "the commit of <Delivery" in record.message
