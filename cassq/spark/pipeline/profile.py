"""The profile: which pipes, pushers, holders or headers make a queue slow."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: A message that is leased for longer than this is told as stuck.
STUCK_S = 300.0

_NEEDED = ("queue", "pipe", "pusher", "phase", "state", "holder", "leased_at", "pushed_at", "headers")

#: So many header values are told of each queue, those of most messages.
_HEADERS_TOLD = 20


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile tells, each a frame of few rows.

    Attributes:
        pushers: queue, pusher, messages, living (not ended), body_bytes, share (of the queue's living ones).
        pipes: queue, pipe, pusher, phase, messages, living, body_bytes, age_s (of its oldest message).
        holders: queue, holder, messages leased, oldest_lease_s, stuck (leased for longer than a limit).
        headers: queue, name, value, messages, living, oldest_age_s; the most frequent values.
    """

    pushers: "DataFrame"
    pipes: "DataFrame"
    holders: "DataFrame"
    headers: "DataFrame"


def profile(messages: "DataFrame", *, stuck_s: float = STUCK_S) -> Profile:
    """Profile queues.

    Args:
        messages: what `spark.read.format("cassq")` gives. It is read once for each of the frames: keep it
            with `persist()` if the four shall be of one moment.
        stuck_s: for how many seconds a message may be leased before it is told as stuck.
    """
    size = f.octet_length("body").alias("size")
    queued = messages.where("phase is not null").select(*_NEEDED, size)
    living = f.count_if(~f.col("state").isin("committed", "dead")).alias("living")
    body_bytes = f.sum("size").alias("body_bytes")
    messages_count = f.count("*").alias("messages")
    in_queue = Window.partitionBy("queue")
    pushers = queued.groupBy("queue", "pusher").agg(messages_count, living, body_bytes)
    share = f.col("living") / f.greatest(f.sum("living").over(in_queue), f.lit(1))
    pipes = queued.groupBy("queue", "pipe", "pusher", "phase").agg(
        messages_count, living, body_bytes, f.max(_age("pushed_at")).alias("age_s")
    )
    leased = queued.where("state = 'leased'")
    lease_age = _age("leased_at")
    holders = leased.groupBy("queue", "holder").agg(
        messages_count,
        f.max(lease_age).alias("oldest_lease_s"),
        f.count_if(lease_age > stuck_s).alias("stuck"),
    )
    exploded = queued.select("queue", "state", "pushed_at", f.explode("headers").alias("name", "value"))
    alive_age = f.when(~f.col("state").isin("committed", "dead"), _age("pushed_at"))
    headers = exploded.groupBy("queue", "name", "value").agg(
        messages_count, living, f.max(alive_age).alias("oldest_age_s")
    )
    place = f.row_number().over(Window.partitionBy("queue").orderBy(f.desc("living"), "name", "value"))
    headers = headers.withColumn("place", place).where(f.col("place") <= _HEADERS_TOLD).drop("place")
    return Profile(pushers.withColumn("share", share), pipes, holders, headers)


def _age(column: str) -> "Column":
    return f.current_timestamp().cast("double") - f.col(column).cast("double")
