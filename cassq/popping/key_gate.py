"""Which of the messages in hand may be handed out where each has a key: one of a key at a time.

Owns what stands in a message's way: another one of its key that somebody works on and, where keys are in
order, an earlier one of its source. Pure: it goes by rows that were read or acknowledged. What must not
break: a clock frees no key, and what is let out keeps its key until that has ended.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from cassq.model.ids import Source


class Place(NamedTuple):
    """Where a message is.

    Attributes:
        pipe: its pipe.
        seq: its number there.
    """

    pipe: UUID
    seq: int


class Standing(Enum):
    """What is known of a message that was handed out and has not ended.

    Attributes:
        HELD: leased to this process, and with no consumer.
        OUT: with a consumer of this process, or in its buffer.
        FOREIGN: leased to somebody else.
        RESTING: it came back, and nobody has it.
    """

    HELD = "held"
    OUT = "out"
    FOREIGN = "foreign"
    RESTING = "resting"


@dataclass(frozen=True, slots=True)
class PipeKeys:
    """What is known of one pipe.

    Attributes:
        source: of the pipe.
        standings: of each message that has not ended, in order.
        keys: of each of these.
    """

    source: Source
    pipe: UUID
    standings: Mapping[int, Standing]
    keys: Mapping[int, str]


@dataclass(slots=True)
class Judgement:
    """What becomes of the messages that are held.

    Attributes:
        free: they may be handed out now, the first one first.
        hopeless: they wait for what only others can end, or bring back.
    """

    free: list[Place] = field(default_factory=list)
    hopeless: list[Place] = field(default_factory=list)


def judge(pipes: Iterable[PipeKeys], *, is_ordered: bool) -> Judgement:
    """Judge all messages of a slot that are held.

    Args:
        pipes: all pipes of the slot, of each source the oldest first.
        is_ordered: whether a message waits for the earlier ones of its key and source.
    """
    known = list(pipes)
    foreign = set(_keys_of(known, Standing.FOREIGN))
    busy = foreign | set(_keys_of(known, Standing.OUT))
    earlier: set[tuple[Source, str]] = set()
    judged = Judgement()
    for each in known:
        for seq, standing in each.standings.items():
            key = each.keys[seq]
            if standing is Standing.HELD:
                if key in foreign:
                    judged.hopeless.append(Place(each.pipe, seq))
                elif key not in busy and (each.source, key) not in earlier:
                    judged.free.append(Place(each.pipe, seq))
                    busy.add(key)
            if is_ordered:
                earlier.add((each.source, key))
    return judged


def _keys_of(pipes: Iterable[PipeKeys], wanted: Standing) -> Iterator[str]:
    for each in pipes:
        for seq, standing in each.standings.items():
            if standing is wanted:
                yield each.keys[seq]
