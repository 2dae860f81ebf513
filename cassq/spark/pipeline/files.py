"""The file system that Spark writes to, for what is not data: which runs of a job are whole.

Works wherever Spark's paths do: local, HDFS, an object store.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """The files below one folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark's own way to Hadoop's file systems
        self._path = jvm.org.apache.hadoop.fs.Path
        self._exists = jvm.org.apache.hadoop.fs.FileAlreadyExistsException
        root = self._path(folder)
        self._system = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
        self.folder = folder.rstrip("/")

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder below; none where there is no such folder."""
        path = self._at(folder)
        if not self._system.exists(path):
            return []
        return sorted(found.getPath().getName() for found in self._system.listStatus(path))

    def create(self, name: str, text: str) -> bool:
        """Write a small file that is not there yet; False when it is."""
        path = self._at(name)
        if self._system.exists(path):
            return False
        try:
            stream = self._system.create(path, False)
        except Exception as error:
            if "already exists" in str(error):
                return False
            raise
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return True

    def read(self, name: str) -> str:
        """Return a small file."""
        stream = self._system.open(self._at(name))
        try:
            return bytes(self._bytes(stream)).decode()
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file or a folder with all below it; nothing happens when there is none."""
        self._system.delete(self._at(name), True)

    def _at(self, name: str) -> Any:  # noqa: ANN401 - Hadoop's
        return self._path(f"{self.folder}/{name}")

    def _bytes(self, stream: Any) -> Iterator[int]:  # noqa: ANN401 - Hadoop's
        while (byte := stream.read()) >= 0:
            yield byte
