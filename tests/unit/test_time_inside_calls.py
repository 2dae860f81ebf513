"""Time passes between the sending of a call and its answer: whoever holds a lease never outlasts it.

Each step of a holder is made once for each call in it, with delays below and above the times of leases and
windows: on the way to the store, on the way back, by the process's own clock, or in a pause of its machine
that only a witness tells. Then time goes on in small steps. At each of them what the holder believes is
compared with what the store has.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of
from support.slow_ports import Delay, Slow

from cassq.bulk.leased_run import tag
from cassq.bulk.reader_leases import ReaderLeases
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    DeliveryExpiredError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.transaction import RunChange, Transaction
from cassq.pipes import window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.held_run import Return
from cassq.pipes.window_steps import WINDOW_MS
from cassq.popping.commits import commit_run
from cassq.popping.fetcher import Fetcher, Reach
from cassq.storage.sqlite.storage import SqliteStorage

LEASE_S = 8.0
WINDOW_S = WINDOW_MS / 1000
SETTINGS = QueueSettings(lease=timedelta(seconds=LEASE_S), clock_skew_max=timedelta(milliseconds=500))

#: So much time goes on between two looks at what the holder believes.
STEP_S = LEASE_S / 8

#: Below and above the time of a window, of half a lease, of a lease, and of a lease with a window.
DELAYS_S = (0.6, 1.3, 5.0, 7.7, 9.4, 30.0)


class Scene:
    """A queue with one pipe, a popper and a reader of it, whose clock may miss what passes in the store."""

    def __init__(self, *, is_paused=False):
        self.clock, self.store_clock = HandClock(), HandClock()
        self.is_paused = is_paused
        self.real = SqliteStorage(None, is_synced=False, clock=self.store_clock)
        self.storage = Slow(self.real, self.miss if is_paused else self.go_on)
        self.coordinator = LocalCoordinator(None, self.store_clock)
        assert self.real.change_queue(None, QueueRecord("q", new_token(), SETTINGS, new_token()))
        context = context_of(self.storage, SETTINGS, self.clock, coordinator=self.coordinator)
        self.fetcher = Fetcher(context, "a popper", on_pipe_over=lambda _: None, taker=Taker(tag("reader")))
        self.leases = ReaderLeases(context, "reader")
        self.entry = PipeEntry(new_pipe_id(), "a pusher")
        self.real.create_pipe("q", self.entry, Head(new_token()))
        self.pushed = 0
        #: Every run that was ever held, by its lease.
        self.held = {}
        self.acknowledged = []

    def go_on(self, seconds):
        self.store_clock.seconds += seconds
        self.clock.seconds += seconds

    def miss(self, seconds):
        self.store_clock.seconds += seconds
        self.clock.missed += seconds

    def push(self, count=1):
        self.real.append(self.entry.pipe, Batch(self.pushed + 1, (b"body",) * count, None, count))
        self.pushed += count

    def take(self, *, is_flowing=False):
        """Take what there is; what was handed out in a window was so before it was over."""
        found = self.fetcher.feed(10, Reach.DRAINED, is_flowing=is_flowing)
        state = self.real.load_pipe(self.entry.pipe)
        for held, taken in found:
            self.held[taken.run.lease_id] = held
            row = next(run for run in state.runs if run.lease_id == taken.run.lease_id)
            assert not row.window_ms or state.now_ms <= row.leased_at_ms + row.window_ms
        return found

    def commit(self, held, seq):
        """Commit a message; what is acknowledged was so while its lease ran."""
        try:
            commit_run(held, Ranges(((seq, seq),)))
        except DeliveryExpiredError:
            assert not any(mark.first <= seq <= mark.last for mark in self.state.marks)
        except OutcomeUnknownError:
            pass
        else:
            self.acknowledged.append(seq)
            assert self.is_leased(held), "it was acknowledged after the lease had ended"

    @property
    def state(self):
        return self.real.load_pipe(self.entry.pipe)

    def is_leased(self, held):
        """Tell whether nobody else may take what is left of a run, as the store sees it."""
        lease_ids = {lease_id for lease_id, each in self.held.items() if each is held}
        state = self.state
        rows = [run for run in state.runs if run.lease_id in lease_ids and run.state is RunState.LEASED]
        return bool(rows) and all(state.now_ms <= run.leased_at_ms + run.lease_ms for run in rows)

    def check(self):
        for held in set(self.held.values()):
            assert not held.is_live or self.is_leased(held), "the holder believes in a lease that has ended"

    def close(self):
        self.fetcher.close()
        self.coordinator.close()
        self.real.close()


def lease(scene):
    scene.push(3)
    ((held, taken),) = scene.take()
    return held, taken


def open_window(scene):
    scene.push()
    ((held, taken),) = scene.take(is_flowing=True)
    assert held.is_window_out
    return held, taken


def takes(scene):
    scene.push(3)
    return scene.take


def extends(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    return held.extend


def extends_late(scene):
    """The lease ends on the way."""
    held, _ = lease(scene)
    scene.go_on(LEASE_S - 0.1)
    return held.extend


def gives_back(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    return lambda: held.give_back(Ranges(((2, 2),)), Return(delay_ms=10))


def commits(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    return lambda: scene.commit(held, 2)


def doubts(scene):
    """The time of day was set, and the store is asked whether the lease runs."""
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    scene.clock.missed += 60.0
    return held.still_runs


def doubts_and_commits(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    scene.clock.missed += 60.0
    return lambda: scene.commit(held, 2)


def doubts_and_extends(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S / 2)
    scene.clock.missed += 60.0
    return held.extend


def begins_a_window(scene):
    scene.push(3)
    return lambda: scene.take(is_flowing=True)


def hands_out(scene):
    open_window(scene)
    scene.push(2)
    return lambda: scene.take(is_flowing=True)


def renews(scene):
    open_window(scene)
    scene.push(2)
    scene.go_on(WINDOW_S * 0.7)
    return lambda: scene.take(is_flowing=True)


def cuts(scene):
    open_window(scene)
    scene.push(2)
    return scene.fetcher.end_windows


def ends_what_is_over(scene):
    open_window(scene)
    scene.push(2)
    scene.go_on(WINDOW_S)
    return scene.fetcher.tend


def commits_in_a_window(scene):
    held, _ = open_window(scene)
    scene.go_on(WINDOW_S / 2)
    return lambda: scene.commit(held, 1)


def written(scene):
    held, taken = lease(scene)
    run = scene.leases.note(held, taken)
    scene.fetcher.let_go()
    return run


def begin_anew(scene, run):
    held = scene.leases.begin_anew(run)
    if held:
        scene.held[run.lease_id] = held


def begins_anew(scene):
    run = written(scene)
    scene.go_on(LEASE_S * 2)
    return lambda: begin_anew(scene, run)


def keeps_alive(scene):
    written(scene)
    scene.go_on(LEASE_S / 2)
    return scene.leases.extend_all


def keeps_alive_what_has_ended(scene):
    run = written(scene)
    scene.go_on(LEASE_S * 2)

    def do():
        scene.leases.extend_all()
        scene.held[run.lease_id] = scene.leases.held_of(run)

    return do


STEPS = (
    *(takes, extends, extends_late, gives_back, commits, doubts, doubts_and_commits, doubts_and_extends),
    *(begins_a_window, hands_out, renews, cuts, ends_what_is_over, commits_in_a_window),
    *(begins_anew, keeps_alive, keeps_alive_what_has_ended),
)


def play(step, number, delay, *, is_paused=False):
    """Make a step of which one call takes its time; return which calls it made."""
    scene = Scene(is_paused=is_paused)
    try:
        do = step(scene)
        scene.storage.delay(number, delay)
        try:
            do()
        except CassqError:
            assert delay.there_s + delay.back_s > 0.0
        calls = scene.storage.calls
        for _ in range(20):
            scene.check()
            scene.go_on(STEP_S)
        return calls
    finally:
        scene.close()


@pytest.mark.parametrize("is_paused", [False, True], ids=["passes", "missed"])
@pytest.mark.parametrize("way", ["there_s", "back_s"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_whoever_holds_a_lease_never_outlasts_it(step, way, is_paused):
    calls = play(step, 0, Delay())
    assert calls
    for number in range(len(calls)):
        for seconds in DELAYS_S:
            play(step, number, Delay(**{way: seconds}), is_paused=is_paused)


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()


def test_a_commit_that_comes_too_late_is_not_sent(scene):
    held, _ = lease(scene)
    scene.go_on(LEASE_S + 0.1)
    with pytest.raises(DeliveryExpiredError):
        commit_run(held, Ranges(((1, 1),)))
    assert scene.state.marks == ()


def test_a_lease_that_others_took_while_it_was_extended_is_given_up(scene):
    held, _ = lease(scene)
    (row,) = scene.state.runs
    taken_over = RunChange(replace(row, lease_id=new_token()), row.lease_id, is_leased_now=True)

    def take_over():
        assert scene.real.transact(scene.entry.pipe, Transaction(runs=(taken_over,))).is_applied

    scene.storage.delay(0, Delay(meanwhile=take_over))
    with pytest.raises(DeliveryExpiredError):
        held.extend()
    assert scene.storage.calls == ["load_pipe", "transact"]
    assert not held.is_live
    assert not held.still_runs()


@pytest.mark.parametrize("does", ["extend", "still_runs"])
def test_a_time_of_day_that_was_set_while_a_lease_was_looked_after_is_doubted_later(scene, does):
    held, _ = lease(scene)
    if does == "still_runs":
        scene.clock.missed += 60.0
    last = {"extend": 1, "still_runs": 0}[does]
    scene.storage.delay(
        last, Delay(meanwhile=lambda: setattr(scene.clock, "missed", scene.clock.missed + 60.0))
    )
    getattr(held, does)()
    assert not held.is_live
    assert held.still_runs()


def test_what_a_window_hands_out_last_is_leased_for_the_whole_lease(scene):
    open_window(scene)
    scene.push()
    scene.go_on(WINDOW_S - 0.01)
    ((held, _),) = scene.take()
    assert held.left_s >= LEASE_S
    scene.go_on(LEASE_S - 0.01)
    scene.check()
    assert held.is_live


@pytest.mark.parametrize("error", [StorageUnavailableError, AccessDeniedError])
def test_the_rest_of_a_window_that_others_ended_is_returned_though_a_first_try_failed(
    scene, monkeypatch, error
):
    held, _ = open_window(scene)
    scene.push(2)
    scene.go_on(WINDOW_S + 1.0)
    context = context_of(scene.real, SETTINGS, scene.clock, coordinator=scene.coordinator)
    state = scene.real.load_pipe(scene.entry.pipe)
    assert window_steps.take_over(FencedPipe(context, scene.entry, state, Taker("another")))
    scene.fetcher.tend()
    transact = SqliteStorage.transact

    def refuse(*_):
        monkeypatch.setattr(SqliteStorage, "transact", transact)
        raise error("planted")

    monkeypatch.setattr(SqliteStorage, "transact", refuse)
    with pytest.raises(error):
        held.extend()

    held.extend()

    rows = [(run.first, run.last, run.state) for run in scene.real.load_pipe(scene.entry.pipe).runs]
    assert rows == [(1, 1, RunState.LEASED), (2, 3, RunState.RETURNED)]
