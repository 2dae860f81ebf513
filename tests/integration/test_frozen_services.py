"""Calls while Cassandra, ZooKeeper or both are silent: each comes back by itself, and nothing is lost.

The servers are of this module's own and are frozen (SIGSTOP): connections stand, and nothing answers. Every
call begins right after that, when nobody has noticed yet, in a thread of its own. In the patient store a
request may take longer than any test, so that a call which its timeout or its lease bounds comes back for
that reason alone; the other calls are bounded by their requests.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest
from cassandra.cluster import Session as DriverSession
from support.patience import patiently

import cassq
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra import cluster

pytestmark = [pytest.mark.service, pytest.mark.slow]

#: Longer than every bound here on a slow machine, shorter than a request of the patient store.
HANGS_S = 90.0
PATIENT_S = 3600
HURRIED_S = 2

#: What ends a commit, whose requests are patient.
LEASE = timedelta(seconds=10)

#: What a call may end with; `None` is no error.
Ends = tuple[type[cassq.CassqError] | type[TimeoutError] | None, ...]

NO_ERROR: Ends = (None,)
NO_DATABASE: Ends = (cassq.StorageUnavailableError,)
NOT_PUSHED: Ends = (cassq.StorageUnavailableError, cassq.OutcomeUnknownError)
NOT_COMMITTED: Ends = (cassq.OutcomeUnknownError, cassq.DeliveryExpiredError)
NOT_EXTENDED: Ends = (*NOT_PUSHED, cassq.DeliveryExpiredError)
NOT_POPPED: Ends = (cassq.UnavailableError,)
MAYBE_POPPED: Ends = (None, cassq.UnavailableError)
STILL_PENDING: Ends = (TimeoutError,)


@dataclass
class Call:
    """A call in a thread of its own, and what became of it.

    Attributes:
        bodies: what it pushes.
    """

    name: str
    call: Callable[[], object]
    without_database: Ends
    without_zookeeper: Ends = NO_ERROR
    bodies: tuple[bytes, ...] = ()
    result: object = None
    error: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self):
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def _run(self):
        try:
            self.result = self.call()
        except Exception as error:
            self.error = error

    def is_as_told(self, frozen):
        ends = self.without_database if "cassandra" in frozen else self.without_zookeeper
        if self.error is None:
            return None in ends
        return isinstance(self.error, tuple(filter(None, ends)))


class Scene:
    """Two stores, and what is in them before the servers are frozen.

    Attributes:
        stored: every body that was acknowledged.
    """

    def __init__(self, url):
        self._hurried_url = f"{url}&timeout={HURRIED_S}"
        self.patient = cassq.connect(f"{url}&timeout={PATIENT_S}")
        self.hurried = cassq.connect(self._hurried_url)
        self.stored = set()

    def close(self):
        self.patient.close()
        self.hurried.close()

    def queue(self, store, name):
        """Return a queue of its own, with one message that has its name."""
        queue = store.queue(name, lease=LEASE)
        queue.push(name.encode())
        self.stored.add(name.encode())
        return queue

    def taken(self, store, name):
        """Return the delivery of the one message of a queue of its own."""
        return self.queue(store, name).popper().pop(timeout=HANGS_S)

    def pushes(self):
        """Push with each way, with no time at all, a little, and more than the caller waits for."""
        calls = []
        for timeout in (0, 0.5, 3):
            queue = self.queue(self.patient, f"pushed-{timeout}")
            body = f"push {timeout}".encode()
            calls.append(
                Call(
                    f"push({timeout})",
                    lambda queue=queue, body=body, timeout=timeout: queue.push(body, timeout=timeout),
                    NOT_PUSHED,
                    (None, cassq.StorageUnavailableError),
                    (body,),
                )
            )
            queue = self.queue(self.patient, f"soon-{timeout}")
            body = f"soon {timeout}".encode()
            calls.append(
                Call(
                    f"push_soon({timeout})",
                    lambda queue=queue, body=body, timeout=timeout: queue.push_soon(
                        body, timeout=timeout
                    ).result(),
                    NOT_PUSHED,
                    (None, cassq.StorageUnavailableError),
                    (body,),
                )
            )
        many, later = self.queue(self.patient, "pushed-many"), self.queue(self.patient, "pushed-later")
        bodies = tuple(b"many %d" % number for number in range(50))
        return [
            *calls,
            Call("push_many(20)", lambda: many.push_many(bodies, timeout=20), NOT_PUSHED, NO_ERROR, bodies),
            Call(
                "push_soon().result(1)",
                lambda: later.push_soon(b"later").result(1),
                STILL_PENDING,
                (None, *STILL_PENDING),
                (b"later",),
            ),
        ]

    def pops(self):
        """Pop where there was nothing a moment ago, and where a pipe is to be claimed first."""
        calls = []
        for name, pop in (
            ("pop(0)", lambda popper: popper.pop(timeout=0)),
            ("pop(1)", lambda popper: popper.pop(timeout=1)),
            ("pop_many(1)", lambda popper: popper.pop_many(10, timeout=1)),
        ):
            old = self.patient.queue(f"empty-{len(calls)}", lease=LEASE).popper()
            assert patiently(partial(old.pop, timeout=0)) is None
            new = self.queue(self.patient, f"fresh-{len(calls)}").popper()
            for words, popper in (("that popped before", old), ("that is new", new)):
                calls.append(
                    Call(
                        f"{name} of a popper {words}",
                        lambda popper=popper, pop=pop: pop(popper),
                        NOT_POPPED,
                        MAYBE_POPPED,
                    )
                )
        return calls

    def others(self):
        """What one request after the other bounds."""
        store = self.hurried
        queue = self.queue(store, "steered")
        back, late, longer = (self.taken(store, name) for name in ("back", "late", "longer"))
        closed = cassq.connect(self._hurried_url)
        self.queue(closed, "closed")
        holding = self.queue(closed, "held").popper()
        assert holding.pop(timeout=HANGS_S)
        return [
            Call("rollback", back.rollback, NO_ERROR),
            Call("rollback(delay)", lambda: late.rollback(timedelta(seconds=1)), NO_ERROR),
            Call("extend", longer.extend, NOT_EXTENDED),
            Call("stats", queue.stats, NO_DATABASE),
            Call("peek", lambda: queue.peek(1), NO_DATABASE),
            Call("store.queue", lambda: store.queue("steered"), NO_DATABASE),
            Call("connect", lambda: cassq.connect(self._hurried_url).close(), NO_DATABASE),
            Call("popper.close", holding.close, NO_ERROR),
            Call("store.close", closed.close, NO_ERROR),
        ]


def run_all(calls):
    """Run the calls side by side; return the names of those that do not come back."""
    for call in calls:
        call.thread.start()
    clock = SystemClock()
    until = clock.now() + HANGS_S
    for call in calls:
        call.thread.join(max(0.0, until - clock.now()))
    return [call.name for call in calls if call.thread.is_alive()]


def pop_the_rest(store):
    """Pop and commit all there is in every queue; return the bodies."""
    popped = Counter()
    for name in store.queues():
        queue = store.queue(name)
        with queue.popper() as popper:
            while (found := queue.stats()).waiting or found.pending:
                deliveries = popper.pop_many(100, timeout=1)
                popper.commit_many(deliveries)
                popped.update(each.body for each in deliveries)
    return popped


@pytest.fixture
def patience(monkeypatch):
    """Let a request of the patient store take longer than any call here, and no heartbeat end it."""
    monkeypatch.setattr(cluster, "_HEARTBEAT_S", PATIENT_S)
    monkeypatch.setattr(DriverSession, "_default_timeout", PATIENT_S)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("frozen", [("cassandra",), ("zookeeper",), ("cassandra", "zookeeper")], ids="+".join)
def test_every_call_comes_back_within_its_bound_and_nothing_is_lost(servers, frozen):
    url = f"cassandra://{servers.cassandra}/{servers.make_keyspace()}?zookeeper={servers.zookeeper}"
    scene = Scene(url)
    pushes = scene.pushes()
    calls = [*pushes, *scene.pops(), *scene.others()]
    commit = Call("commit", scene.taken(scene.patient, "done").commit, NOT_COMMITTED)
    try:
        for each in frozen:
            servers.order("freeze", "--only", each)
        hanging = run_all([*calls, commit])
    finally:
        servers.order("thaw")

    assert not hanging
    assert not {
        call.name: call.error or call.result for call in [*calls, commit] if not call.is_as_told(frozen)
    }

    scene.close()
    with cassq.connect(url) as store:
        popped = pop_the_rest(store)
    for call in pushes:
        if call.error is None:
            scene.stored.update(call.bodies)
        elif isinstance(call.error, cassq.StorageUnavailableError):
            assert not popped.keys() & set(call.bodies)
    if isinstance(commit.error, cassq.OutcomeUnknownError):
        popped.pop(b"done", None)
    if not isinstance(commit.error, cassq.DeliveryExpiredError):
        scene.stored.remove(b"done")
        assert b"done" not in popped
    assert scene.stored <= popped.keys()
    assert set(popped.values()) == {1}
