"""The options of `format("cassq")`: what they mean, what they may be, and clear words where they are wrong.

Options come as text, in any case; nothing that is not known here is passed over.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from cassq.bulk.writers import ONCE
from cassq.errors import InvalidNameError, InvalidOptionError
from cassq.limits import SEQ_MAX
from cassq.model.arguments import check_between, tell_duration
from cassq.model.ids import check_name, shorten
from cassq.urls import check_text

#: All queues of the store.
ALL_QUEUES = "*"

#: A partition is a stretch of pipes that holds about so many messages at most.
PARTITION_MESSAGES = 100_000

#: What one micro-batch takes at most, and how long a reader keeps it before others may have it.
MESSAGES_PER_TRIGGER = 100_000
READER_LEASE = timedelta(minutes=10)
READER_LEASE_MIN = timedelta(seconds=10)
READER_LEASE_MAX = timedelta(hours=12)

#: What Spark itself adds to the options of a stream.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class Target:
    """Which queue of which store.

    Attributes:
        url: as for `cassq.connect`; from the option, or from CASSQ_URL on the driver.
        queue: its name; "*" stands for all where messages are read.
    """

    url: str
    queue: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of `spark.read`.

    Attributes:
        partition_messages: about how many messages one partition has at most.
        is_pushing: evaluate filters on state, pipe and queue at the source; only together with the setting
            spark.sql.python.filterPushdown.enabled.
    """

    target: Target
    partition_messages: int
    is_pushing: bool


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `df.write` and `df.writeStream`.

    Attributes:
        writer, batch: name a batch write, so that the same batch written again is not published twice.
    """

    target: Target
    writer: str | None
    batch: int | None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `spark.readStream`.

    Attributes:
        reader: the stable name under which messages are leased; one running stream for each name.
        messages_per_trigger: how many messages one micro-batch takes at most.
        lease: how long a batch stays the reader's after its last sign of life.
        is_skipping: leave out, on a restart, what others took because the lease had run out.
    """

    target: Target
    reader: str
    messages_per_trigger: int
    lease: timedelta
    is_skipping: bool


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Options of `spark.read` and `spark.readStream` of a topic.

    Attributes:
        start, end: places in the topic: earliest, latest, a time, or JSON; a stream has no end.
        partition_messages: how many messages one partition has at most.
        messages_per_trigger: how many messages one micro-batch takes at most.
        skips_gone: leave out what retention deleted, instead of an error.
    """

    url: str
    topic: str
    start: str
    end: str
    partition_messages: int
    messages_per_trigger: int
    skips_gone: bool


@dataclass(frozen=True, slots=True)
class TopicWriteOptions:
    """Options of `df.write` and `df.writeStream` to a topic.

    Attributes:
        writer, batch: name a batch write, so that the same batch written again is not published twice.
    """

    url: str
    topic: str
    writer: str | None
    batch: int | None


class _Words:
    """Options while they are read: each is taken once, and what is left over is an error."""

    def __init__(self, given: Mapping[str, str], what: str) -> None:
        self._left = {name.lower(): value for name, value in given.items() if name.lower() not in _OF_SPARK}
        self._what = what
        self._known: list[str] = []

    def take(self, name: str, fallback: str | None = None) -> str:
        found = self.find(name)
        if found is None:
            found = fallback
        if found is None:
            raise InvalidOptionError(f"{self._what} needs the option {name!r}: .option({name!r}, …)")
        return found

    def find(self, name: str) -> str | None:
        self._known.append(name)
        return self._left.pop(name, None)

    def number(self, name: str, default: int | None, low: int = 1) -> int | None:
        text = self.find(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low:
            raise InvalidOptionError(f"option {name!r} is {shorten(text)}: give a whole number from {low} on")
        return number

    def duration(self, name: str, default: timedelta, low: timedelta, high: timedelta) -> timedelta:
        return check_between(f"option {name!r}", self.take(name, tell_duration(default)), low, high)

    def flag(self, name: str) -> bool:
        text = self.take(name, "false").lower()
        if text not in ("true", "false"):
            raise InvalidOptionError(f"option {name!r} is {shorten(text)}: give true or false")
        return text == "true"

    def target(self, *, may_be_all: bool) -> Target:
        url = check_url(self.take("url", os.environ.get("CASSQ_URL")))
        queue = self.take("queue")
        if not (may_be_all and queue == ALL_QUEUES):
            try:
                check_name(queue)
            except InvalidNameError as error:
                raise InvalidOptionError(f"option 'queue': {error}") from None
        return Target(url, queue)

    def topic(self) -> tuple[str, str]:
        url = check_url(self.take("url", os.environ.get("CASSQ_URL")))
        try:
            return url, check_name(self.take("topic"), "topic name")
        except InvalidNameError as error:
            raise InvalidOptionError(f"option 'topic': {error}") from None

    def writer(self) -> tuple[str | None, int | None]:
        writer, batch = self.find("writer"), self.number("batch", None, 0)
        if batch is not None and batch >= SEQ_MAX:
            raise InvalidOptionError(f"option 'batch' is {batch}: give a number below 2**63 - 1")
        if (writer is None) != (batch is None):
            raise InvalidOptionError(
                "options 'writer' and 'batch' go together: the name of who writes, and the number of this "
                "batch"
            )
        if writer is not None and check_name(writer, "name of a writer").startswith(ONCE):
            raise InvalidOptionError(
                f"option 'writer' is {shorten(writer)}: {ONCE!r} begins the names of writes without one"
            )
        return writer, batch

    def end(self) -> None:
        if self._left:
            name = min(self._left)
            known = ", ".join(sorted(self._known))
            raise InvalidOptionError(f"{self._what} has no option {shorten(name)}; the options are {known}")


def check_url(url: str) -> str:
    """Return the URL of a store that Spark's processes can reach.

    Raises: InvalidOptionError: it is not one.
    """
    check_text(url)
    if url == "memory:":
        raise InvalidOptionError(
            "Spark's processes share no memory: use a store that they can reach, sqlite:/// or cassandra://"
        )
    return url


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Read the options of a batch read.

    Raises: InvalidOptionError: one is missing, unknown or malformed.
    """
    words = _Words(given, "reading from cassq")
    options = ReadOptions(
        words.target(may_be_all=True),
        words.number("partition_messages", PARTITION_MESSAGES) or PARTITION_MESSAGES,
        words.flag("pushdown"),
    )
    words.end()
    return options


def is_of_topic(given: Mapping[str, str]) -> bool:
    """Tell whether options name a topic."""
    return "topic" in {name.lower() for name in given}


def topic_options(given: Mapping[str, str], *, is_stream: bool) -> TopicOptions:
    """Read the options of a read of a topic.

    Raises: InvalidOptionError: one is missing, unknown or malformed.
    """
    words = _Words(given, "reading a topic of cassq")
    options = TopicOptions(
        *words.topic(),
        words.take("start", "earliest"),
        "latest" if is_stream else words.take("end", "latest"),
        words.number("partition_messages", PARTITION_MESSAGES) or PARTITION_MESSAGES,
        (words.number("messages_per_trigger", MESSAGES_PER_TRIGGER) if is_stream else None)
        or MESSAGES_PER_TRIGGER,
        words.flag("skip_gone"),
    )
    words.end()
    return options


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Read the options of a write.

    Raises: InvalidOptionError: one is missing, unknown or malformed.
    """
    words = _Words(given, "writing to cassq")
    options = WriteOptions(words.target(may_be_all=False), *words.writer())
    words.end()
    return options


def topic_write_options(given: Mapping[str, str]) -> TopicWriteOptions:
    """Read the options of a write to a topic.

    Raises: InvalidOptionError: one is missing, unknown or malformed.
    """
    words = _Words(given, "writing to a topic of cassq")
    options = TopicWriteOptions(*words.topic(), *words.writer())
    words.end()
    return options


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Read the options of a streaming read.

    Raises: InvalidOptionError: one is missing, unknown or malformed.
    """
    words = _Words(given, "streaming from cassq")
    options = StreamOptions(
        words.target(may_be_all=False),
        check_name(words.take("reader"), "name of a reader"),
        words.number("messages_per_trigger", MESSAGES_PER_TRIGGER) or MESSAGES_PER_TRIGGER,
        words.duration("lease", READER_LEASE, READER_LEASE_MIN, READER_LEASE_MAX),
        words.flag("skip_lost"),
    )
    words.end()
    return options
