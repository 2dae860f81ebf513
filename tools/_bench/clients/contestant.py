"""What is compared: a queue with its server, and what one process of it does.

Owns the two protocols that every line of a comparison keeps: cassq, the raw driver and the rivals alike.
Refuses to measure; `compare.py` does that. The rule: a method returns when everything it did is confirmed,
and not before, so that the time of a call is the time of what is safe.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Client(Protocol):
    """What one process does with a queue; every method returns when everything it did is confirmed."""

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Push `bodies` in calls of `batch`, each confirmed.

        Several calls may be under way at once where the client library offers it; a comment there says so.
        """

    def pop_batches(self, count: int, batch: int) -> int:
        """Pop and acknowledge `count` messages, `batch` at a time, and return how many there were.

        Returns less than `count` only when nothing came for several seconds.
        """

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Push one by one, each confirmed before the next is sent."""

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Pop messages as they come and tell `seen` each body at once; acknowledge them in small groups.

        Looks at `until` at least every half second, also while nothing comes, and returns when it is true.
        """

    def close(self) -> None:
        """Let go of the connection; what is on its way is finished first."""


class Contestant(Protocol):
    """A queue and the server behind it, as one line of a comparison."""

    name: str
    """Unique, with the settings that tell it from its like: "Redis Streams, fsync always"."""
    durability: str
    """What a confirmed push survives, in one clause."""

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client, by the name of each; asked after `start`."""

    def start(self, folder: Path) -> None:
        """Bring the server up, empty, in `folder`, on loopback ports of its choice; wait for its answer."""

    def stop(self) -> None:
        """End the server's processes, each by its id; harmless when it never started."""

    def opener(self) -> Callable[[], Client]:
        """Return what makes a client: a picklable callable, called in the process that is to use it."""
