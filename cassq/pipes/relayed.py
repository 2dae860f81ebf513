"""Pipes that a relay fills with what is published in a topic.

Owns who may end them. Only the pipe that the progress names tells how far a relay came, and relays may be
gone for long. What must not break: nobody but a relay seals the pipe that a progress names; it retires later.

    relay A, epoch 2                progress              pipe P             relay B, epoch 3
    | names P ------------------> | 2, next 100, P |                       |
    | appends 100 to 149 -----------------------------> | 1..50            |
    | (killed)                                          | all handed out   |
    |                             | 3, next 100, P | <-------------------- | takes over
    |                                                   | <- seals P at 50 | its last message has offset 149
    |                             | 4, next 150, Q | <-------------------- | P may retire from here on
"""

from uuid import UUID

from cassq.model.pipe import PipeEntry
from cassq.model.topic import ProgressKey
from cassq.storage.port import Storage

_RELAY = "relay"


def pusher_of(progress: ProgressKey) -> str:
    """Return the pusher of the pipes of a relay: those of one partition come in their order."""
    return f"{_RELAY}/{progress.group}/{progress.partition}"


def is_named(storage: Storage, entry: PipeEntry) -> bool:
    """Tell whether the progress of a relay names a pipe; asks nothing where it is not one of a relay's."""
    kind, *names = entry.pusher.split("/")
    if kind != _RELAY or len(names) != len(ProgressKey._fields):
        return False
    group, partition = names
    try:
        key = ProgressKey(UUID(group), int(partition))
    except ValueError:
        return False
    found = storage.read_progress(*key)
    return found is not None and found.pipe == entry.pipe
