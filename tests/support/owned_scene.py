"""A pipe in a store, its owner, and consumers, for tests of what one take brings home."""

from dataclasses import replace
from datetime import timedelta

from support.clocks import HandClock
from support.contexts import context_of

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry, RunState
from cassq.model.queue_record import QueueRecord
from cassq.model.ranges import Ranges
from cassq.model.settings import QueueSettings
from cassq.model.uses import uses_message_ttl, with_uses
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.storage.sqlite.storage import SqliteStorage

LEASE_S = 8.0
SKEW_S = 0.5

SETTINGS = QueueSettings(
    lease=timedelta(seconds=LEASE_S), clock_skew_max=timedelta(seconds=SKEW_S), max_attempts=3
)


class Scene:
    """A pipe in a store, its owner, and what is in consumers' hands."""

    def __init__(self, **options) -> None:
        settings = replace(SETTINGS, **options)
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.entry = PipeEntry(new_pipe_id(), "a pusher")
        self.pipe = self.entry.pipe
        self.storage.create_pipe("q", self.entry, Head(new_token()))
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), settings, new_token()))
        self.context = context_of(self.storage, settings, self.clock)
        self.pushed = 0
        self.owned = self.own()

    def push(self, *sizes, ttl_s=0.0):
        for count in sizes:
            bodies = tuple(b"%d" % (self.pushed + place) for place in range(1, count + 1))
            batch = Batch(self.pushed + 1, bodies, None, count, ttl_ms=round(1000 * ttl_s))
            self.storage.append(self.pipe, batch)
            self.pushed += count
        if ttl_s and not uses_message_ttl(self.context.settings):
            self.context.record.change(lambda record: with_uses(record, Label(ttl_ms=1)))
            self.owned.heed_settings()

    def own(self):
        state = self.storage.load_pipe(self.pipe)
        return OwnedPipe(self.context, self.entry, state, Taker("a popper"))

    def alter(self, **options):
        self.context.record.change(lambda seen: replace(seen, settings=seen.settings.altered("q", options)))

    def hold(self, taken, sent_at):
        ends_at = sent_at + LEASE_S
        return HeldRun(
            self.context,
            self.entry,
            taken,
            ends_at,
            on_row_changed=self.owned.note,
        )

    def take(self, wanted):
        """Take; return what was handed out."""
        return numbers(self.owned.take(wanted))

    def take_back(self, first, last, how=None):
        """Take what is there, and have these of it come back."""
        result = self.owned.take(100)
        (taken,) = result.runs
        assert self.hold(taken, result.sent_at).give_back(Ranges(((first, last),)), how or Return())

    @property
    def stands(self):
        """The rows as they stand: first, last, attempt, and whether it is leased."""
        runs = self.storage.load_pipe(self.pipe).runs
        return [(run.first, run.last, run.attempt, run.state is RunState.LEASED) for run in runs]


def numbers(result):
    """Return the numbers of what a take handed out."""
    bodies = [(seq, body) for taken in result.runs for seq, body, *_ in taken.messages]
    assert all(body == b"%d" % seq for seq, body in bodies)
    return [seq for seq, _ in bodies]
