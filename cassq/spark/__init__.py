"""Queues as a data source of Spark: read a snapshot, write in bulk, consume as a stream.

import cassq.spark

cassq.spark.register(spark)
frame = spark.read.format("cassq").option("url", "sqlite:///orders.db").option("queue", "orders").load()

Needs `pip install 'cassq[spark]'` (PySpark 4.3, Java 17) on the driver and on every executor.
"""

import os
import sys
from typing import TYPE_CHECKING

from pyspark import SparkContext

from cassq.spark.source import CassqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CassqDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make `format("cassq")` known to a Spark session; again does no harm.

    Where the module `pyspark_cassq` is on the driver's path, as it is after an installation, Spark finds the
    format by itself at the first use of any Python data source.

    Where PYSPARK_PYTHON is not set, a session on one machine is made to run the interpreter that calls this,
    which has cassq; Spark would take the first `python3` of the PATH.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001 - the session's own is not there with Connect
    if context and "PYSPARK_PYTHON" not in os.environ and context.master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = context.pythonExec = sys.executable
    spark.dataSource.register(CassqDataSource)
