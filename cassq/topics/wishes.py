"""What who works on a partition wants to be handed of it."""

from collections.abc import Callable
from typing import NamedTuple

from cassq.model.topic import TopicMessage


class Wishes(NamedTuple):
    """What a member of a group wants, or a relay.

    Attributes:
        wants: tells whether it is to be handed a message.
        is_each: whether the end of a message waits for the commit.
        skips_gone: whether to go on at the oldest offset where the next one was deleted.
    """

    wants: Callable[[TopicMessage], bool]
    is_each: bool = False
    skips_gone: bool = False
