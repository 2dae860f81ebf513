"""The file system that Spark writes to, for what is not data: which runs of a job count.

Works wherever Spark's checkpoints do, and in the same way: a file appears whole, and at most one of several
that are created under a name.
"""

from typing import Any

from pyspark.sql import SparkSession


class Files:
    """The files below one folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark's own way to Hadoop's file systems
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._path = self._jvm.org.apache.hadoop.fs.Path
        self._system = self._path(folder).getFileSystem(self._conf)
        self.folder = folder.rstrip("/")

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder below; none where there is no such folder."""
        path = self._at(folder)
        if not self._system.exists(path):
            return []
        return sorted(found.getPath().getName() for found in self._system.listStatus(path))

    def create(self, folder: str, name: str, text: str) -> bool:
        """Make a small file appear, whole; False when there is one of the name."""
        if not self._system.exists(self._at(folder)):
            self._system.mkdirs(self._at(folder))
        checkpoints = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        manager = getattr(checkpoints, "CheckpointFileManager$")
        files = getattr(manager, "MODULE$").create(self._at(folder), self._conf)
        try:
            stream = files.createAtomic(self._at(f"{folder}/{name}"), False)
            stream.write(bytearray(text.encode()))
            stream.close()
        except Exception as error:
            if "AlreadyExists" in str(error):
                return False
            raise
        return True

    def read(self, name: str) -> str:
        """Return a small file."""
        stream = self._system.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file or a folder with all below it; nothing happens when there is none."""
        self._system.delete(self._at(name), True)

    def _at(self, name: str) -> Any:  # noqa: ANN401 - Hadoop's
        return self._path(f"{self.folder}/{name}")
