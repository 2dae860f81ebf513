"""The rollup: a snapshot of queues as figures, a row for each minute in which messages were pushed."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The part of the messages that is as old, or as large, as the figure or less.
SHARES = (0.5, 0.9, 0.99)

#: How close to the truth a percentile is: to one in this many.
_ACCURACY = 1000


def rollup(messages: "DataFrame") -> "DataFrame":
    """Roll messages up per queue, shard, minute, pusher and holder.

    Args:
        messages: what `spark.read.format("cassq")` gives.

    Returns: queue, shard, minute (in which they were pushed), pusher, holder; how many messages are waiting,
        pending (leased), returned, committed and dead; body_bytes, their sum; oldest_age_s, the seconds since
        the oldest that has not ended was pushed; age_p50_s, age_p90_s and age_p99_s of those; body_p50_bytes,
        body_p90_bytes, body_p99_bytes of all; rolled_up_at, when this was.
    """
    now = f.current_timestamp()
    age = now.cast("double") - f.col("pushed_at").cast("double")
    has_ended = f.col("state").isin("committed", "dead")
    living_age = f.when(~has_ended, age)
    body = f.octet_length("body")
    found = messages.groupBy(
        "queue",
        f.lit(0).alias("shard"),
        f.date_trunc("minute", f.col("pushed_at")).alias("minute"),
        "pusher",
        "holder",
    ).agg(
        _count("waiting", "waiting"),
        _count("leased", "pending"),
        _count("returned", "returned"),
        _count("committed", "committed"),
        _count("dead", "dead"),
        f.sum(body).alias("body_bytes"),
        f.max(living_age).alias("oldest_age_s"),
        f.percentile_approx(living_age, list(SHARES), _ACCURACY).alias("ages"),
        f.percentile_approx(body, list(SHARES), _ACCURACY).alias("bodies"),
    )
    figures = [
        f.col(column)[place].alias(f"{name}_p{round(100 * share)}_{unit}")
        for column, name, unit in (("ages", "age", "s"), ("bodies", "body", "bytes"))
        for place, share in enumerate(SHARES)
    ]
    kept = [column for column in found.columns if column not in ("ages", "bodies")]
    return found.select(*kept, *figures, now.alias("rolled_up_at"))


def _count(state: str, name: str) -> "Column":
    return f.count_if(f.col("state") == state).alias(name)
