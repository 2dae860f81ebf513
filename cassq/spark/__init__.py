"""Queues as a data source of Spark: read a snapshot, write in bulk, consume as a stream.

import cassq.spark

cassq.spark.register(spark)
frame = spark.read.format("cassq").option("url", "sqlite:///orders.db").option("queue", "orders").load()

Needs `pip install 'cassq[spark]'` (PySpark 4.3, Java 17) on the driver and on every executor.
"""

from typing import TYPE_CHECKING

from cassq.spark.source import CassqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CassqDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make `format("cassq")` known to a Spark session; again does no harm.

    Where the module `pyspark_cassq` is on the driver's path, as it is after an installation, Spark finds the
    format by itself at the first use of any Python data source.
    """
    spark.dataSource.register(CassqDataSource)
