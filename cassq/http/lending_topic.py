"""A topic of whose groups clients have leases: the lessor of each group in this process.

Owns when a lessor is opened and closed. What must not break: one whose clients have something stays open, or
others would get the same.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import cassq
from cassq import aio
from cassq.aio.twins import call_in_thread
from cassq.errors import CassqError, ClosedError, GroupNotFoundError, TopicNotFoundError


class _Entry:
    """The lessor of one group.

    Attributes:
        clients: how many use it now.
    """

    def __init__(self, lessor: cassq.GroupLessor) -> None:
        self.lessor = lessor
        self.clients = 0
        self.used_at = 0.0

    def is_idle(self, since: float) -> bool:
        return not self.clients and self.used_at <= since and not self.lessor.is_busy


class LendingTopic(aio.Topic):
    """A topic, and the lessors of those groups that clients read by."""

    def __init__(self, sync: cassq.Topic) -> None:
        super().__init__(sync)
        self._entries: dict[str, _Entry] = {}
        self._opening = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether it has to stay open: clients have something."""
        return any(each.lessor.is_busy for each in self._entries.values())

    @asynccontextmanager
    async def lending(self, group: str) -> AsyncIterator[cassq.GroupLessor]:
        """Open the lessor of a group, if need be, and keep it for the block.

        Raises: as `cassq.Topic.lessor`.
        """
        async with self._opening:
            entry = self._entries.get(group)
            if entry is None or entry.lessor.is_over:
                made = await call_in_thread(self.sync.lessor, group)
                entry = self._entries[group] = _Entry(made)
        entry.clients += 1
        try:
            yield entry.lessor
        except (TopicNotFoundError, GroupNotFoundError, ClosedError):
            await self._close(group, entry)
            raise
        finally:
            entry.clients -= 1
            entry.used_at = asyncio.get_running_loop().time()

    async def forget(self, group: str) -> None:
        """Close the lessor of a group, which was deleted."""
        if entry := self._entries.get(group):
            await self._close(group, entry)

    async def close_idle(self, idle_s: float) -> None:
        """Close the lessors that no client used lately, nor has something of."""
        since = asyncio.get_running_loop().time() - idle_s
        for group, entry in list(self._entries.items()):
            if entry.is_idle(since):
                await self._close(group, entry)

    async def _close(self, group: str, entry: _Entry) -> None:
        if self._entries.get(group) is entry:
            del self._entries[group]
        with suppress(CassqError):
            await call_in_thread(entry.lessor.close)
