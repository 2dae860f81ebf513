"""The archive: what has ended, kept as Parquet, each message once; and the way back into a queue.

Owns which runs of the archive count. A run writes its messages and its index into folders of its own, and
counts from the moment when its number is created in `_runs`:

    messages/run=000007-TOKEN/date=2026-11-22/queue=orders/…
    index/run=000007-TOKEN/…                                     message_id -> date, queue
    _runs/000007                                                 {"token": TOKEN, …}: the run counts

What must not break: nothing that does not count is read, and of two runs with one number one counts, which
rests on the way in which Spark's checkpoints are written. So a run that is killed is as if it had never been,
and what it had is archived by the next.
"""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StringType, StructType

from cassq.errors import ConflictError
from cassq.spark.pipeline.files import Files
from cassq.spark.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

_RUNS = "_runs"
_INDEX = StructType().add("message_id", StringType()).add("date", DateType()).add("queue", StringType())
_RESTORED = "body", "headers", "priority", "type", "key"
_ARCHIVED = StructType([*SCHEMA.fields]).add("date", DateType())


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A run that counts.

    Attributes:
        number: from 1.
        token: what tells its folders from those of a run of the same number that does not count.
        messages: how many it archived.
    """

    number: int
    token: str
    messages: int

    @property
    def name(self) -> str:
        """The name of its folders."""
        return f"run={self.number:06}-{self.token}"


def archive(messages: "DataFrame", folder: str) -> ArchiveRun:
    """Archive messages that have ended and are not in the archive yet.

    Committed messages can be read as long as their pipe stands, which is until it is sealed and all of it has
    ended, and some seconds more: stream the queue into files where nothing may be missed.

    Args:
        messages: what `spark.read.format("cassq")` gives; those committed in sealed pipes, and dead letters,
            are archived.
        folder: of the archive, wherever Spark can write; made where it is missing.

    Raises: ConflictError: another run was archiving at the same time and was first; nothing was archived.
    """
    spark = messages.sparkSession
    files = Files(spark, folder)
    # One listing: a run that comes to count after it has this number, and this one then does not.
    runs = _runs(files)
    run = ArchiveRun(max((run.number for run in runs), default=0) + 1, uuid4().hex[:8], 0)
    _delete_leftovers(files, runs, run.number)
    new = (
        messages.where(_has_ended())
        .join(_read_index(spark, files, runs).select("message_id"), "message_id", "left_anti")
        .withColumn("date", f.to_date("pushed_at"))
    )
    place = f"{files.folder}/messages/{run.name}"
    new.write.partitionBy("date", "queue").parquet(place)
    # From what was written: the queue may have gone on, and the index must be of the same messages.
    count = 0
    if any(name.startswith("date=") for name in files.names(f"messages/{run.name}")):
        written = spark.read.schema(_ARCHIVED).parquet(place).select("message_id", "date", "queue")
        written.orderBy("message_id").write.parquet(f"{files.folder}/index/{run.name}")
        count = spark.read.schema(_INDEX).parquet(f"{files.folder}/index/{run.name}").count()
    run = ArchiveRun(run.number, run.token, count)
    if not files.create(_RUNS, f"{run.number:06}", json.dumps(asdict(run))):
        _delete(files, run.name)
        raise ConflictError(f"{folder}: another run archived at the same time; run again")
    return run


def read_archive(spark: "SparkSession", folder: str) -> "DataFrame":
    """Return the archived messages: the columns of a snapshot, and date.

    Raises: FileNotFoundError: nothing was archived there yet.
    """
    files = Files(spark, folder)
    places = [f"{files.folder}/messages/{run.name}" for run in _runs(files) if run.messages]
    if not places:
        raise FileNotFoundError(f"{folder} holds no archive of messages")
    # With a schema, or a queue that is called 007 would be taken for a number.
    schema = StructType([*_ARCHIVED.fields]).add("run", StringType())
    base = f"{files.folder}/messages"
    return spark.read.schema(schema).option("basePath", base).parquet(*places).drop("run")


def find_archived(spark: "SparkSession", folder: str, message_ids: "Iterable[str]") -> "DataFrame":
    """Return the archived messages with these ids: the index says where they are, and only that is read."""
    files = Files(spark, folder)
    wanted = [str(message_id) for message_id in message_ids]
    places = _read_index(spark, files, _runs(files)).where(f.col("message_id").isin(wanted))
    known = [(row.date, row.queue) for row in places.select("date", "queue").distinct().collect()]
    found = read_archive(spark, folder).where(f.col("message_id").isin(wanted))
    if not known:
        return found.limit(0)
    return found.where(
        f.col("date").isin([date for date, _ in known]) & f.col("queue").isin([queue for _, queue in known])
    )


def restore(
    messages: "DataFrame", url: str, queue: str, *, writer: str | None = None, batch: int | None = None
) -> None:
    """Push archived messages, or a part of them, into a queue, all or none; as new messages, with new ids.

    Args:
        messages: with columns body and, perhaps, headers, priority, type and key; others are left out.
        writer, batch: name the batch, so that the same one restored again is not pushed twice.
    """
    columns = [name for name in _RESTORED if name in messages.columns]
    save = messages.select(*columns).write.format("cassq").option("url", url).option("queue", queue)
    if writer is not None:
        save = save.option("writer", writer).option("batch", str(batch))
    save.mode("append").save()


def _has_ended() -> "Column":
    is_committed = (f.col("state") == "committed") & (f.col("phase") != "open")
    return is_committed | (f.col("state") == "dead")


def _runs(files: Files) -> list[ArchiveRun]:
    names = [name for name in files.names(_RUNS) if name.isdecimal()]
    return [ArchiveRun(**json.loads(files.read(f"{_RUNS}/{name}"))) for name in names]


def _read_index(spark: "SparkSession", files: Files, runs: "Iterable[ArchiveRun]") -> "DataFrame":
    places = [f"{files.folder}/index/{run.name}" for run in runs if run.messages]
    return spark.read.schema(_INDEX).parquet(*places) if places else spark.createDataFrame([], _INDEX)


def _delete_leftovers(files: Files, runs: "Iterable[ArchiveRun]", number: int) -> None:
    """Delete what runs left that did not come to count, and never can: their number is taken."""
    counting = {run.name for run in runs}
    for name in {*files.names("messages"), *files.names("index")} - counting:
        first = name.removeprefix("run=").partition("-")[0]
        if first.isdecimal() and int(first) < number:
            _delete(files, name)


def _delete(files: Files, name: str) -> None:
    files.delete(f"messages/{name}")
    files.delete(f"index/{name}")
