"""Whether each consumer gets messages of the types that it asked for, as they were pushed.

Owns which type a message has, and for which types a popper is. Pure but for what it objects to.
"""

import random
from collections.abc import Sequence
from zlib import crc32

from plan import Plan

from cassq.popping.delivery import Delivery


class TypeWatch:
    """Draws types, and objects to a message in the wrong hands.

    Args:
        broken: hears of it.
    """

    def __init__(self, plan: Plan, broken: list[str]) -> None:
        self._names: list[str | None] = [None, *(f"type-{number}" for number in range(1, plan.types))]
        self._broken = broken
        self._pushed: dict[str, str | None] = {}

    def type_of(self, bodies: Sequence[str]) -> str | None:
        """Return the type of what is pushed together; and note it."""
        name = self._names[crc32(f"type {bodies[0]}".encode()) % len(self._names)]
        self._pushed.update(dict.fromkeys(bodies, name))
        return name

    def draw(self, dice: random.Random) -> frozenset[str] | None:
        """Draw for which types a popper is; None for all."""
        named = [name for name in self._names if name]
        if not named or dice.random() < 0.4:
            return None
        return frozenset(dice.sample(named, dice.randint(1, len(named))))

    def check(self, consumer: str, types: frozenset[str] | None, delivery: Delivery) -> None:
        """Object where a message has another type than it was pushed with, or than its consumer asked for."""
        body = delivery.body.decode()
        pushed = self._pushed.get(body)
        if delivery.type != pushed:
            self._broken.append(f"type: {body} was pushed as {pushed} and came as {delivery.type}")
        if types is not None and delivery.type not in types:
            self._broken.append(f"type: {consumer} asked for {sorted(types)} and got {body}, {delivery.type}")
