"""The way to a topic that exists, and what a place in it means there.

Owns the words where there is no topic of a name, or where a place leaves the partition open.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click

import cassq
from cassq.cli.session import Session
from cassq.topics.topic_reader import Start


@contextmanager
def opened_topic(session: Session, name: str) -> Iterator[cassq.Topic]:
    """Open a topic that exists, and close its store after the block."""
    with session.store() as store:
        yield find_topic(store, name)


def find_topic(store: cassq.Store, name: str) -> cassq.Topic:
    """Open a topic that exists; where there is none, say how to make it."""
    try:
        return store.find_topic(name)
    except cassq.TopicNotFoundError as error:
        raise cassq.TopicNotFoundError(f"{error}; `cassq topic create {name}` makes it") from error


def partition_in(topic: cassq.Topic, given: int | None) -> int:
    """Return a partition; where none is named, the only one.

    Raises: click.UsageError: the topic has several.
    """
    if given is None and topic.partitions > 1:
        raise click.UsageError(
            f"topic {topic.name!r} has {topic.partitions} partitions: name one, as --partition 0"
        )
    return given or 0


def start_in(topic: cassq.Topic, given: Start | int) -> Start:
    """Return where to begin; an offset alone is one of the only partition.

    Raises: click.UsageError: the topic has several.
    """
    if not isinstance(given, int):
        return given
    if topic.partitions > 1:
        raise click.UsageError(
            f"topic {topic.name!r} has {topic.partitions} partitions, in each of which {given} is another "
            f"message: write PARTITION:OFFSET, as 0:{given}; several as 0:{given},1:{given}"
        )
    return {0: given}
