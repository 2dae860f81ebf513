"""What `cassq doctor` says of the topics in a store: whether their groups are consumed.

Owns the judgement of what is stuck. What must not break: what is wrong with many topics is said once.
"""

from collections.abc import Iterator

import cassq
from cassq.cli.doctor.finding import Finding, Level

#: So many groups, or topics, of one trouble are named.
NAMED_MAX = 5


def examine(store: cassq.Store) -> Iterator[Finding]:
    """Yield what is to be said of the topics, one finding for each trouble; nothing without topics."""
    names = store.topics()
    unread: list[str] = []
    broken: list[str] = []
    for name in names:
        try:
            topic = store.find_topic(name)
            unread += [f"{name}/{group}" for group in topic.groups() if _is_unread(store, topic, group)]
        except (cassq.TopicNotFoundError, cassq.GroupNotFoundError):
            continue  # deleted meanwhile
        except cassq.CassqError as error:
            broken.append(f"{name}: {error}")
    for trouble in broken[:NAMED_MAX]:
        yield Finding("topics", Level.FAIL, f"topic {trouble}")
    if unread:
        told = f"{_name(unread)}: messages wait, and no member has a partition"
        yield Finding(
            *("topics", Level.WARN, told),
            "start a consumer, or `cassq topic relay`; or end it: `cassq topic delete-group`, `unsubscribe`",
        )
    if names and not (unread or broken):
        yield Finding("topics", Level.OK, f"{len(names)} topics, each group with messages has members")


def _is_unread(store: cassq.Store, topic: cassq.Topic, group: str) -> bool:
    behind = sum(each.lag for each in topic.lag(group))
    return behind > 0 and not store.coordinator.holders(f"{topic.name}~{group}")


def _name(found: list[str]) -> str:
    rest = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return f"{', '.join(found[:NAMED_MAX])}{rest}"
