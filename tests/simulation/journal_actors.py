"""The journal in a simulated history: who closes its segments; and what must hold of its events.

Owns that part. What must not break: a pipe that is gone has one event, and none has two.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

from scheduler import Process, World

from cassq.errors import OutcomeUnknownError, TopicNotFoundError, UnavailableError
from cassq.model.journal import PipeEvent
from cassq.store import Store
from cassq.topics.journal import NAME
from cassq.topics.log_end import LogEnd
from cassq.topics.topic import Topic


class JournalWatch:
    """The journal of one history.

    Args:
        store_of: opens a store for a process.
        is_over: tells whether the history is.
    """

    def __init__(
        self, world: World, store_of: Callable[[Process], Store], is_over: Callable[[], bool]
    ) -> None:
        self._world = world
        self._store_of = store_of
        self._is_over = is_over

    def roll(self, process: Process, _: Topic) -> None:
        """Close its segments again and again, sooner than their ages do."""
        store, dice = self._store_of(process), self._world.dice
        while not self._is_over():
            self._world.sleep(dice.choice((0.1, 0.4)))
            with suppress(UnavailableError, OutcomeUnknownError, TopicNotFoundError):
                context = store.find_topic(NAME)._context
                LogEnd(context, dice.randrange(context.settings.partitions)).close_segment()

    def left(self, store: Store, pipes: Iterable[UUID]) -> str:
        """Tell which pipes have retired, and are not deleted yet."""
        states = {pipe: store.storage.load_pipe(pipe) for pipe in pipes}
        left = [str(pipe) for pipe, state in states.items() if state and state.head.journal]
        return f"retired, and not deleted: {left}" if left else ""

    def judge(self, store: Store, pipes: Iterable[UUID]) -> Iterator[str]:
        """Tell which pipes have no event, or several, or one that tells nothing of a message.

        Args:
            pipes: those that messages came out of.
        """
        gone = [pipe for pipe in pipes if store.storage.load_pipe(pipe) is None]  # others go while it reads
        told = Counter[UUID]()
        for message in self._events(store):
            event = PipeEvent.from_body(message.body)
            told[event.pipe] += 1
            if known := sum(each.last - each.first + 1 for each in event.stretches) - event.messages:
                yield f"the event of {event.pipe} tells of {known:+} messages: {event}"
        for pipe in gone:
            if not told[pipe]:
                yield f"no event: {pipe} is gone"
        for pipe, count in told.items():
            if count > 1:
                yield f"journaled {count} times: {pipe}"

    def _events(self, store: Store) -> Iterator[Any]:
        with suppress(TopicNotFoundError):
            reader = store.find_topic(NAME).reader()
            while found := reader.read_many(1000):
                yield from found
