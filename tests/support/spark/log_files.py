"""One of Spark's logs, written by Holdfast's checkpoint file manager."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

#: The error of a writer whose entry another one wrote.
TAKEN = "FileAlreadyExistsException"
#: The logs of a query with one source of files.
LOGS = ("sources/0", "offsets", "commits")


class Files:
    """A checkpoint file manager for the log in the folder ``uri``."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._path = jvm.org.apache.hadoop.fs.Path
        self.conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._uri = uri
        of_folder = self._path(uri)
        self.manager = jvm.io.holdfast.spark.HoldfastCheckpointFileManager(of_folder, self.conf)
        self.manager.mkdirs(of_folder)

    def path(self, name: str) -> Any:
        return self._path(f"{self._uri}/{name}")

    def begin(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        out = self.manager.createAtomic(self.path(name), overwrite)
        out.write(bytearray(content))
        return out

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        self.begin(name, content, overwrite=overwrite).close()

    def exists(self, name: str) -> bool:
        return bool(self.manager.exists(self.path(name)))

    def delete(self, name: str) -> None:
        self.manager.delete(self.path(name))

    def open(self, name: str) -> Any:
        return self.manager.open(self.path(name))

    def read(self, name: str) -> bytes:
        """The content that Hadoop reads, with a check of the checksums."""
        file = self.path(name).getFileSystem(self.conf).open(self.path(name))
        return bytes(file.readAllBytes())
