"""The JSON of requests and answers, and the words of queries: types that OpenAPI is made of, too.

Owns names, units and bounds; where the library has a bound, it is that one. What must not break: a field of
an answer that has no value is left out, and is never null.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cassq.model.settings import QueueSettings
from cassq.model.stored_settings import StoredSettings
from cassq.model.topic_settings import TopicSettings
from cassq.observing.inspection import MessageState

#: One answer has so many messages, or names, at most.
LIMIT_MAX = 1000

Count = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=5 * 365 * 86_400)]
Offset = Annotated[int, Meta(ge=1, le=2**63 - 2)]
Partition = Annotated[int, Meta(ge=0, le=1023)]


def _form_of_settings(name: str, kind: type[StoredSettings], *, is_whole: bool = False) -> type[Struct]:
    """Return the type of settings, under the names and units that `--json` of the command line has."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for each in kind.known():
        value: Any
        stored, bounds = each.name, each.metadata
        if choices := bounds.get("choices"):
            value = Literal[choices]
        elif isinstance(each.default, timedelta):
            stored = f"{each.name}_ms"
            milliseconds = timedelta(milliseconds=1)
            value = Annotated[int, Meta(ge=bounds["low"] // milliseconds, le=bounds["high"] // milliseconds)]
        else:
            value = Annotated[int, Meta(ge=bounds["low"], le=bounds["high"])]
        fields.append((stored, value) if is_whole else (stored, value | UnsetType, UNSET))
    return msgspec.defstruct(name, fields, forbid_unknown_fields=not is_whole, module=__name__)


class Answer(Struct, omit_defaults=True):
    """What is answered: what is None is left out, and nothing else has a default."""


QueueChanges = _form_of_settings("QueueChanges", QueueSettings)
TopicChanges = _form_of_settings("TopicChanges", TopicSettings)


def to_options(given: Struct) -> dict[str, Any]:
    """Return settings as the library takes them."""
    named: Mapping[str, Any] = msgspec.structs.asdict(given)
    return {
        name.removesuffix("_ms"): timedelta(milliseconds=value) if name.endswith("_ms") else value
        for name, value in named.items()
        if value is not UNSET
    }


class Settings(Answer):
    """A queue, or a topic, and its settings."""

    name: str
    settings: dict[str, int | str]


class Names(Answer):
    """Names, in their order.

    Attributes:
        next: give it as `after` for those that follow, if there are any.
    """

    names: list[str]
    next: str | None = None


class NamesQuery(Struct, forbid_unknown_fields=True):
    """Which names."""

    after: str = ""
    limit: Count = LIMIT_MAX


class Limit(Struct, forbid_unknown_fields=True):
    """How many."""

    limit: Count = 10


class Day(Struct, forbid_unknown_fields=True):
    """A day, in UTC; today where none is named."""

    day: date | None = None


class Confirmation(Struct, forbid_unknown_fields=True):
    """The name once more, so that nothing is purged by a slip."""

    confirm: str


class Done(Answer):
    """What was done.

    Attributes:
        count: of how many messages, where that is known.
    """

    name: str
    state: str
    count: int | None = None


class PushQuery(Struct, forbid_unknown_fields=True):
    """What each message of a request is pushed with."""

    ttl_s: Seconds | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 0
    type: str | None = None
    delay_s: Seconds | None = None
    due: Annotated[datetime, Meta(tz=True)] | None = None
    key: str | None = None
    ids: bool = False


class Pushed(Answer):
    """One message that is durable, or with NDJSON how many, and the first and the last of them."""

    pushed: int
    id: str | None = None
    first_id: str | None = None
    last_id: str | None = None
    ids: list[str] | None = None


class Line(Struct, forbid_unknown_fields=True):
    """One message of a batch: its body as a text, or in base64."""

    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    headers: dict[str, str] = {}


class Message(Answer):
    """A message that waits.

    Attributes:
        encoding: of the body: "utf-8", or "base64".
    """

    id: str
    body: str
    encoding: str
    headers: dict[str, str]
    pushed_at: datetime
    priority: int
    type: str | None = None
    key: str | None = None


class Messages(Answer):
    """Messages that wait."""

    messages: list[Message]


class MessageStatus(Answer):
    """What became of a message; see `cassq.MessageStatus`."""

    id: str
    state: MessageState
    reason: str
    attempt: int | None = None
    due: datetime | None = None
    waits_for: str | None = None


class CancelQuery(Struct, forbid_unknown_fields=True):
    """Whether a message is meant, too, that a consumer has."""

    running: bool = False


class Cancelled(Answer):
    """Whether a message was cancelled: not where somebody has it, or where it has ended otherwise."""

    id: str
    is_cancelled: bool


class PublishQuery(Struct, forbid_unknown_fields=True):
    """Where messages are published, and as what."""

    key: str | None = None
    type: str | None = None
    partition: Partition | None = None
    writer: str | None = None
    number: Annotated[int, Meta(ge=0, le=2**63 - 2)] | None = None


class Published(Answer):
    """One message's place, or with NDJSON how many were published."""

    is_repeat: bool
    published: int
    partition: int | None = None
    offset: int | None = None


class TopicMessage(Answer):
    """A message of a topic."""

    partition: int
    offset: int
    body: str
    encoding: str
    headers: dict[str, str]
    published_at: datetime


class ReadQuery(Struct, forbid_unknown_fields=True):
    """Which messages of a partition."""

    partition: Partition = 0
    since: Offset | None = None
    limit: Count = 100
    order: Literal["ascending", "descending"] = "ascending"


class Page(Answer):
    """Messages of one partition.

    Attributes:
        next: give it as `since` for those that follow in this order, if there are any by now.
        oldest: the oldest offset that is left.
        latest: the offset that the next message gets.
    """

    partition: int
    messages: list[TopicMessage]
    oldest: int
    latest: int
    next: int | None = None


class FollowQuery(Struct, forbid_unknown_fields=True):
    """What to follow.

    Attributes:
        start: earliest, latest, a time with its zone, or PARTITION:OFFSET[,…] as the id of an event.
        types: shell patterns of the header `type`, with commas between them.
    """

    start: str = "latest"
    types: str | None = None


class PartitionFigures(Answer):
    """Figures of one partition; see `cassq.PartitionStats`."""

    partition: int
    oldest: int
    latest: int
    segments: int
    size: int


class TopicFigures(Answer):
    """Figures of a topic."""

    name: str
    partitions: list[PartitionFigures]


class Health(Answer):
    """How the process is."""

    status: str
