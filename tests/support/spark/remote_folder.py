"""A folder on any Hadoop file system, seen through the session's JVM."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RemoteFolder:
    """Files below ``uri``."""

    spark: SparkSession
    uri: str

    def path(self, name: str = "") -> Any:
        """A Hadoop ``Path`` of this folder, or of a name below it."""
        assert self.spark._jvm is not None
        return self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def file_system(self) -> Any:
        """Hadoop's ``FileSystem`` of this folder."""
        return self.path().getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())

    def files(self, below: str = "") -> list[str]:
        """Names of all files below a folder, relative to this one; none if it is missing."""
        found = []
        files, path = self.file_system(), self.path(below)
        if files.exists(path):
            entries = files.listFiles(path, True)
            while entries.hasNext():
                found.append(entries.next().getPath().toString().split(self.uri + "/", 1)[1])
        return sorted(found)

    def merged_files(self) -> list[str]:
        """Names of Holdfast's physical files of a checkpoint."""
        return [name for name in self.files("state/holdfast") if name.count("/") == 2]

    def exists(self, name: str) -> bool:
        return bool(self.file_system().exists(self.path(name)))

    def read(self, name: str) -> str:
        stream = self.file_system().open(self.path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def commit_ids(self, batch: int) -> dict[str, list[list[str]]]:
        """State store ids of one batch of the checkpoint in this folder."""
        text = self.read(f"commits/{batch}")
        ids: dict[str, list[list[str]]] = json.loads(text.split("\n", 1)[1])["stateUniqueIds"]
        return ids


@dataclass(frozen=True, order=True)
class RemotePath:
    """The part of ``pathlib.Path`` that reads a checkpoint."""

    uri: str
    spark: SparkSession = field(compare=False)

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.uri}/{name}", self.spark)

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def _path(self) -> Any:
        return RemoteFolder(self.spark, self.uri).path()

    @property
    def _files(self) -> Any:
        return RemoteFolder(self.spark, self.uri).file_system()

    def exists(self) -> bool:
        return bool(self._files.exists(self._path))

    def glob(self, pattern: str) -> list[RemotePath]:
        """The content of a folder; the pattern must be ``*``."""
        assert pattern == "*"
        if not self.exists():
            return []
        return [self / found.getPath().getName() for found in self._files.listStatus(self._path)]

    def read_bytes(self) -> bytes:
        stream = self._files.open(self._path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def open(self, mode: str) -> io.BytesIO:
        assert mode == "rb"
        return io.BytesIO(self.read_bytes())

    def stat(self) -> SimpleNamespace:
        """Only its readable size, also for a file that was never closed."""
        return SimpleNamespace(st_size=len(self.read_bytes()))
