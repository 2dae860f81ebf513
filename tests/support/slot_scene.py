"""Slots of a queue, with pipes of messages with keys, and poppers that take from them."""

from datetime import timedelta
from functools import partial

from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.pipe_order import in_order
from cassq.popping.commits import commit_run
from cassq.popping.slots import Slots
from cassq.storage.sqlite.storage import SqliteStorage

LEASE_S = 8


class Flaky:
    """A storage of which the calls named in `fails` fail, as each says.

    Before the next call named in `before` something happens. What was not done may land late: see `lost`.
    """

    def __init__(self, storage):
        self._storage = storage
        self.fails = {}
        self.before = {}
        self.calls = []
        self.lost = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append(name)
            self.before.pop(name, lambda: None)()
            error, is_done = self.fails.get(name, (None, True))
            send = partial(getattr(self._storage, name), *args, **kwargs)
            if not is_done:
                self.lost.append(send)
            answer = send() if is_done else None
            if error:
                raise error
            return answer

        return call


class Scene:
    """Pipes of two slots of one queue, and poppers of it, whose claims do not spare them the fight."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        self.over = []
        self.freed = []
        self._pushed = {}

    def context(self, storage=None, coordinator=None, **options):
        options = {"lease": timedelta(seconds=LEASE_S), "clock_skew_max": timedelta(0), **options}
        storage, settings = storage or self.storage, QueueSettings(**options)
        coordinator = coordinator or LocalCoordinator(None, self.clock)
        return context_of(storage, settings, self.clock, coordinator=coordinator)

    def popper(self, holder="a popper", storage=None, coordinator=None, **options):
        context = self.context(storage, coordinator, **options)
        made = Slots(context, holder, Taker(holder), self.over.append)
        made.on_free = lambda: self.freed.append(True)
        return made

    def open(self, *keys, slot=3, pusher="a pusher", kind="", priority=0):
        entry = PipeEntry(new_pipe_id(), pusher, priority, slot=slot, type=kind, shelf=Shelf.KEYED)
        self.storage.create_pipe("q", entry, Head(new_token()))
        self._pushed[entry.pipe] = 0
        if keys:
            self.push(entry.pipe, *keys)
        return entry.pipe

    def push(self, pipe, *keys):
        bodies = tuple(key.encode() for key in keys)
        self.storage.append(pipe, Batch(self._pushed[pipe] + 1, bodies, None, len(keys), keys=keys))
        self._pushed[pipe] += len(keys)

    def seal(self, pipe, last):
        assert self.storage.transact(pipe, Transaction(Seal(last, is_free=True))).is_applied

    @property
    def incarnation(self):
        return self.storage.read_queues("q")[0].incarnation

    def op_of(self, slot):
        return self.storage.read_slot(self.incarnation, slot)

    @property
    def entries(self):
        """The pipes of slots, the oldest first."""
        return in_order(self.storage.list_pipes("q", shelf=Shelf.KEYED).entries, timedelta(0))

    def leased(self, pipe):
        runs = self.storage.load_pipe(pipe).runs
        return [seq for run in runs if run.state is RunState.LEASED for seq in range(run.first, run.last + 1)]


def feed(popper, wanted=10):
    return popper.feed(wanted, is_listing=True)


def places(fetched):
    """Which messages of which pipe came."""
    return [(run.pipe, part.first) for run, taken in fetched for part in taken.parts]


def commit(fetched):
    for run, taken in fetched:
        for part in taken.parts:
            commit_run(run, Ranges([(part.first, part.last)]))
