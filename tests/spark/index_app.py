"""A driver that writes the index of a journal, a few events at a time, until it is killed.

index_app.py URL OUT
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import cassq.spark
from cassq.spark.pipeline import journal_index, start_index


def main(url: str, out: str) -> None:
    """Tell now and then how many batches of both streams are done."""
    journal_index._EVENTS = 1
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    cassq.spark.register(spark)
    pieces, _ = start_index(spark, url, out, ["customer"])
    while not pieces.awaitTermination(0.1):
        sys.stdout.write(f"{len(list(Path(out).glob('_checkpoints/*/commits/[0-9]*')))}\n")
        sys.stdout.flush()
    raise pieces.exception() or RuntimeError("the stream ended by itself")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
