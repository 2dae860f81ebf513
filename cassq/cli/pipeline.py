"""`cassq pipeline NAME`: the ready-made work on Spark, on the queues of a store.

Owns the session that a command runs in. It decides nothing else; `cassq.spark.pipeline` does the work, and
Spark is not imported before a command needs it.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import cassq
from cassq.cli.exit_codes import NOT_DONE
from cassq.cli.output import count_of, print_json, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_duration
from cassq.topics.journal import NAME as JOURNAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUEUE = click.option("--queue", default="*", show_default=True, help="A queue's name; * for all.")


def _note_master(context: click.Context, _parameter: click.Parameter, master: str) -> None:
    context.meta[_MASTER_KEY] = master


_MASTER_KEY = "cassq.cli.pipeline.master"
_MASTER = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    expose_value=False,
    callback=_note_master,
    help="Where Spark runs.",
)


@click.group()
def pipeline() -> None:
    """Roll up, archive, restore, audit, profile, index: with Spark (needs cassq[spark] and Java 17)."""


@pipeline.command()
@click.argument("out", required=False)
@click.option("--keep", is_flag=True, help="Keep them in the store, for `cassq queue rollups`, thirty days.")
@_QUEUE
@_MASTER
@common_options
@pass_session
def rollup(session: Session, out: str | None, queue: str, *, keep: bool) -> None:
    """Append figures per queue, minute, pusher and holder to the Parquet files in OUT, or --keep them."""
    if out is None and not keep:
        raise cassq.InvalidOptionError(
            "nowhere to write to: name a folder for Parquet files, or --keep, or both"
        )
    with _spark() as spark:
        from cassq.spark import pipeline as work  # noqa: PLC0415 - Spark is imported late

        # Read once, or files and store would tell of two moments.
        figures = work.rollup(_read(spark, session.require_url(), queue)).persist()
        if out is not None:
            figures.write.mode("append").partitionBy("queue").parquet(out)
        kept = work.keep_rollup(figures, session.require_url()) if keep else 0
    words = [f"rolled up into {out}"] * (out is not None) + [
        f"{count_of(kept, 'row')} kept in the store"
    ] * keep
    _tell({"out": out, "kept": kept}, ", ".join(words), is_json=session.is_json)


@pipeline.command()
@click.argument("folder")
@_QUEUE
@_MASTER
@common_options
@pass_session
def archive(session: Session, folder: str, queue: str) -> None:
    """Add what has ended, and dead letters, to the archive in FOLDER, each message once."""
    with _spark() as spark:
        from cassq.spark.pipeline import archive as archive_messages  # noqa: PLC0415

        run = archive_messages(_read(spark, session.require_url(), queue), folder)
    _tell(asdict(run), f"run {run.number}: {run.messages} messages", is_json=session.is_json)


@pipeline.command()
@click.argument("folder")
@click.argument("queue")
@click.option(
    "--where", metavar="SQL", help="Only messages for which this holds, e.g. \"date = '2026-11-22'\"."
)
@click.option("--once", metavar="NAME", help="Restore under this name at most once.")
@_MASTER
@common_options
@pass_session
def restore(session: Session, folder: str, queue: str, where: str | None, once: str | None) -> None:
    """Push the archive in FOLDER, or a part of it, into QUEUE, all or none, as new messages."""
    with _spark() as spark:
        from cassq.spark.pipeline import read_archive  # noqa: PLC0415
        from cassq.spark.pipeline import restore as restore_messages  # noqa: PLC0415

        messages = read_archive(spark, folder)
        if where:
            messages = messages.where(where)
        batch = 0 if once else None
        restore_messages(messages, session.require_url(), queue, writer=once, batch=batch)
        say(f"restored into {queue}")


@pipeline.command()
@click.argument("ledgers", nargs=-1)
@click.option("--pushes", metavar="PATH", help="Parquet or CSV with a column message, and perhaps digest.")
@click.option("--consumed", metavar="PATH", help="Parquet or CSV with a column message_id or message.")
@click.option("--digest", metavar="SQL", help='Of a consumed row, e.g. "sha2(body, 256)".')
@_MASTER
@common_options
@pass_session
def audit(
    session: Session, ledgers: tuple[str, ...], pushes: str | None, consumed: str | None, digest: str | None
) -> None:
    """Find what was lost, duplicated, unexpected or damaged, from LEDGERS or from files of ids.

    Exits 0 where every promise held, 1 where one was broken.
    """
    if not (ledgers or pushes or consumed):
        raise cassq.InvalidOptionError("nothing to audit: name ledgers, or --pushes and --consumed")
    with _spark() as spark:
        from cassq.spark import pipeline as work  # noqa: PLC0415

        frames = [work.lines_of_ledgers(spark, path) for path in ledgers]
        if pushes:
            frames.append(work.lines_of_pushes(_table(spark, pushes)))
        if consumed:
            frames.append(work.lines_of_snapshot(_table(spark, consumed), digest))
        lines = frames[0]
        for frame in frames[1:]:
            lines = lines.unionByName(frame)
        count = 0
        for row in work.audit(lines).orderBy("finding", "message").toLocalIterator():
            found = row.asDict()
            click.echo(
                json.dumps(found) if session.is_json else "{finding} {message}: {words}".format(**found)
            )
            count += 1
    say(f"{count} findings")
    if count:
        click.get_current_context().exit(NOT_DONE)


@pipeline.command()
@click.argument("page", type=click.Path(path_type=Path, dir_okay=False))
@_QUEUE
@click.option(
    "--stuck",
    type=to_duration,
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="A message leased for longer counts as stuck.",
)
@_MASTER
@common_options
@pass_session
def profile(session: Session, page: Path, queue: str, stuck: timedelta) -> None:
    """Write a page of charts to PAGE: skew per pusher, age of pipes, stuck leases, headers."""
    with _spark() as spark:
        from cassq.spark import pipeline as work  # noqa: PLC0415

        found = work.profile(
            _read(spark, session.require_url(), queue).persist(), stuck_s=stuck.total_seconds()
        )
        what = "all queues" if queue == "*" else f"queue {queue}"
        page.write_text(work.render(found, f"Profile of {what}"), "utf-8")
    say(f"wrote {page}")


@pipeline.command()
@click.argument("out")
@click.option("--once", is_flag=True, help="End once all is indexed that is there now.")
@click.option(
    "--compact", "is_compaction", is_flag=True, help="Rewrite the files of days that are over, and end."
)
@click.option(
    "--headers",
    default="",
    metavar="NAME,NAME",
    help="Headers to index, beside keys; of journals that keep them.",
)
@_MASTER
@common_options
@pass_session
def journal(session: Session, out: str, headers: str, *, once: bool, is_compaction: bool) -> None:
    """Index the journal into Parquet files in OUT, each event once, for `cassq history --index OUT`."""
    url = session.require_url()
    with cassq.connect(url) as store:
        store.find_topic(JOURNAL)  # Spark would say it in the words of its worker
    names = [each for name in headers.split(",") if (each := name.strip())]
    with _spark() as spark:
        from cassq.spark import pipeline as work  # noqa: PLC0415

        if is_compaction:
            replaced = work.compact(spark, out)
            _tell(
                {"out": out, "replaced": replaced},
                f"replaced {count_of(replaced, 'file')}",
                is_json=session.is_json,
            )
            return
        queries = work.start_index(spark, url, out, names, once=once)
        if not once:
            spark.streams.awaitAnyTermination()  # one that ends has failed
        for query in queries:
            query.awaitTermination()
    _tell({"out": out}, f"indexed into {out}", is_json=session.is_json)


@contextmanager
def _spark() -> "Iterator[SparkSession]":
    """Open a session for the command that runs."""
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from cassq.spark import register  # noqa: PLC0415
    except ImportError as error:
        raise cassq.InvalidOptionError(
            f"pipelines need PySpark: pip install 'cassq[spark]', and Java 17 ({error})"
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = click.get_current_context().meta[_MASTER_KEY]
    builder = SparkSession.builder.appName("cassq pipeline").master(master)
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower()).getOrCreate()
    try:
        register(spark)
        yield spark
    except PySparkException as error:
        raise cassq.CassqError(f"Spark failed: {error}") from error
    finally:
        spark.stop()


def _read(spark: "SparkSession", url: str, queue: str) -> "DataFrame":
    if queue != "*":
        with cassq.connect(url) as store:
            store.find_queue(queue)  # Spark would say it in the words of its worker
    return spark.read.format("cassq").option("url", url).option("queue", queue).load()


def _table(spark: "SparkSession", path: str) -> "DataFrame":
    if path.endswith(".csv"):
        return spark.read.option("header", "true").csv(path)
    return spark.read.parquet(path)


def _tell(figures: dict[str, Any], words: str, *, is_json: bool) -> None:
    if is_json:
        print_json(figures)
    else:
        click.echo(words)
