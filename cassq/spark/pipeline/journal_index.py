"""The index of the journal: files in which everything that happened to messages is found.

Owns the two streams that write it, each into a table of its own, once by the log of Spark's files; and the
compaction of days that are over. In the folder:

    pieces/date=2026-11-30/bucket=17/…   keyed/date=2026-11-30/queue=orders/…   as the streams wrote them
    compacted/pieces/run=000003-TOKEN/date=…/bucket=…/…                         what replaces files of theirs
    compacted/pieces/_runs/000003                                               {"name": …, "replaced": […]}

What must not break: a file is read as long as no run that counts replaces it, and a run counts from the
moment its number appears; nothing is read that the log of the files does not name.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cassq.errors import ConflictError
from cassq.spark import register
from cassq.spark.pipeline.files import Files
from cassq.spark.pipeline.journal_rows import BUCKETS, KEYED, PIECES, rows_of
from cassq.topics.journal import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: Events that one batch of a stream reads at most: each may have half a megabyte of headers.
_EVENTS = 1000


class Table(NamedTuple):
    """One of the two tables.

    Attributes:
        spread: its columns that are folders.
        order: how its rows are sorted, once a day is over.
    """

    name: str
    schema: str
    spread: tuple[str, str]
    order: tuple[str, ...]


TABLES = (
    Table("pieces", PIECES, ("date", "bucket"), ("pipe", "first")),
    Table("keyed", KEYED, ("date", "queue"), ("key", "ended_at")),
)


def start_index(
    spark: "SparkSession", url: str, out: str, headers: Sequence[str] = (), *, once: bool = False
) -> "list[StreamingQuery]":
    """Start the streams that write the index; each event of the journal is in it once, over any crash.

    Args:
        out: the folder, wherever Spark can write.
        headers: those that are kept of messages, beside keys; of queues whose journal has them.
        once: end once all is read that is there now.

    Returns: the running streams, for the caller to wait for.
    """
    return [_start(spark, url, out, (table, tuple(headers)), once=once) for table in TABLES]


def _start(
    spark: "SparkSession", url: str, out: str, what: tuple[Table, tuple[str, ...]], *, once: bool
) -> "StreamingQuery":
    table, headers = what
    register(
        spark
    )  # again: streams of one registration share a map, into which Spark's threads write unguarded
    source = spark.readStream.format("cassq").schema("key string, body binary")
    events = source.options(url=url, topic=NAME, messages_per_trigger=str(_EVENTS)).load()
    tasks = spark.sparkContext.defaultParallelism
    spread = events.repartition(tasks, f.pmod(f.crc32("key"), f.lit(BUCKETS)))
    schema = to_arrow_schema(StructType.fromDDL(table.schema), timezone="UTC")
    make = partial(rows_of, names=headers, schema=schema, is_keyed=table.name == "keyed")
    writer = spread.mapInArrow(make, table.schema).writeStream.format("parquet")
    writer = writer.partitionBy(*table.spread).queryName(f"cassq journal {table.name}")
    places = {"path": f"{out}/{table.name}", "checkpointLocation": f"{out}/_checkpoints/{table.name}"}
    return writer.options(**places).trigger(**_trigger(once=once)).start()


def _trigger(*, once: bool) -> dict[str, Any]:
    return {"availableNow": True} if once else {"processingTime": "10 seconds"}


def read_table(spark: "SparkSession", out: str, table: Table) -> "DataFrame":
    """Return the rows of a table; none where the index has none yet."""
    schema = StructType.fromDDL(table.schema)
    files, runs = Files(spark, out), _runs(spark, out, table)
    base = f"{files.folder}/{table.name}"
    written = spark.createDataFrame([], schema)
    if files.names(f"{table.name}/_spark_metadata"):
        whole = spark.read.schema(schema).parquet(base)
        if runs:
            left = _left(whole, runs)
            whole = spark.read.schema(schema).option("basePath", base).parquet(*left) if left else written
        written = whole
    if runs:
        folder = f"{files.folder}/compacted/{table.name}"
        reader = spark.read.schema(StructType([*schema.fields]).add("run", "string"))
        compacted = (
            reader.option("basePath", folder).parquet(*(f"{folder}/{run}" for run in runs)).drop("run")
        )
        written = written.unionByName(compacted)
    return written


def compact(spark: "SparkSession", out: str) -> int:
    """Rewrite the files of days that are over, sorted, one for each folder; return how many were replaced.

    The files that are replaced stay where they are, for those who read them.

    Raises: ConflictError: somebody else compacted at the same time; nothing was replaced.
    """
    return sum(_compact(spark, out, table) for table in TABLES)


def _compact(spark: "SparkSession", out: str, table: Table) -> int:
    files, runs = Files(spark, out), _runs(spark, out, table)
    if not files.names(f"{table.name}/_spark_metadata"):
        return 0
    schema, base = StructType.fromDDL(table.schema), f"{files.folder}/{table.name}"
    left = [each for each in _left(spark.read.schema(schema).parquet(base), runs) if _is_over(each)]
    if not left:
        return 0
    number = 1 + max((int(name.removeprefix("run=").partition("-")[0]) for name in runs), default=0)
    name, folder = f"run={number:06}-{uuid4().hex[:8]}", f"compacted/{table.name}"
    rows = spark.read.schema(schema).option("basePath", base).parquet(*left)
    rows = rows.repartition(*table.spread).sortWithinPartitions(*table.spread, *table.order)
    rows.write.partitionBy(*table.spread).parquet(f"{files.folder}/{folder}/{name}")
    told = json.dumps({"name": name, "replaced": [each.rpartition("/")[2] for each in left]})
    if not files.create(f"{folder}/_runs", f"{number:06}", told):
        files.delete(f"{folder}/{name}")
        raise ConflictError(f"{out}: another compaction ran at the same time; run again")
    return len(left)


def _runs(spark: "SparkSession", out: str, table: Table) -> dict[str, set[str]]:
    """Return the compactions that count, by their folders, and the names of the files that they replace."""
    files, folder = Files(spark, out), f"compacted/{table.name}/_runs"
    told = (json.loads(files.read(f"{folder}/{name}")) for name in files.names(folder) if name.isdecimal())
    return {each["name"]: set(each["replaced"]) for each in told}


def _left(written: "DataFrame", runs: dict[str, set[str]]) -> list[str]:
    """Return the files of a stream that no compaction has replaced."""
    replaced = set().union(*runs.values())
    return [each for each in _files_of(written) if each.rpartition("/")[2] not in replaced]


def _files_of(written: "DataFrame") -> Iterator[str]:
    yield from sorted(written.inputFiles())


def _is_over(file: str) -> bool:
    """Tell whether the day of a file is over; what comes late for it the next compaction takes."""
    return file.partition("/date=")[2].partition("/")[0] < datetime.now(UTC).date().isoformat()
