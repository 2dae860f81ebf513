"""What Spark looks for: every top-level module named `pyspark_…` may bring a data source."""

from cassq.spark.source import CassqDataSource as DefaultSource

__all__ = ["DefaultSource"]
