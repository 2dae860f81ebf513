"""The thread that keeps one buffer filled.

Owns when to look for messages, and when to announce hunger and listen instead. What must not break: who was
woken looks, or passes that on.

    the buffer     and                                                   so
    full                                                                 SHARE: hungry poppers get pipes; rest
    empty, waited  the last look found nothing, and others are hungry    STARVE: be hungry, listen
    empty, waited  the last look found all, and more comes later         STARVE
    not full       the last look found all, and more comes later         AWAIT: rest until then
    not full       otherwise                                             LOOK

While nobody pops for `slow_s` the buffer counts as full, whatever is in it. A wake-up leads to LOOK; where
the buffer is full, or nobody pops any more, it is passed on. A LOOK that found nothing is followed by looks
at what is known while messages flow fast, then by STARVE where the buffer is empty, and by a rest where it
is not.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from enum import Enum

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CassqError, StorageUnavailableError
from cassq.model.take_plan import Taken
from cassq.model.uses import uses_due, uses_priority
from cassq.pipes.held_run import HeldRun
from cassq.popping.alarm import Heard
from cassq.popping.arrival_rate import ArrivalRate
from cassq.popping.buffered_leases import BufferedLeases
from cassq.popping.committer import Committer
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.popping.timing import LOOK_S, POLL_MAX_S, POLL_MIN_S, POLL_S, POLL_SHARED, SLOW_S
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.poll_spread import LOOKS_PER_S, RETRIES_PER_S

_log = logging.getLogger("cassq.popper")

#: A popper with more in hand than its consumers work off in so many moments leaves to others what comes due.
MUCH = 10


class _Step(Enum):
    """What the thread does next, as the table above tells."""

    SHARE = "share"
    STARVE = "starve"
    AWAIT = "await"
    LOOK = "look"


class FetchThread:
    """Feeds the poppers of one intake.

    Args:
        check_takes: returns False while the queue is paused, raises `QueueNotFoundError` once it is deleted.
    """

    def __init__(
        self,
        context: QueueContext,
        fetcher: Fetcher,
        buffer: DeliveryBuffer,
        committer: Committer,
        check_takes: Callable[[], bool],
    ) -> None:
        self._context = context
        self._polls = context.polls
        self._buffer = buffer
        self._alarm = buffer.alarm
        self._fetcher = fetcher
        fetcher.listen(buffer.call, buffer.alarm.ask)
        self._rivals = fetcher.rivals
        self._queue = context.queue
        self._leases = BufferedLeases(context, buffer, fetcher)
        self._committer = committer
        self._check_takes = check_takes
        self._clock = context.clock
        self._pace = ArrivalRate()
        self._retry_s = POLL_S
        self._has_found = False
        self._has_all = False
        self._thread = threading.Thread(target=self._run, name=f"cassq-pop-{self._queue}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, which it does when the buffer is closed."""
        self._fetcher.finish()
        self._thread.join()

    def run_once(self) -> None:
        """Keep up the leases, then feed the consumers once, or wait for a reason to."""
        is_woken = self._alarm.take_woken()  # first: who asks for something from here on wakes it once more
        self._fetcher.tend()
        if uses_priority(self._context.settings):
            self._buffer.slow_s = SLOW_S
        self._leases.keep_up()
        wanted = self._buffer.wanted()
        is_starving = wanted > 0 and self._buffer.is_starving()
        next_s = self._pace.next_find_s(self._clock.now())
        match self._next_step(wanted, next_s, is_starving=is_starving, is_woken=is_woken):
            case _Step.SHARE:
                self._share(is_woken=is_woken)
            case _Step.STARVE:
                self._starve(wanted)
            case _Step.AWAIT:
                self._buffer.rest_while_fed(min(next_s, POLL_S))
            case _Step.LOOK:
                if self._feed(wanted, Reach.DRAINED if is_woken else Reach.LISTED):
                    return
                if not is_starving:
                    self._buffer.rest_while_fed(POLL_S)
                elif not self._watch_flow(wanted):
                    self._starve(wanted)

    def _share(self, *, is_woken: bool) -> None:
        """Leave to others what is more than enough here, and rest."""
        if self._buffer.is_idle(self._buffer.slow_s):
            self._fetcher.let_go()
        self._fetcher.share(is_full=self._buffer.excess(MUCH) > 0)
        if is_woken:
            self._rivals.pass_on()
        if uses_due(self._context.settings) and self._rivals.count():
            self._leases.give_excess_back()
        self._buffer.rest_while_full(self._leases.rest_s)

    def _next_step(self, wanted: int, next_s: float, *, is_starving: bool, is_woken: bool) -> _Step:
        if wanted <= 0:
            return _Step.SHARE
        if is_woken:
            return _Step.LOOK
        if is_starving and not self._has_found and self._rivals.count():
            # Others wait, so there is nothing; if each looked all the same, the servers would do little else.
            return _Step.STARVE
        if next_s and self._has_all:
            # One look is enough, once it is announced that somebody waits.
            return _Step.STARVE if is_starving else _Step.AWAIT
        return _Step.LOOK

    def _run(self) -> None:
        while not self._alarm.is_closing:
            try:
                self.run_once()
                self._retry_s = POLL_S
            except CassqError as error:
                if isinstance(error, AccessDeniedError):  # also where it was refused a place in the line
                    self._buffer.end_round(self._buffer.begin_round(), error)
                self._alarm.pause(self._retry_s)  # `_feed` has told the consumers
                # Many that fail together, and go on together, would fail again.
                most = self._polls.spread(POLL_S, RETRIES_PER_S, self._queue)
                self._retry_s = min(2 * self._retry_s, most)
            except Exception:
                # A thread that ended here would keep its claims, and its consumers, for ever.
                _log.exception("queue %s: an error that nobody expected; the popper goes on", self._queue)
                self._let_go()
                self._alarm.pause(POLL_S)
        with contextlib.ExitStack() as closing:
            closing.callback(self._pass_on_what_came)  # last: whoever is woken must find the pipes free
            closing.callback(self._fetcher.close)
            closing.callback(self._rivals.withdraw)
            self._leases.give_back()

    def _let_go(self) -> None:
        try:
            self._fetcher.let_go()
        except Exception:
            _log.exception("queue %s: claims were not given up; the popper goes on", self._queue)

    def _watch_flow(self, wanted: int) -> bool:
        """While messages flow fast, look into the pipes again and again; True when one came, or to go on."""
        while (pause := self._pace.next_look_s(self._clock.now())) is not None:
            if self._alarm.listen(pause) is not Heard.NOTHING or self._feed(wanted, Reach.KNOWN):
                return True
        return False

    def _feed(self, wanted: int, reach: Reach) -> bool:
        number = self._buffer.begin_round()
        try:
            fetched = self._take(wanted, reach)
        except CassqError as error:
            if self._buffer.end_round(number, error):
                log_trouble(_log, error, "queue %s: %s", self._queue, error)
            raise
        except Exception as error:
            self._buffer.end_round(number, StorageUnavailableError(f"an unexpected error: {error!r}"))
            raise
        found = sum(taken.count for _, taken in fetched)
        self._has_found = bool(fetched)
        self._has_all = found < wanted
        if fetched:
            self._pace.note_found(found, self._clock.now())
        for run, taken in fetched:
            self._buffer.put(BatchSlice(run, part, self._committer) for part in taken.parts)
        self._buffer.end_round(number, None if fetched else self._fetcher.trouble())
        if fetched:
            self._fetcher.share()
            if reach is Reach.DRAINED:  # it was woken, perhaps for another type than it found
                self._rivals.pass_on({run.entry.type for run, _ in fetched})
        return bool(fetched)

    def _take(self, wanted: int, reach: Reach) -> list[tuple[HeldRun, Taken]]:
        self._fetcher.check_may_take()  # before anything is read for nothing
        with self._fetcher.beginning:
            may_take = self._check_takes()
        if not may_take:
            self._fetcher.end_windows()
            if self._buffer.is_holding:
                self._leases.give_back()
            if self._fetcher.is_holding:
                self._fetcher.let_go()
            return []
        is_flowing = self._pace.is_fast(self._clock.now())
        room_ahead = self._buffer.room_to_hold
        return self._fetcher.feed(wanted, reach, is_flowing=is_flowing, room_ahead=room_ahead)

    def _starve(self, wanted: int) -> None:
        """Announce hunger and wait to be woken; look again now and then, for the wake-up that got lost.

        Who is first in line looks once more at once, for what was pushed before anybody could hear of the
        announcement. Where others stood in line before, that would have woken one of them.
        """
        before = self._rivals.announce(self._alarm.wake, self._alarm.crowd)
        others = self._rivals.count()
        is_spared = before > 0
        pause = POLL_MAX_S if is_spared else POLL_S
        try:
            while is_spared or not self._feed(wanted, Reach.BUSY):
                # Of many that wait, few need to look by themselves.
                if not is_spared:
                    others = self._rivals.count()
                is_spared = False
                if others:
                    self._fetcher.leave()
                self._fetcher.leave_slots()
                looking = self._rivals.count_looking(others, before)
                rest_s = self._until_look(pause) * (1 + looking / POLL_SHARED)
                if self._fetcher.is_holding:
                    rest_s = min(rest_s, LOOK_S)  # others cannot look into slots of which it holds something
                heard = self._listen_and_keep_up(rest_s)
                self._fetcher.tend()
                if heard in {Heard.WOKEN, Heard.CLOSING, Heard.ALONE}:
                    return
                pause = min(2 * pause, POLL_MAX_S)
        finally:
            self._rivals.withdraw()
            if not self._buffer.is_starving():
                self._pass_on_what_came()

    def _pass_on_what_came(self) -> None:
        """Wake somebody else, where a wake-up came for consumers that left since."""
        if self._alarm.is_woken and self._rivals.pass_on():
            self._alarm.take_woken()

    def _until_look(self, pause: float) -> float:
        """Return in how many seconds to look though nobody woke this popper.

        Seldom at last where the process has many queues, and this one has no pipe: so nothing comes due.
        """
        if pause >= POLL_MAX_S and self._fetcher.is_empty:
            return self._polls.spread(pause, LOOKS_PER_S, self._queue)
        return max(min(pause, self._fetcher.next_due()), POLL_MIN_S)

    def _listen_and_keep_up(self, seconds: float) -> Heard:
        """Listen; what is held until it is due is kept meanwhile."""
        until = self._clock.now() + seconds
        while self._buffer.is_holding or self._fetcher.is_holding:
            self._leases.keep_up()
            left = until - self._clock.now()
            heard = self._listen(min(left, self._leases.rest_s))
            if heard is not Heard.NOTHING or left <= self._leases.rest_s:
                return heard
        return self._listen(max(0.0, until - self._clock.now()))

    def _listen(self, seconds: float) -> Heard:
        """Listen; while others listen too, hold no claims: whoever is woken must find the pipes free."""
        until = self._clock.now() + seconds  # however many come: a look of its own finds what comes due
        while (heard := self._alarm.listen(max(0.0, until - self._clock.now()))) is Heard.CROWDED:
            self._fetcher.leave()
        return heard
