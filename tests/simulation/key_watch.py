"""Whether messages of one key are worked on one at a time, and in order.

Owns which key a message has, who works on it and until when, and what has ended. Pure but for what it objects
to. What must not break: nothing is excused but what P2 excuses: who works on after its lease, and who has
begun to end a message.
"""

from collections.abc import Sequence
from zlib import crc32

from plan import Plan
from scheduler import World

from cassq.popping.delivery import Delivery


class KeyWatch:
    """Gives messages keys, and objects to two of one key in consumers' hands, and to one out of order.

    Args:
        broken: hears of it.
    """

    def __init__(self, plan: Plan, world: World, broken: list[str]) -> None:
        self._plan = plan
        self._world = world
        self._broken = broken
        self._keys: dict[str, str] = {}
        #: Of each source, what was pushed, in order: by pusher, key, priority and type.
        self._sources: dict[str, tuple[str, str, int, str | None]] = {}
        self._pushed: dict[tuple[str, str, int, str | None], list[str]] = {}
        self._pushed_at: dict[str, float] = {}
        self._stored: set[str] = set()
        self._ended: set[str] = set()
        #: Who has what, and until when.
        self._live: dict[str, dict[str, tuple[str, float]]] = {}

    def key_of(self, pusher: str, bodies: Sequence[str], priority: int, kind: str | None) -> str | None:
        """Return the key of what is pushed together; None where it has none."""
        if not self._plan.keys:
            return None
        number = crc32(f"key {bodies[0]}".encode()) % (self._plan.keys + 1)
        if not number:
            return None
        key = f"key-{number}"
        source = (pusher, key, priority, kind)
        self._keys.update(dict.fromkeys(bodies, key))
        self._pushed_at.update(dict.fromkeys(bodies, self._world.now))
        self._sources.update(dict.fromkeys(bodies, source))
        self._pushed.setdefault(source, []).extend(bodies)
        return key

    def note_told(self, bodies: Sequence[str]) -> None:
        """Hear that a push was acknowledged."""
        self._stored.update(bodies)

    def check(self, consumer: str, delivery: Delivery, until: float) -> None:
        """Object where another message of the key is worked on, or an earlier one has not ended.

        Args:
            until: when the lease ends for the consumer.
        """
        body = delivery.body.decode()
        key = self._keys.get(body)
        if delivery.key != key:
            self._broken.append(f"key: {body} was pushed with {key} and came with {delivery.key}")
        if key is None:
            return
        live = self._live.setdefault(key, {})
        for other, (who, ends_at) in live.items():
            if other != body and ends_at > self._world.now:
                self._broken.append(
                    f"key: {consumer} got {body} at {self._world.now:.4f} while {who} has {other} until "
                    f"{ends_at:.4f}, both with {key}"
                )
        live[body] = consumer, until
        self._stored.add(body)
        if self._plan.key_order == "ordered":
            self._check_order(consumer, body)

    def note_extended(self, body: str, until: float) -> None:
        """Hear that a lease has begun anew."""
        live = self._live.get(self._keys.get(body, ""), {})
        if body in live:
            live[body] = live[body][0], until

    def note_ending(self, body: str, *, is_last: bool) -> None:
        """Hear that somebody begins to end a message.

        Args:
            is_last: for good, by a commit or as a dead letter.
        """
        self._live.get(self._keys.get(body, ""), {}).pop(body, None)
        if is_last:
            self._ended.add(body)

    def note_purging(self) -> None:
        """Hear that a purge begins, or is through: whatever was pushed may have ended."""
        self._ended.update(self._keys)

    def in_order(self, told: Sequence[str]) -> list[str]:
        """Return what was told out of order, without messages that have keys: `check` judges these."""
        return [words for words in told if words.partition(":")[0] not in self._keys]

    def _check_order(self, consumer: str, body: str) -> None:
        pushed = self._pushed[self._sources[body]]
        for earlier in pushed[: pushed.index(body)]:
            if earlier in self._stored - self._ended and not self._may_have_expired(earlier):
                self._broken.append(f"key: {consumer} got {body} before {earlier} had ended")

    def _may_have_expired(self, body: str) -> bool:
        ttl_s = self._plan.ttl_s
        return bool(ttl_s) and self._world.now > self._pushed_at[body] + ttl_s
