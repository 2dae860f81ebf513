"""The leases of what is in a buffer: taken for consumers, and not handed out yet.

Owns when such a lease is extended, and when what has it goes back instead. Used by the fetch thread alone,
which ends windows. What must not break: what was not handed out goes back without counting as an attempt.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CassqError
from cassq.model.ranges import Ranges
from cassq.pipes.expiry import is_limited
from cassq.pipes.held_run import HeldRun
from cassq.pipes.run_rows import Return
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetcher import Fetcher
from cassq.popping.timing import IDLE_S, POLL_S

_log = logging.getLogger("cassq.popper")


class BufferedLeases:
    """Keeps the leases of one buffer.

    Args:
        fetcher: took what is in it.

    Attributes:
        rest_s: they are to be looked at again after so long at the latest.
    """

    def __init__(self, context: QueueContext, buffer: DeliveryBuffer, fetcher: Fetcher) -> None:
        self._context = context
        self._buffer = buffer
        self._fetcher = fetcher
        self.rest_s = POLL_S  # less where a lease in hand is short

    def keep_up(self) -> None:
        """Extend the leases of what is in the buffer, or give it back when nobody pops any more."""
        if self._buffer.is_idle(IDLE_S):
            self._context.coordinator.may_take()  # an outage, and its end, are told also while nobody pops
            self.give_back()
            self._fetcher.let_go()
            return
        held = self._fetcher.keep_up()
        if self._buffer.take_surplus():
            self.give_back()
        runs = self._buffer.runs()
        if is_limited(self._context.settings) and any(
            run.left_s < max(run.lease_s - IDLE_S, run.lease_s / 2) for run in runs
        ):
            self.give_back()  # it may have expired, and who takes it anew looks
            return
        self.rest_s = min((POLL_S, *(run.lease_s / 4 for run in (*runs, *held))))
        for run in runs:
            if run.is_live and run.left_s < run.lease_s / 2:
                if run.is_window_out:
                    self._fetcher.end_windows()  # `extend` waits for this very thread to do it
                try:
                    run.extend()
                except CassqError as error:
                    queue = self._context.queue
                    _log.info("queue %s: a buffered run was not extended: %s", queue, error)

    def give_back(self) -> None:
        """Give back all that is in the buffer."""
        back = self._buffer.take_back()
        if back:
            self._fetcher.end_windows()
        _return(back)

    def give_excess_back(self) -> None:
        """Give back what came due and is more than consumers here work off in a moment."""
        _return(self._buffer.take_last(self._buffer.excess(2)))


def _return(back: Mapping[HeldRun, Ranges]) -> None:
    for run, parts in back.items():
        with suppress(AccessDeniedError):  # they come again when the lease ends
            run.give_back(parts, Return(is_counted=False))
