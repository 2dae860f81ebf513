"""The audit: the checker at scale. What was pushed is held against what was delivered and committed.

Owns how ledgers are spread: all that was noted of a message comes together in one task, which judges it as
`cassq.verification.checker` does; what was noted of no message (who died, who was closing) goes to every
task. Order within pipes is not judged here: it needs a pipe's messages together. Nor do purges excuse
anything here.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from cassq.errors import InvalidOptionError
from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, Line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: One row for each line of a ledger, see `cassq.verification.ledger.Line`; place keeps the lines of one
#: writer in order.
LINES = (
    "at double, who string, kind string, message string, attempt int, until double, pipe string, seq long, "
    "digest string, place long"
)

#: What an audit returns: the finding (lost, duplicated, unexpected or damaged), the message, and why.
FINDINGS = "finding string, message string, words string"

#: So many lines are judged at once.
_PORTION = 50_000

#: What a line of a ledger holds, in order, see `cassq.verification.ledger`.
_FIELDS = ("at", "who", "kind", "message", "attempt", "until", "pipe", "seq", "digest", "words", "count")
_SHOWN = 80

_COLUMNS = ("at", "who", "kind", "message", "attempt", "until", "pipe", "seq", "digest", "place")


def audit(lines: "DataFrame") -> "DataFrame":
    """Judge what was noted of each message.

    Args:
        lines: rows of `LINES`; unions of what the functions below return. Complete: of a queue that was
            drained, from every pusher and consumer.

    Returns: a row for each broken promise: *lost*, acknowledged and neither committed nor dead; *duplicated*,
        delivered or committed again without a reason; *unexpected*, delivered and never pushed; *damaged*,
        delivered with another digest. None is good.
    """
    # Few, and of no message: deaths, closings. What a purge may have ended no task can tell alone.
    of_none = lines.where("message = ''").where(~f.col("kind").isin(Kind.PURGING.value, Kind.PURGED.value))
    common = [_line(row.asDict()) for row in of_none.orderBy("who", "at", "place").collect()]

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for own in _portions(_line(row) for batch in batches for row in batch.to_pylist()):
            found = list(_findings(common, own))
            yield pa.RecordBatch.from_pylist(
                [dict(zip(("finding", "message", "words"), each, strict=True)) for each in found],
                schema=pa.schema([(name, pa.string()) for name in ("finding", "message", "words")]),
            )

    return (
        lines.where("message != ''")
        .select(*_COLUMNS)
        .repartition("message")
        .sortWithinPartitions("message", "who", "at", "place")
        .mapInArrow(judged, FINDINGS)
    )


def lines_of_ledgers(spark: "SparkSession", path: str) -> "DataFrame":
    """Read ledgers of a `cassq.verification.ledger.LedgerWriter`, as the demo and the chaos runs keep them.

    A line that a kill cut short is left out; one that is no line of a ledger fails the frame when it is read.

    Args:
        path: a file, a folder or a pattern, wherever Spark can read.
    """
    # A line is a JSON list of texts and numbers: read by Spark itself, as texts, it costs little.
    texts = spark.read.text(path).withColumn("place", f.monotonically_increasing_id())
    is_torn = f.startswith("value", f.lit("[")) & ~f.endswith("value", f.lit("]"))
    parsed = texts.where(~is_torn).withColumn("parts", f.from_json("value", "array<string>"))
    is_line = (f.size("parts") == len(_FIELDS)) & f.col("parts")[2].isin([kind.value for kind in Kind])
    words = f.concat(f.lit("not a line of a ledger: "), f.substring("value", 1, _SHOWN))
    checked = parsed.withColumn("parts", f.when(is_line, f.col("parts")).otherwise(f.raise_error(words)))
    kinds = ("double", *["string"] * 3, "int", "double", "string", "long", "string")
    types = dict(zip(_COLUMNS, kinds, strict=False))
    columns = [f.col("parts")[_FIELDS.index(name)].cast(kind).alias(name) for name, kind in types.items()]
    # Of lines of one moment the number keeps the order: it rises with the place in the file.
    return checked.select(*columns, "place")


def lines_of_pushes(pushes: "DataFrame") -> "DataFrame":
    """Take a ledger of pushes as a frame, from Parquet or CSV: each was acknowledged.

    Args:
        pushes: with columns message (the id, or what else identifies it) and, perhaps, digest.

    Raises: InvalidOptionError: there is no column message.
    """
    return _lines(pushes, Kind.ACKNOWLEDGED)


def lines_of_snapshot(messages: "DataFrame", digest: str | None = None) -> "DataFrame":
    """Take what was delivered and committed from messages: of a snapshot, of an archive, of a stream's sink.

    Args:
        messages: with columns message_id, or message, and perhaps body. Each row is one delivery that was
            committed; a message that is there twice was delivered twice.
        digest: a SQL expression for the digest of a row, for example "sha2(body, 256)".
    """
    named = messages.withColumnRenamed("message_id", "message")
    if digest:
        named = named.withColumn("digest", f.expr(digest))
    delivered = _lines(named, Kind.DELIVERED)
    return delivered.unionByName(_lines(named, Kind.COMMITTED))


def _lines(frame: "DataFrame", kind: Kind) -> "DataFrame":
    if "message" not in frame.columns:
        raise InvalidOptionError(
            f"there is no column 'message', only {', '.join(map(repr, frame.columns))}: rename the one that "
            "identifies a message"
        )
    digest = f.coalesce(f.col("digest"), f.lit("")) if "digest" in frame.columns else f.lit("")
    step = [Kind.ACKNOWLEDGED, Kind.DELIVERED, Kind.COMMITTED].index(kind)
    return frame.select(
        f.lit(float(step)).alias("at"),
        f.lit("frame").alias("who"),
        f.lit(kind.value).alias("kind"),
        f.col("message").cast("string").alias("message"),
        f.lit(1).alias("attempt"),
        f.lit(0.0).alias("until"),
        f.lit("").alias("pipe"),
        f.lit(0).cast("long").alias("seq"),
        digest.cast("string").alias("digest"),
        f.lit(step).cast("long").alias("place"),
    )


def _portions(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Cut lines that are sorted by message where one message ends: what is judged at once stays small."""
    own: list[Line] = []
    for line in lines:
        if len(own) >= _PORTION and line.message != own[-1].message:
            yield own
            own = []
        own.append(line)
    if own:
        yield own


def _findings(common: list[Line], own: list[Line]) -> Iterator[tuple[str, str, str]]:
    verdict = judge([*common, *own])
    for message in verdict.lost:
        yield "lost", message, "acknowledged, and neither committed nor a dead letter"
    duplicated: dict[str, str] = {}
    for words in verdict.unexplained:
        duplicated.setdefault(words.partition(": ")[0], words)
    for message, words in duplicated.items():
        yield "duplicated", message, words
    for message in verdict.unexpected:
        yield "unexpected", message, "delivered, and not pushed, or refused"
    for message in verdict.damaged:
        yield "damaged", message, "delivered with another digest than it was pushed with"


def _line(row: dict[str, object]) -> Line:
    fields = {name: row[name] for name in _COLUMNS if name not in ("place", "kind")}
    return Line(kind=Kind(row["kind"]), **fields)  # type: ignore[arg-type]  # as LINES says
