"""The rollup: a snapshot of queues as figures, a row for each minute in which messages were pushed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

import cassq
from cassq.errors import InvalidOptionError
from cassq.model.rollup import NAMES
from cassq.spark.options import check_url
from cassq.spark.sessions import open_store

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
    # Spark's clock is not the database's, and a message may be pushed after the query was planned.
    age = f.greatest(now.cast("double") - f.col("pushed_at").cast("double"), f.lit(0.0))
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


def keep_rollup(figures: "DataFrame", url: str) -> int:
    """Keep figures in the statistics table of the store, where `Queue.rollups` finds them for thirty days.

    Args:
        figures: what `rollup` returns, or a part of its rows.
        url: of the store, as for `cassq.connect`.

    Returns: how many rows. A task that is repeated writes the same rows again, as far as Spark kept what it
        had read; where it reads the queue anew, or fails in the end, figures of several moments stand there.

    Raises:
        InvalidOptionError: the URL is wrong, or a column is missing; nothing was written.
        UnavailableError, SchemaMismatchError: the store cannot be used from here; nothing was written.
    """
    open_store(check_url(url))
    stored = {"queue": ("queue", f.col("queue"))} | {name: _to_stored(name) for name in NAMES}
    missing = sorted({source for source, _ in stored.values()} - set(figures.columns))
    if missing:
        raise InvalidOptionError(f"column {missing[0]!r} is missing: give what rollup() returns")
    rows = figures.select(*(column.alias(name) for name, (_, column) in stored.items()))
    found = rows.mapInArrow(_writer(url), "rows long").agg(f.sum("rows")).first()
    return int(found[0] or 0) if found else 0


def _to_stored(name: str) -> "tuple[str, Column]":
    """Return the column that a figure comes from, and how it is stored."""
    if name in ("pusher", "holder"):
        return name, f.coalesce(name, f.lit(""))
    moment = name.removesuffix("_ms")
    if moment in ("rolled_up_at", "minute"):
        return moment, f.unix_millis(moment)
    if moment != name:
        return f"{moment}_s", f.round(f.col(f"{moment}_s") * 1000).cast("long")
    return name, f.col(name).cast("long")


def _writer(url: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_store(url).storage
        for batch in batches:
            by_queue: dict[str, list[cassq.Rollup]] = defaultdict(list)
            row: dict[str, Any]
            for row in batch.to_pylist():
                by_queue[row.pop("queue")].append(cassq.Rollup(**row))
            for queue, rollups in by_queue.items():
                storage.write_rollups(queue, rollups)
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    return write


def _count(state: str, name: str) -> "Column":
    return f.count_if(f.col("state") == state).alias(name)
