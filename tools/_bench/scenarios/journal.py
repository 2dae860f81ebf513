"""Indexing the journal, and asking the index.

    tools/bench/journal                          10 000 000 messages, each with a key, in pipes of 10 000

Owns the journal that is indexed: events as reapers write them, made without the messages, in a file. What
must not break: figures are told only where the index has as many messages as were made.
"""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

import cassq
from _bench.measuring.compare import Figures
from _bench.measuring.settings_line import tell_settings
from _bench.options import counts, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures
from _bench.scenarios.spark import session
from _bench.stage import staged
from cassq.model.fates import Stretch
from cassq.model.ids import MessageId, new_pipe_id
from cassq.model.journal import PipeEvent, PushedBatch
from cassq.model.pipe import End
from cassq.spark.pipeline import find_in_index, history, start_index
from cassq.topics.journal import NAME

_PIPE = 10_000
_BATCH = 500
_KEYS = 100_000
_DEAD_EVERY = 1000
_QUERIES = 5


def make_journal(url: str, messages: int) -> list[MessageId]:
    """Publish the events of so many messages; return one that failed of each pipe."""
    failed: list[MessageId] = []
    with cassq.connect(url) as store:
        topic = store.topic(NAME, partitions=4)
        for first in range(0, messages, _PIPE):
            event = _event(first)
            failed.append(MessageId(event.pipe, _DEAD_EVERY))
            topic.publish(event.to_body(), headers={"key": event.key, "type": event.queue})
    return failed


def _event(first: int) -> PipeEvent:
    now = datetime.now(UTC)
    at_ms = int(1000 * now.timestamp())
    return PipeEvent(
        *("orders", new_pipe_id(), "a pusher", _PIPE, now, tuple(_stretches(at_ms // 1000))),
        first=1,
        last=_PIPE,
        batches=tuple(
            PushedBatch(
                seq, _BATCH, at_ms, None, tuple(f"c-{(first + seq + n) % _KEYS}" for n in range(_BATCH))
            )
            for seq in range(1, _PIPE + 1, _BATCH)
        ),
    )


def _keys(first: int) -> Iterator[str]:
    return (f"c-{number % _KEYS}" for number in range(first, first + _BATCH))


def _stretches(at_s: int) -> Iterator[Stretch]:
    for seq in range(_DEAD_EVERY, _PIPE + 1, _DEAD_EVERY):
        first = seq - _DEAD_EVERY + 1
        yield Stretch(first, seq - 1, End.COMMITTED, 1, ended_at_s=at_s, holder="a popper")
        yield Stretch(seq, seq, End.DEAD, 5, "no route", ended_at_s=at_s, holder="a popper")


def measure(spark: SparkSession, url: str, out: Path, failed: Sequence[MessageId]) -> dict[str, Figures]:
    """Index a journal, and ask for messages by their key and by their id; return seconds."""
    begun = time.perf_counter()
    for query in start_index(spark, url, str(out), once=True):
        query.awaitTermination()
    found = {"index": Figures((time.perf_counter() - begun,))}
    keys = [f"c-{_DEAD_EVERY * number}" for number in range(_QUERIES)]
    found["all that failed of a key in an hour"] = Figures(tuple(_seconds(spark, out, key) for key in keys))
    found["one message by its id"] = Figures(tuple(_look_up(out, each) for each in failed[-_QUERIES:]))
    return found


def _seconds(spark: SparkSession, out: Path, key: str) -> float:
    begun = time.perf_counter()
    recent = "ended_at > now() - INTERVAL 1 HOUR"
    rows = history(spark, str(out)).where(f"key = '{key}' AND ending = 'dead' AND {recent}").collect()
    taken = time.perf_counter() - begun
    if not rows or {row.reason for row in rows} != {"no route"}:
        raise AssertionError(f"{key}: found {rows}")
    return taken


def _look_up(out: Path, message_id: MessageId) -> float:
    begun = time.perf_counter()
    found = find_in_index(str(out), message_id)
    taken = time.perf_counter() - begun
    if found is None or found.status.state.value != "dead":
        raise AssertionError(f"{message_id}: found {found}")
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("journal", "Indexing the journal, and asking the index.")
    made.add_argument("--messages", type=counts, metavar="N", help="how many (10000000)")
    made.set_defaults(store="sqlite", synced=False)
    options = made.parse_args(arguments)
    messages = (options.messages or [100_000 if options.short else 10_000_000])[0]
    with staged(options) as stage, session(stage.folder) as spark:
        url = f"sqlite:///{stage.folder / 'journal.db'}"
        failed = make_journal(url, messages)
        out = stage.folder / "index"
        found = measure(spark, url, out, failed)
        frame = history(spark, str(out))
        if (count := frame.count()) != len(failed) * _PIPE:
            raise AssertionError(f"the index has {count} messages")
        size = sum(each.stat().st_size for each in out.rglob("*.parquet"))
        shutil.rmtree(out)
        load = {"Spark": f"{spark.version}, local[2]", "messages": str(messages)}
        settings = tell_settings(stage.told, load)
    rows = [[name, tell_figures(each, " s")] for name, each in found.items()]
    rows.append(["files, bytes for each message", f"{size / messages:.1f}"])
    Report("journal", settings, [Table("The index", ("", ""), rows)], raw_figures(found)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
