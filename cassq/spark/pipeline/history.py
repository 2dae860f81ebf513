"""What happened to every message, as a frame over the index of the journal.

Owns how rows of the index, and of pipes that stand, become one row for each message. What must not break: a
message that the index has is not told a second time by its pipe.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from cassq.spark.pipeline.journal_index import TABLES, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    *("message_id", "queue", "pipe", "seq", "key", "type", "headers", "priority", "pusher", "pushed_at"),
    *("attempts", "holder", "ending", "reason", "ended_at", "retired_at", "past", "date"),
)


def history(spark: "SparkSession", out: str, url: str | None = None) -> "DataFrame":
    """Return one row for each message that the index of a journal has.

    A filter on `key` reads no message without a key, and one on `date` no other days.

    Args:
        out: the folder of the index.
        url: of the store whose pipes that stand are added, by a snapshot: what it shows is of the moment of
            its tasks. `ending` is null of what has not ended, and `ended_at` of what was committed there.

    Columns: message_id, queue, pipe, seq, key, type, headers (those that the index keeps), priority, pusher,
        pushed_at (null where the index keeps neither key nor header of a message), attempts, holder, ending
        (committed, dead, purged or expired), reason, ended_at (to the second; that of its pipe where nobody
        wrote it down), retired_at, past (the attempts before, as JSON), date (of `retired_at`, in UTC).
    """
    pieces, keyed = (read_table(spark, out, table) for table in TABLES)
    ended = _messages_of(pieces.where(~f.col("is_keyed"))).unionByName(keyed.select(*_COLUMNS))
    ended = ended.where("ending <> 'moved'")
    return ended if url is None else ended.unionByName(_standing(spark, url, ended))


def _messages_of(pieces: "DataFrame") -> "DataFrame":
    seqs = pieces.withColumn("seq", f.explode(f.sequence("first", "last")))
    number = f.col("first_seq") + f.col("seq") - f.col("first")
    nothing = {
        "key": f.lit(None).cast("string"),
        "headers": f.lit(None).cast("map<string, string>"),
        "pushed_at": f.lit(None).cast("timestamp"),
    }
    named = seqs.withColumn("message_id", f.concat_ws(":", "first_pipe", number.cast("string")))
    return named.withColumns(nothing).select(*_COLUMNS)


def _standing(spark: "SparkSession", url: str, ended: "DataFrame") -> "DataFrame":
    """Return the messages of pipes that stand, and dead letters that the index does not have."""
    snapshot = spark.read.format("cassq").options(url=url, queue="*").load().drop("body")
    told = snapshot.where("phase IS NULL OR phase <> 'retired'")
    told = told.withColumns(
        {
            "key": f.coalesce("key", f.col("headers")["key"]),
            "attempts": f.col("attempt"),
            "ending": f.when(f.col("state").isin("committed", "dead"), f.col("state")),
            "retired_at": f.lit(None).cast("timestamp"),
            "past": f.lit(None).cast("string"),
            "date": f.lit(None).cast("date"),
        }
    )
    known = ended.where("ending = 'dead'").select("message_id")
    return told.select(*_COLUMNS).join(known, "message_id", "left_anti").select(*_COLUMNS)
