"""Brings what is published in a topic into a queue, for as long as it runs.

Owns the thread. Any number of relays of one subscription may run, in any processes: they share the
partitions as the members of a group do. Refuses to know what a partition's steps are. What must not break: a
partition is worked on only while its claim stands, as far as is known.
"""

import logging
import threading
from datetime import timedelta
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    CassqError,
    GroupNotFoundError,
    OutcomeUnknownError,
    PartitionLostError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.model.arguments import seconds_of
from cassq.model.ids import new_token
from cassq.model.subscription import Subscription
from cassq.popping.arrival_rate import ArrivalRate
from cassq.pushing.popper_waker import PopperWaker
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.deadline import Deadline
from cassq.runtime.fork_guard import process_name
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.periodic_thread import PeriodicStep, PeriodicThread
from cassq.runtime.reentry import Closing
from cassq.topics.bell import POLL_MAX_S, POLL_S, Bell
from cassq.topics.group import Group
from cassq.topics.relayed_partition import RelayedPartition
from cassq.topics.share import Share
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import LOOK_S, filter_of
from cassq.topics.wishes import Wishes

_log = logging.getLogger("cassq.relay")

#: The longest turn: then the share is looked at again.
TURN_S = 0.5


class Relay(ClosedByBlock):
    """A relay of one subscription; made by `Topic.subscribe` and `Topic.relay`.

    Close it, or use it as a context manager, so that another one goes on at once.

    Args:
        target: the queue.
        group: the id of the subscription's group.
    """

    def __init__(
        self,
        context: TopicContext,
        bell: Bell,
        target: QueueContext,
        subscription: Subscription,
        group: UUID,
    ) -> None:
        context.coordinator.may_take()  # where there is none it says so
        self._context = context
        self._target = target
        self._bell = bell
        self._subscription = subscription
        self._name = f"{process_name()}-{str(new_token())[:8]}"
        self._waking = BackgroundThread(f"cassq-relay-{target.queue}-wake")
        self._waker = PopperWaker(target, self._waking)
        self._closing = Closing(context.clock)
        self._changed = threading.Condition(threading.RLock())
        self._has_ended = False
        self._error: CassqError | None = None
        self._is_heard = False
        self._poll_s = POLL_S
        self._passes = 0
        self._pace = ArrivalRate()
        self._share = Share(context, Group(context, target.queue), group, self._name, self)
        self._line = f"relay of topic {context.name} into queue {target.queue}"
        self._thread = PeriodicThread(f"cassq-relay-{target.queue}", context.clock)
        self._step: PeriodicStep | None = None

    def start(self) -> None:
        """Start the thread; called once, when there is somebody who closes it."""
        self._step = self._thread.repeat(self._line, self._run_once, POLL_S)
        self._step.poke()

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._target.queue

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has now."""
        self._check_here()
        return sorted(held.partition for held in self._share.held())

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until it has ended; tell whether it has.

        Args:
            timeout: how long it waits; 0 looks once, None waits for ever.

        Raises:
            OffsetGoneError: retention deleted what comes next: `Topic.reset` the subscription.
            TopicNotFoundError, QueueNotFoundError, GroupNotFoundError: topic, queue or subscription is gone.
            CassqError: why else it ended.
        """
        self._check_here()
        clock = self._context.clock
        until = clock.now() + seconds_of(timeout)
        with self._changed:
            while not self._has_ended and (left := until - clock.now()) > 0:
                clock.wait(self._changed, left)
        if self._error:
            raise self._error
        return self._has_ended

    def close(self) -> None:
        """Seal what it fills, and let others have the partitions; nothing in a forked child."""
        if self._context.guard.is_here:
            self._closing.run(self._close)

    def _close(self) -> None:
        self._bell.unlisten(self._name)
        try:
            if self._step:
                self._step.close()
        except BaseException:  # Ctrl-C: its turn may go on still, so the next relay finds the end
            self._drop_all()
            raise
        self._let_all_go()
        self._waking.shutdown()

    def _check_here(self) -> None:
        self._context.guard.check(f"a relay of topic {self._context.name!r}")

    # What it does

    def _run_once(self) -> None:
        """Look at the share, and bring over what there is."""
        if self._error:
            return
        try:
            self._share.look()
            has_moved = self._turn()
            pause_s = None if has_moved else self._pace.next_look_s(self._context.clock.now())
            if not has_moved and pause_s is None and not self._is_heard:
                self._is_heard = True  # first: it may be heard of within the call
                if not self._bell.listen(self._name, self._hear):
                    self._is_heard = False
                has_moved = self._turn()  # what came before anybody could hear of it
        except (UnavailableError, OutcomeUnknownError) as error:
            log_trouble(_log, error, "%s: it waits: %s", self._line, error)
            self._rest_for(min(2 * self._poll_s, POLL_MAX_S))
        except CassqError as error:
            is_meant = isinstance(error, (TopicNotFoundError, GroupNotFoundError))
            _log.log(logging.INFO if is_meant else logging.ERROR, "%s ends: %s", self._line, error)
            self._error = error
            self._let_all_go()
            if self._step:
                self._step.close()
        else:
            slow_s = min(2 * self._poll_s, POLL_MAX_S) if pause_s is None else pause_s
            self._rest_for(0.0 if has_moved else slow_s)

    def _rest_for(self, seconds: float) -> None:
        self._poll_s = max(seconds, POLL_S / 2)
        if self._step:
            self._step.seconds = seconds

    def _hear(self) -> None:
        self._is_heard = False
        self.hear_of_share()

    def _turn(self) -> bool:
        """Step through the partitions for a while, as long as there is something in any.

        Raises: UnavailableError, OutcomeUnknownError: of some partitions; the others had their steps.
        """
        has_moved = False
        until = self._context.clock.now() + TURN_S
        while self._pass(until):
            has_moved = True
            if self._context.clock.now() >= until or self._closing.has_begun:
                break
        return has_moved

    def _pass(self, until: float) -> bool:
        """Take one step in each partition, from another one on each time; tell whether there may be more."""
        held = self._share.held()
        self._passes += 1
        begin = self._passes % len(held) if held else 0
        has_moved, trouble = False, None
        for each in (*held[begin:], *held[:begin]):
            now = self._context.clock.now()
            if now >= until:
                has_moved = True  # the next turn begins elsewhere
                break
            try:
                with Deadline(now + LOOK_S):
                    has_moved = self._step_in(each) or has_moved
            except (UnavailableError, OutcomeUnknownError) as error:
                trouble = trouble or error
        if trouble:
            raise trouble
        return has_moved

    def _step_in(self, held: RelayedPartition) -> bool:
        try:
            if not held.is_lost and self._share.has(held):
                return held.step()
        except PartitionLostError as error:
            _log.info("%s", error)
        self._share.drop(held)
        return False

    def _note_pushed(self, count: int) -> None:
        self._pace.note_found(count, self._context.clock.now())
        self._waker.note_pushed(count, "")

    def make_held(self, group: UUID) -> RelayedPartition:
        """Return what holds a partition of the group, once it is taken over."""
        wanted = self._subscription
        return RelayedPartition(
            *(self._context, self._target, group, self._name),
            wishes=Wishes(filter_of(wanted.types), skips_gone=wanted.on_gone == "oldest"),
            on_pushed=self._note_pushed,
        )

    def leave(self, held: RelayedPartition) -> None:
        """Let another relay have a partition."""
        held.is_leaving = True
        self._let_go(held)

    def hear_of_share(self, *, is_urgent: bool = False) -> None:
        """Hear that there are other partitions, or that the share is to be looked at soon."""
        del is_urgent
        if self._step:
            self._step.poke()

    def _let_all_go(self) -> None:
        for held in self._share.held():
            self._let_go(held)
        self._drop_all()

    def _drop_all(self) -> None:
        for held in self._share.held():
            self._share.drop(held)
        self._share.close()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _let_go(self, held: RelayedPartition) -> None:
        try:
            held.leave()
        except CassqError as error:
            log_trouble(_log, error, "%s: another relay finds out how far it came: %s", self._line, error)
        self._share.drop(held)

    def __repr__(self) -> str:
        return f"<Relay {self._name} of {self._share}>"
