"""The line of hungry poppers in ZooKeeper: who waits, who waited longest, who is told what.

Owns the nodes of this process below `hungry/<queue>`; the lines as they were last told are `SeenLines`'s.
Refuses to know claims. The rule that must not break: an announcement ends when its node goes, and only then
is `wake` called; being told that others are hungry too (`on_crowded`) ends nothing, so that two idle poppers
never wake each other in turn.

    popper A                ZooKeeper               waker                popper B (waits less long)
    | create A-0000000001 ->|                         |                     |
    | watch it ------------>|<- delete A-0000000001 --|                     |
    |<---- gone: wake() ----|-- done: one was woken ->|                     | (hears nothing)

How many are hungry is answered to a pusher from a watch on the queue's children, so that no push waits for
an answer; a popper asks, and remembers the answer for a moment. Only pushers keep the watch, and poppers that
are alone in the line. If every seat of a long line heard of each change in it, they would do little else.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType

from cassq.coordination.port import takes, takes_all_of
from cassq.coordination.zookeeper.announcement import Announcement, number_of, popper_of
from cassq.coordination.zookeeper.seen_lines import SeenLines
from cassq.coordination.zookeeper.session import ZooKeeperSession
from cassq.errors import AccessDeniedError, ClosedError, CoordinationUnavailableError
from cassq.runtime.clock import Clock

_Key = tuple[str, str]


class HungryLine:
    """The announcements of this process, and who is woken among all that are hungry."""

    def __init__(self, session: ZooKeeperSession, root: str, clock: Clock) -> None:
        self._session = session
        self._lock = threading.RLock()
        self._lines = SeenLines(session, root, clock, self._lock, self)
        self._announced: dict[_Key, Announcement] = {}
        self._stranded: dict[_Key, Callable[[], None]] = {}
        self._doubtful: set[_Key] = set()

    def announce(
        self, queue: str, popper: str, wake: Callable[[], None], on_crowded: Callable[[], None] | None
    ) -> int:
        """Put a popper at the end of the line, or change whom to call where it stands already.

        Returns: how many others stand before it. It is asked behind the announcement, so of those who come at
        the same moment one hears that nobody does.
        """
        key = (queue, quote(popper, safe=""))
        with self._lock:
            known = self._announced.get(key)
            if known is not None:
                known.wake, known.on_crowded = wake, on_crowded
                return self._count_before(key, known)
        epoch = self._session.require()
        with self._lock:
            self._stranded.pop(key, None)
        announcement = Announcement(self._create(key), wake, on_crowded)
        with self._lock:
            if epoch != self._session.epoch:
                raise CoordinationUnavailableError("the ZooKeeper session ended while a popper was announced")
            stale = self._announced.get(key)
            self._announced[key] = announcement
        if stale is not None:
            self._delete(key, stale.node)
        self._watch_own(key, announcement)
        try:
            self._lines.ask(queue)
        except CoordinationUnavailableError:
            return 0
        finally:
            if not announcement.is_crowded:
                self._lines.watch(queue)
        return self._count_before(key, announcement)

    def withdraw(self, queue: str, popper: str) -> None:
        """Take a popper out of the line, without waiting for it to happen."""
        key = (queue, quote(popper, safe=""))
        with self._lock:
            self._stranded.pop(key, None)
            announcement = self._announced.pop(key, None)
            if announcement is None:
                return
            self._lines.drop(queue, announcement.node)
        self._delete(key, announcement.node)

    def count(self, queue: str, besides: str, types: int) -> int:
        """Count who stood in line for some types when ZooKeeper last told; none while it cannot tell.

        A popper has the time to ask, now and then; a pusher (`besides` is empty) has not.
        """
        if not self._session.is_trusted:
            return 0
        if not besides:
            self._lines.note_interest(queue)
        elif not self._lines.is_fresh(queue):
            with suppress(CoordinationUnavailableError, AccessDeniedError, ClosedError):
                self._lines.ask(queue)
                if self._lines.is_of_interest(queue):
                    self._lines.watch(queue)  # alone again: the next one to come is to be told of
        return len(_candidates(self._lines.of(queue), besides, types))

    def wake(self, queue: str, count: int, besides: str, types: int) -> int:
        """Delete the nodes of those who waited longest; return how many of them were still there."""
        if count <= 0:
            return 0
        with suppress(CoordinationUnavailableError, AccessDeniedError, ClosedError):
            first = _candidates(self._lines.of(queue), besides, types)[:count]
            woken = self._delete_first(queue, first, count)
            if first and woken == len(first):
                return woken
            # Others woke them, and somebody may have come a moment ago; better one question more than a
            # wake-up lost.
            line = _candidates(self._lines.read(queue), besides, types)
            return woken + self._delete_first(queue, line, count - woken)
        return 0

    def on_lost(self) -> None:
        """Forget every announcement; their poppers are woken when a session is there again."""
        with self._lock:
            self._stranded.update({key: each.wake for key, each in self._announced.items()})
            self._announced.clear()
            self._doubtful.clear()
            self._lines.clear()

    def on_alive(self, *, is_back: bool) -> None:
        """Set the watches again after an interruption, and remove what was created without a reply."""
        with self._lock:
            stranded = [self._stranded.pop(key) for key in list(self._stranded)]
            announced = list(self._announced.items()) if is_back else []
            doubtful = list(self._doubtful)
        if is_back:
            self._lines.look_again()
        for key, announcement in announced:
            self._watch_own(key, announcement)
        for key in doubtful:
            self._remove_doubtful(key)
        for wake in stranded:
            self._session.call_soon(wake)

    def _create(self, key: _Key) -> str:
        queue, popper = key
        for is_again in (False, True):
            self._session.ensure(self._lines.path(queue), is_again=is_again)
            reply = self._session.client.create_async(
                self._lines.path(queue, f"{popper}-"), ephemeral=True, sequence=True
            )
            try:
                return str(self._session.answer(reply)).rpartition("/")[2]
            except NoNodeError:
                continue
            except CoordinationUnavailableError:
                # Created, perhaps, under a number that only the lost reply told.
                with self._lock:
                    self._doubtful.add(key)
                raise
        raise CoordinationUnavailableError(
            f"{self._lines.path(queue)} vanishes from ZooKeeper again and again"
        )

    def _delete_first(self, queue: str, line: list[str], count: int) -> int:
        woken = 0
        while line and woken < count:
            now, line = line[: count - woken], line[count - woken :]
            # Out of the line at once: others of this process shall not wake the same.
            self._lines.drop(queue, *now)
            replies = [self._session.client.delete_async(self._lines.path(queue, node)) for node in now]
            try:
                for reply in replies:
                    with suppress(NoNodeError):
                        self._session.answer(reply)
                        woken += 1
            except CoordinationUnavailableError:
                self._lines.look_soon(queue)  # some may stand in line all the same
                raise
        return woken

    def _delete(self, key: _Key, node: str) -> None:
        if not self._session.is_connected:
            with self._lock:
                self._doubtful.add(key)
            return
        reply = self._session.client.delete_async(self._lines.path(key[0], node))
        reply.rawlink(partial(self._on_deleted, key, self._session.epoch))

    def _on_deleted(self, key: _Key, epoch: int, reply: Any) -> None:  # noqa: ANN401 (kazoo has no types)
        if reply.exception is None or isinstance(reply.exception, NoNodeError):
            return
        with self._lock:
            if epoch == self._session.epoch:
                self._doubtful.add(key)

    def _remove_doubtful(self, key: _Key) -> None:
        queue, popper = key
        nodes = self._lines.read(queue)
        with self._lock:
            self._doubtful.discard(key)
            known = self._announced.get(key)
        for node in nodes:
            if popper_of(node) == popper and (known is None or known.node != node):
                self._delete(key, node)

    def is_alone(self, queue: str) -> bool:
        """Tell whether a popper of this process wants to hear of the next one to come; the lock is held."""
        return any(
            key[0] == queue and each.on_crowded is not None and not each.is_crowded
            for key, each in self._announced.items()
        )

    def on_line_seen(self, queue: str) -> None:
        """Tell the poppers of this process that are in a line whether others are, too."""
        crowded = []
        with self._lock:
            line = self._lines.of(queue)
            for (of_queue, popper), announcement in self._announced.items():
                if of_queue != queue:
                    continue
                has_others = any(popper_of(node) != popper for node in line)
                if has_others and not announcement.is_crowded and announcement.on_crowded is not None:
                    crowded.append(announcement.on_crowded)
                announcement.is_crowded = has_others
        for call in crowded:
            self._session.call_soon(call)

    def _watch_own(self, key: _Key, announcement: Announcement) -> None:
        reply = self._session.client.exists_async(
            self._lines.path(key[0], announcement.node), watch=partial(self._on_own_change, key, announcement)
        )
        reply.rawlink(partial(self._on_own_seen, key, announcement))

    def _on_own_change(self, key: _Key, announcement: Announcement, event: Any) -> None:  # noqa: ANN401
        if event.type == EventType.DELETED:
            self._end(key, announcement)

    def _on_own_seen(self, key: _Key, announcement: Announcement, reply: Any) -> None:  # noqa: ANN401
        if reply.exception is None and reply.value is None:
            self._end(key, announcement)

    def _end(self, key: _Key, announcement: Announcement) -> None:
        with self._lock:
            if self._announced.get(key) is not announcement:
                return
            del self._announced[key]
            self._lines.drop(key[0], announcement.node)
            wake = announcement.wake
        self._session.call_soon(wake)

    def _count_before(self, key: _Key, announcement: Announcement) -> int:
        queue, popper = key
        line = self._lines.of(queue)
        return sum(
            number_of(node) < number_of(announcement.node)
            and popper_of(node) != popper
            and takes_all_of(popper_of(node), popper)
            for node in line
        )


def _candidates(line: tuple[str, ...], besides: str, types: int) -> list[str]:
    besides = quote(besides, safe="")
    return [node for node in line if popper_of(node) != besides and takes(popper_of(node), types)]
