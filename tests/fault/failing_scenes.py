"""Scenes of one queue whose ports fail, in which the same objects go on as if nothing had been.

Owns what a user does in each of them, and what must be true after it. Refuses to choose what fails. Time runs
faster here than on the wall, so that pauses cost little; leases that are left behind end by a jump.
"""

import functools
import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from failing_ports import UNEXPECTED, Failing, Faults, PlantedError

from cassq.bulk.leased_run import read_leased
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.model.shelf import Shelf
from cassq.observing.inspection import MessageState
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

#: So fast time runs.
SPEED = 20.0

#: So long a step may take, in seconds of that time: a safety net, no step needs a tenth of it.
PATIENCE_S = 1200.0

#: What is left behind is waited for in so many jumps.
JUMPS = 12

#: Longer than any machine stands still in; what is left behind is leased until a jump.
LEASE = timedelta(seconds=600)

#: So long a pop waits, in seconds of that time, before it jumps.
POP_S = 20.0

#: The threads that work until they are closed.
LASTING = ("cassq-push", "cassq-beside", "cassq-pop", "cassq-commit", "cassq-reap")

#: What a caller may hear of a call that failed.
TROUBLE = (UnavailableError, OutcomeUnknownError, PlantedError)


class SwiftClock(SystemClock):
    """Runs faster than the machine's, and may be put forward."""

    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return super().now() * SPEED + self.ahead

    def latest(self):
        return self.now()

    def wait(self, condition, seconds):
        super().wait(condition, None if seconds is None else max(0.0, seconds) / SPEED)


class Scene:
    """A queue whose user goes on after trouble, and a book of what it was told."""

    def __init__(self, path):
        self.clock = SwiftClock()
        self._path = path
        self._kept = SqliteStorage(path, is_synced=False, clock=self.clock)
        self.faults = Faults()
        self.storage = Failing(self._kept, self.faults)
        self.is_unexpected = self.is_double = False
        self.acknowledged, self.uncertain, self.ended = set(), set(), set()
        self.put_back = self.maybe_back = 0
        self._numbers = iter(range(10**6))
        self._before = set(threading.enumerate())
        self._left = {}
        self._open()

    def _open(self):
        sidecar = f"{self._path}-coordination" if self._path else None
        coordinator = LocalCoordinator(sidecar, self.clock)
        self.coordination = Failing(coordinator, self.faults)

        def close_all():
            self._left = coordinator.holders("q")
            coordinator.close()

        self.store = Store("failing", Adapters(self.storage, self.coordination, close_all), clock=self.clock)
        self.queue = self.store.queue(
            "q", lease=LEASE, max_attempts=3, pipe_messages_max=4, retry_delay=timedelta(0)
        )
        self.popper = self.queue.popper()
        self.grouped = self.queue.popper(commit="grouped")

    def begin(self):
        """Have every thread at work that the scene needs."""
        self.push()
        self.commit(self.pop())
        self.lasting = self._lasting()

    def _lasting(self):
        """How many threads there are of each kind that lasts until the close."""
        names = (each.name for each in threading.enumerate() if each not in self._before)
        return Counter(name for name in names if name.startswith(LASTING))

    def again(self, do):
        """Do what may be repeated until it succeeds: at the second time, but for a machine that is slow."""
        for _ in range(4):
            with suppress(*TROUBLE):
                return do()
        return do()

    def body(self):
        return b"%d" % next(self._numbers)

    def push(self):
        body = self.body()
        try:
            message_id = self.queue.push(body, timeout=PATIENCE_S)
        except (*TROUBLE, CassqError) as error:
            self.note_push(body, error)
            return None
        self.acknowledged.add(body)
        return message_id

    def note_push(self, body, error):
        # One refusal or one lost reply is made good before the caller's time is up
        assert self.is_unexpected, error
        if not isinstance(error, UnavailableError):
            self.uncertain.add(body)

    def push_soon(self, count):
        futures = {self.body(): None for _ in range(count)}
        for body in futures:
            futures[body] = self.queue.push_soon(body, timeout=PATIENCE_S)
        for body, future in futures.items():
            error = future.exception(PATIENCE_S / SPEED)
            if error:
                self.note_push(body, error)
            else:
                self.acknowledged.add(body)

    def push_many(self, count):
        bodies = [self.body() for _ in range(count)]
        try:
            self.queue.push_many(bodies, timeout=PATIENCE_S)
        except CassqError as error:
            assert self.is_unexpected, error
            self.uncertain.update(bodies)
        else:
            self.acknowledged.update(bodies)

    def pop(self, count=1, popper=None):
        popper = popper or self.popper
        for _ in range(JUMPS if self.acknowledged - self.ended else 1):
            if found := self.again(lambda: popper.pop_many(count, timeout=POP_S)):
                return self.note(found)
            self.jump()
        return []

    def jump(self):
        """Let every lease end."""
        self.clock.ahead += LEASE.total_seconds() + 2.0

    def note(self, deliveries):
        for each in deliveries:
            assert each.body in self.acknowledged | self.uncertain, "what was refused is delivered"
            assert each.body not in self.ended, "what was committed is delivered again"
        return deliveries

    def commit(self, deliveries, popper=None):
        try:
            (popper or self.popper).commit_many(deliveries)
        except (DeliveryExpiredError, *TROUBLE):
            return  # some of them may come again
        if not popper:  # a grouped commit is promised by `close` only
            self.ended.update(each.body for each in deliveries)

    def drain(self):
        """Pop until everything has come that was acknowledged, or nothing does though time passed."""
        came = set()
        for _ in range(JUMPS):
            while found := self.note(self.again(lambda: self.popper.pop_many(9, timeout=1.0))):
                came.update(each.body for each in found)
                self.commit(found)
            if not self.waiting():
                return
            self.jump()
        pytest.fail(f"after {JUMPS} leases {self.queue.stats()}")

    def waiting(self):
        stats = self.again(self.queue.stats)
        return stats.waiting + stats.pending + stats.delayed

    def check(self):
        """Hold the queue to what it told, and see that nothing is left of it when it is closed."""
        # The same objects still work
        self.faults.disarm()
        self.push()
        self.push_soon(3)
        self.drain()
        stats = self.queue.stats()
        pushed = stats.pushed - self.put_back
        assert len(self.acknowledged) <= pushed <= len(self.acknowledged | self.uncertain) + self.maybe_back
        assert stats.committed + stats.purged + stats.dead == stats.pushed
        # No thread died of it
        assert self.lasting - self._lasting() == Counter()
        self.close()
        # Nothing that was acknowledged was lost, and every pipe is retired by whoever comes later
        self.acknowledged.clear()
        self._open()
        self.clock.ahead += 2 * 24 * 3600.0
        for _ in range(JUMPS):
            self.queue.reap()
            self.jump()
        assert self._kept.list_pipes("q").entries == ()
        assert self._kept.list_pipes("q", shelf=Shelf.STAGED).entries == ()
        assert self.queue.stats().pushed == stats.pushed
        self.close()

    def close(self):
        self.store.close()
        assert self._left == {}, "claims are left behind"
        assert [each.name for each in threading.enumerate() if each not in self._before] == []

    def end(self):
        self.faults.disarm()
        self.store.close()
        self._kept.close()


def pushes(scene):
    scene.push()
    scene.push_soon(6)
    scene.push_many(6)
    scene.push()


def pops_and_commits(scene):
    scene.push_many(9)
    scene.commit(scene.pop())
    scene.commit(scene.pop(3))
    scene.push()
    scene.commit(scene.pop(9))


def rollbacks(scene):
    scene.push_many(6)
    found = scene.pop(6)
    for each, end in zip(
        found,
        (
            lambda each: each.rollback(),
            lambda each: each.rollback(timedelta(seconds=5)),
            lambda each: each.give_back(),
            lambda each: each.extend(),
        ),
        strict=False,
    ):
        with suppress(DeliveryExpiredError, *TROUBLE):
            end(each)
    scene.commit(found[3:])
    scene.commit(scene.pop())


def grouped_commits(scene):
    scene.push_many(9)
    for _ in range(2):
        scene.commit(scene.pop(3, scene.grouped), scene.grouped)
    with suppress(*TROUBLE):
        scene.grouped.close()
    scene.grouped = scene.again(lambda: scene.queue.popper(commit="grouped"))
    scene.commit(scene.pop(3, scene.grouped), scene.grouped)


def pauses(scene):
    scene.again(scene.queue.pause)
    scene.push_many(3)
    scene.again(scene.queue.resume)
    scene.commit(scene.pop())


def dead_letters(scene):
    scene.push()
    for _ in range(3):
        for each in scene.pop():
            with suppress(DeliveryExpiredError, *TROUBLE):
                each.rollback()
    # Whoever pops next buries it
    with suppress(*TROUBLE):
        scene.note(scene.popper.pop_many(1, timeout=1.0))
    for letter in scene.again(scene.queue.dead.peek):
        # A letter is written before the message ends
        status = scene.again(lambda letter=letter: scene.queue.status(letter.message_id)).state
        assert status in {MessageState.DEAD, MessageState.PENDING, MessageState.WAITING}
        try:
            scene.put_back += scene.queue.dead.put_back(letter.message_id)
        except TROUBLE:
            scene.maybe_back += 1
    scene.again(scene.queue.dead.discard)
    assert scene.again(scene.queue.dead.peek) == []


def looks(scene):
    scene.push_many(6)
    message_id = scene.push()
    scene.again(scene.queue.stats)
    scene.again(scene.queue.pipes)
    scene.again(scene.queue.peek)
    if message_id:
        status = scene.again(lambda: scene.queue.status(message_id)).state
        assert status in {MessageState.WAITING, MessageState.PENDING}
    scene.again(scene.queue.reap)
    scene.again(scene.queue.purge)
    scene.again(scene.queue.reap)
    scene.again(scene.store.reap)


def bulk_writes(scene):
    for number in range(2):
        bodies = {scene.body() for _ in range(6)}
        scene.uncertain |= bodies
        staged = scene.queue.staging.open("a-writer", number, "a task")
        try:
            for body in bodies:
                staged.add(body)
            pipes = staged.close()
        except TROUBLE:
            assert scene.is_unexpected or scene.is_double
            scene.again(staged.discard)
            continue
        publish = functools.partial(scene.queue.staging.publish, "a-writer", number, pipes)
        assert scene.again(publish)
        scene.acknowledged |= bodies
    scene.commit(scene.pop(3))
    # What failed is discarded, and nothing of it is seen
    staged = scene.queue.staging.open("a-writer", 9, "a task")
    with suppress(*TROUBLE):
        staged.add(b"never seen")
        scene.again(lambda: scene.queue.staging.discard("a-writer", 9, staged.close()))


def readers(scene):
    scene.push_many(9)
    reader = scene.again(lambda: scene.queue.run_reader("a-reader", lease=LEASE))
    done = set()
    for _ in range(3):
        for run in scene.again(lambda: reader.take(4)):
            batches = scene.again(lambda run=run: list(read_leased(scene.storage, run)))
            done.update(body for batch in batches for body in batch.bodies)
            scene.again(lambda run=run: reader.commit([run]))
            scene.ended.update(body for batch in batches for body in batch.bodies)
    scene.again(reader.keep_alive)
    reader.close()
    assert done <= scene.acknowledged | scene.uncertain


SCENES = (
    *(pushes, pops_and_commits, rollbacks, grouped_commits, pauses, dead_letters, looks),
    *(bulk_writes, readers),
)


@functools.cache
def calls_of(act):
    """How often a scene calls which method, where nothing fails."""
    scene = Scene(None)
    try:
        scene.begin()
        scene.faults.calls.clear()
        act(scene)
        return Counter(scene.faults.calls)
    finally:
        scene.end()


def play(act, method, number, *hows, then=None, path=None):
    """Have calls fail in a scene, as `Faults.arm` says, and hold it to what must be true all the same."""
    # A pop waits for the end of its look, however slow the machine is
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cassq.popping.consumer_line.LOOK_TIMEOUT_S", PATIENCE_S)
        scene = Scene(path)
        try:
            scene.begin()
            scene.is_unexpected = UNEXPECTED in hows
            scene.is_double = len(hows) > 1 or then is not None
            scene.faults.arm(method, number, *hows, then=then)
            act(scene)
            scene.check()
        finally:
            scene.end()
