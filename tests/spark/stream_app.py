"""A driver that streams a queue into Parquet until it is killed, or has seen everything.

stream_app.py URL QUEUE FOLDER MESSAGES
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import cassq.spark


def main(url: str, queue: str, folder: str, messages: int) -> None:
    """Stream until the queue has committed so many messages."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    cassq.spark.register(spark)
    stream = (
        spark.readStream.format("cassq")
        .options(url=url, queue=queue, reader="killed", messages_per_trigger=str(max(1, messages // 20)))
        .load()
    )
    query = (
        stream.select("message_id", "body")
        .writeStream.format("parquet")
        .options(path=f"{folder}/out", checkpointLocation=f"{folder}/checkpoint")
        .start()
    )
    with cassq.connect(url) as store:
        watched = store.find_queue(queue)
        while watched.stats().committed < messages:
            if query.awaitTermination(0.2):
                raise query.exception() or RuntimeError("the stream ended by itself")
            done = len(list(Path(folder, "checkpoint", "commits").glob("[0-9]*")))
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
