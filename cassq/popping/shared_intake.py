"""Where poppers of one process get their messages from, and where their commits go.

Owns how many poppers share what takes for them, and the order of closing: stop taking, give back what was not
handed out, let the claims go, write the commits that wait. The poppers of a queue that commit in one way
share one intake: two of a process would be hungry rivals, so that no window begins, and would claim, load
and leave each other's pipes. What must not break: the last popper that leaves closes what was shared, once,
and no other does.
"""

import threading
from collections.abc import Callable
from typing import Literal

from cassq.catalog.queue_context import QueueContext
from cassq.errors import InvalidOptionError
from cassq.popping.commits import DirectCommitter
from cassq.popping.committer import Committer
from cassq.popping.consumer_line import Asker
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetch_thread import FetchThread
from cassq.popping.fetcher import Fetcher
from cassq.popping.grouped_commits import GroupedCommitter
from cassq.popping.looks import silence_of
from cassq.popping.observed_intake import ObservedBuffer, ObservedCommitter
from cassq.popping.traced_intake import TracedBuffer, TracedCommitter

#: How commits go out: one by one, or together every few milliseconds.
CommitMode = Literal["each", "grouped"]


class SharedIntake:
    """Takes messages for the poppers that joined it; begins with one.

    Args:
        check_takes: returns False while the queue is paused, raises `QueueNotFoundError` once it is deleted.
        buffer: None for one that gives messages one by one.

    Attributes:
        name: what messages are leased under, unique.
        committer: where the commits of its messages go.
        buffer: what is in hand for its poppers.
        source: what they pop from: that, or what notes or follows each pop.
        stream: what they iterate over: of a pop that nobody called for, nothing is followed.
    """

    def __init__(
        self,
        context: QueueContext,
        fetcher: Fetcher,
        commit: CommitMode,
        check_takes: Callable[[], bool],
        buffer: DeliveryBuffer | None = None,
    ) -> None:
        self.name = fetcher.holder
        self.buffer = buffer or DeliveryBuffer(context.clock, silence_of(context))
        events = context.events
        on_lost = events.note_commits_failed if events else None
        self._grouped = GroupedCommitter(context.clock, self.buffer.answers, on_lost)
        self.committer: Committer = self._grouped
        if commit == "each":
            self.committer = DirectCommitter(self._grouped.commit_soon)
        source: DeliveryBuffer | ObservedBuffer = self.buffer
        if events:
            source = ObservedBuffer(self.buffer, events)
            self.committer = ObservedCommitter(self.committer, events)
        self.source: DeliveryBuffer | ObservedBuffer | TracedBuffer = source
        self.stream = source
        if tracer := context.tracer:
            self.source = TracedBuffer(source, tracer, context.queue, self.name)
            if commit == "each":
                self.committer = TracedCommitter(self.committer, tracer, context.queue, self.name)
        self._members = 1
        self._joining = threading.RLock()
        self._fetch_thread = FetchThread(context, fetcher, self.buffer, self.committer, check_takes)
        self._fetch_thread.start()

    def join(self) -> bool:
        """Count one popper more; False when the last one has left meanwhile."""
        with self._joining:
            if not self._members:
                return False
            self._members += 1
            return True

    def leave(self, popper: Asker) -> None:
        """Let a closed popper go; returns when its commits are written, or given up. The last closes it."""
        with self._joining:
            self._members -= 1
            is_last = not self._members
        if not is_last:
            self.buffer.leave(popper)
            self._grouped.flush()
            return
        self.buffer.close()
        self._fetch_thread.join()
        self._grouped.close()
        self.buffer.answers.shutdown(wait=False)


def check_commit(commit: str) -> None:
    """Raise `InvalidOptionError` for what is no way to commit."""
    if commit not in {"each", "grouped"}:
        raise InvalidOptionError(f"commit={commit!r} is not a way to commit: use 'each' or 'grouped'")
