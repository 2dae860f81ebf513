"""What calls take by name, for type checkers.

Refuses to judge values: `cassq.model.settings` and `cassq.model.label` do.
"""

from datetime import datetime, timedelta
from typing import Literal, TypedDict


class PushOptions(TypedDict, total=False):
    """What `Queue.push` takes besides, for type checkers."""

    ttl: timedelta | None
    priority: int
    type: str | None
    delay: timedelta | None
    due: datetime | None
    key: str | None


class AlterOptions(TypedDict, total=False):
    """Those settings of `QueueSettings` that `Store.alter_queue` takes, for type checkers."""

    pipe_messages_max: int
    pipe_bytes_max: int
    lease: timedelta
    pop_width: int
    push_width: int
    max_attempts: int
    body_bytes_max: int
    retry_delay: timedelta
    retry_factor_percent: int
    retry_delay_max: timedelta
    retry_jitter_percent: int
    ttl: timedelta
    on_expired: Literal["drop", "dead"]
    ageing: timedelta
    keys: Literal["ordered", "exclusive"]
    journal: Literal["off", "outline", "headers"]


class AlterTopicOptions(TypedDict, total=False):
    """Those settings of `TopicSettings` that `Store.alter_topic` takes, for type checkers."""

    retention: timedelta
    retention_bytes: int
    segment_bytes: int
    body_bytes_max: int


class TopicOptions(AlterTopicOptions, total=False):
    """The settings of `TopicSettings` as `Store.topic` takes them, for type checkers."""

    partitions: int
    clock_skew_max: timedelta


class QueueOptions(AlterOptions, total=False):
    """The settings of `QueueSettings` as `Store.queue` takes them, for type checkers."""

    push_age_max: timedelta
    push_grace: timedelta
    clock_skew_max: timedelta
    key_slots: int
