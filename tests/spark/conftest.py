"""A real Spark session on this machine, for the stores that its processes can share."""

import os
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from support.spark_home import make_spark_home

import cassq.spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[SparkSession]:
    """A session with two executor threads, whose Python workers are processes of their own."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = make_spark_home(folder)
    # Sessions here, and those of the commands that the tests start, live too briefly for more compilation.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    session = (
        SparkSession.builder.master("local[2,4]")  # two threads, four attempts at a task
        .appName("cassq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    cassq.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(params=["file", pytest.param("cassandra", marks=pytest.mark.service)])
def url(request, tmp_path) -> str:
    """The URL of a store that several processes can open."""
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("cluster_url")


@pytest.fixture
def queue(store, name):
    """An empty queue whose pipes are small, so that a few messages fill several; no lease of it ends."""
    return store.queue(name, pipe_messages_max=20, lease=timedelta(hours=1))


@pytest.fixture
def read(spark, url, name):
    """Return a frame of the queue, with more options."""

    def frame(**options):
        reader = spark.read.format("cassq").option("url", url).option("queue", name)
        for option, value in options.items():
            reader = reader.option(option, value)
        return reader.load()

    return frame
