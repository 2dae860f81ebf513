"""Reading and writing a queue through Spark, beside two other ways to move the same rows.

    tools/bench/spark                            1 000 000 messages of 256 B on local[2], and a tenth of that

Owns the two others: a `mapPartitions` as somebody would write it for this schema with the driver, and Parquet
files. What must not break: each reads, or writes, the same number of rows with the same bodies, and says so.
"""

import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import cassq
import cassq.spark
from _bench.measuring.compare import Figures, interleave, ratio
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, counts, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_ratio
from _bench.stage import Stage, staged

_BODY_BYTES = 256
_BATCH = 500
_PIPE = 10_000
_TASKS = 8


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Lend a Spark session of two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("cassq bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    cassq.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


class Work:
    """What is measured, for one number of messages.

    Args:
        url: of the store.
    """

    def __init__(self, spark: SparkSession, stage: Stage, url: str, count: int) -> None:
        self._spark = spark
        self._stage = stage
        self._url = url
        self._count = count
        self._files = stage.folder / f"bodies-{count}.parquet"
        self._turn = 0

    def prepare(self) -> None:
        """Make the bodies once, as files, and fill a queue to be read."""
        # 8 x 32 hexadecimal digits: 256 bytes that no codec makes much smaller than half.
        digest = [f.md5(f.concat("id", f.lit(f"-{part}"))) for part in range(_BODY_BYTES // 32)]
        frame = self._spark.range(self._count, numPartitions=_TASKS).select(
            f.concat(*digest).cast("binary").alias("body")
        )
        frame.write.mode("overwrite").parquet(str(self._files))
        with cassq.connect(self._url) as store:
            store.queue(self._queue)
        self._write(self._bodies(), self._queue)

    def measures(self) -> dict[str, Callable[[], float]]:
        """Return what to measure, by name."""
        found: dict[str, Callable[[], float]] = {
            "read cassq": self._timed(self._read_cassq),
            "read parquet": self._timed(self._read_parquet),
            "write cassq": self._timed(self._write_cassq, self._clear_copy),
            "write parquet": self._timed(self._write_parquet),
        }
        if self._stage.server:
            found |= {
                "read driver": self._timed(self._read_driver),
                "write driver": self._timed(self._write_driver),
            }
        return {f"{name} {self._count}": measure for name, measure in found.items()}

    @property
    def _queue(self) -> str:
        return f"spark-{self._count}"

    def _bodies(self) -> DataFrame:
        return self._spark.read.parquet(str(self._files))

    def _timed(
        self, work: Callable[[], int], after: Callable[[], object] = lambda: None
    ) -> Callable[[], float]:
        def measure() -> float:
            begun = time.monotonic()
            rows = work()
            seconds = time.monotonic() - begun
            after()
            if rows != self._count:
                raise RuntimeError(f"{self._count} rows were expected, {rows} came")
            return self._count / seconds

        return measure

    def _read_cassq(self) -> int:
        frame = self._spark.read.format("cassq").option("url", self._url).option("queue", self._queue).load()
        return _bytes_of(frame) // _BODY_BYTES

    def _read_parquet(self) -> int:
        return _bytes_of(self._bodies()) // _BODY_BYTES

    def _read_driver(self) -> int:
        hosts, keyspace = self._place()
        with cassq.connect(self._url) as store:
            pipes = [each.pipe for each in store.find_queue(self._queue).pipes()]
        rows = self._spark.sparkContext.parallelize(pipes, _TASKS).mapPartitions(
            lambda some: read_pipes(hosts, keyspace, some)
        )
        return int(
            _bytes_of(self._spark.createDataFrame(rows, "pipe string, seq long, body binary")) // _BODY_BYTES
        )

    def _write_cassq(self) -> int:
        with cassq.connect(self._url) as store:
            store.queue("spark-copy")
        self._write(self._bodies(), "spark-copy")
        with cassq.connect(self._url) as store:
            return int(store.find_queue("spark-copy").stats().waiting)

    def _write(self, frame: DataFrame, queue: str) -> None:
        frame.write.format("cassq").option("url", self._url).option("queue", queue).mode("append").save()

    def _clear_copy(self) -> None:
        with cassq.connect(self._url) as store:
            store.delete_queue("spark-copy")

    def _write_parquet(self) -> int:
        self._turn += 1
        place = self._stage.folder / f"copy-{self._turn}.parquet"
        self._bodies().write.parquet(str(place))
        rows = int(self._spark.read.parquet(str(place)).count())
        shutil.rmtree(place)
        return rows

    def _write_driver(self) -> int:
        hosts, keyspace = self._place()
        return int(
            self._bodies()
            .rdd.mapPartitions(lambda rows: write_pipes(hosts, keyspace, (bytes(row.body) for row in rows)))
            .sum()
        )

    def _place(self) -> tuple[list[tuple[str, int]], str]:
        server = self._stage.server
        if server is None:
            raise RuntimeError("there is no Cassandra here")
        server.prepare(is_raw=True)
        return list(server.target.hosts), server.target.keyspace


def _bytes_of(frame: DataFrame) -> int:
    found = frame.select(f.sum(f.octet_length("body"))).first()
    return int(found[0]) if found else 0


def _driver(hosts: Sequence[tuple[str, int]], keyspace: str) -> Any:  # noqa: ANN401 - the driver's session
    from cassandra.cluster import Cluster  # noqa: PLC0415 - runs in an executor

    return Cluster([host for host, _ in hosts], port=hosts[0][1], protocol_version=5).connect(keyspace)


def read_pipes(
    hosts: Sequence[tuple[str, int]], keyspace: str, pipes: Iterable[uuid.UUID]
) -> Iterator[tuple[str, int, bytes]]:
    """Yield the messages of pipes, as a short program with the driver would."""
    driver = _driver(hosts, keyspace)
    read = driver.prepare("SELECT first, bodies FROM waiting WHERE pipe = ?")
    read.fetch_size = 64
    for pipe in pipes:
        for first, bodies in driver.execute(read, (pipe,)):
            for place, body in enumerate(bodies):
                yield str(pipe), first + place, body
    driver.cluster.shutdown()


def write_pipes(hosts: Sequence[tuple[str, int]], keyspace: str, bodies: Iterable[bytes]) -> Iterator[int]:
    """Write bodies in batches into rows of `waiting` that nobody lists; yield how many."""
    driver = _driver(hosts, keyspace)
    write = driver.prepare(
        "INSERT INTO waiting (pipe, first, count, bodies, pushed_at) "
        "VALUES (?, ?, ?, ?, to_timestamp(now())) USING TIMESTAMP 1"
    )
    pipe, first, count = uuid.uuid1(), 1, 0
    batch: list[bytes] = []
    for body in bodies:
        batch.append(body)
        if len(batch) == _BATCH:
            driver.execute(write, (pipe, first, len(batch), batch))
            count += len(batch)
            first += len(batch)
            batch = []
            if first > _PIPE:
                pipe, first = uuid.uuid1(), 1
    if batch:
        driver.execute(write, (pipe, first, len(batch), batch))
        count += len(batch)
    driver.cluster.shutdown()
    yield count


def tabulate(counted: Sequence[int], found: dict[str, Figures], rounds: int) -> list[Table]:
    """Return the figures as tables: beside the others, and how they grow."""
    rows = []
    for count in counted:
        for verb in ("read", "write"):
            ours = found[f"{verb} cassq {count}"]
            cells = [f"{verb} {count} messages", tell_figures(ours, "/s")]
            for other in ("driver", "parquet"):
                theirs = found.get(f"{verb} {other} {count}")
                cells += [tell_figures(theirs, "/s"), tell_ratio(ratio(ours, theirs))] if theirs else ["", ""]
            rows.append(cells)
    titles = ("", "cassq", "mapPartitions, driver", "cassq / driver", "Parquet", "cassq / Parquet")
    tables = [
        Table(f"Messages of {_BODY_BYTES} B per second: median (range) of {rounds} rounds", titles, rows)
    ]
    if len(counted) > 1:
        small, large = min(counted), max(counted)
        growth = []
        for verb in ("read", "write"):
            seconds = [
                Figures(tuple(n / rate for rate in found[f"{verb} cassq {n}"].values)) for n in (small, large)
            ]
            growth.append((verb, tell_ratio(ratio(seconds[1], seconds[0]))))
        tables.append(Table("How the time grows", ("cassq", f"{large} / {small} messages"), growth))
    return tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("spark", "Reading and writing a queue through Spark, beside the driver and beside Parquet.")
    add_store(made)
    made.add_argument("--messages", type=counts, metavar="N,…", help="how many (100000,1000000)")
    options = made.parse_args(arguments)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    counted = options.messages or ([20_000] if options.short else [100_000, 1_000_000])
    with staged(options) as stage, session(stage.folder) as spark:
        url = stage.server.store_url() if stage.server else f"sqlite:///{stage.folder / 'spark.db'}"
        load = {"Spark": f"{spark.version}, local[2]", "rounds": str(rounds)}
        settings = tell_settings(stage.told, load)
        work = [Work(spark, stage, url, count) for count in counted]
        for each in work:
            each.prepare()
        found = interleave(
            {name: measure for each in work for name, measure in each.measures().items()},
            rounds,
            title="spark",
        )
    Report("spark", settings, tabulate(counted, found, rounds), raw_figures(found)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
