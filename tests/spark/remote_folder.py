"""A folder on any Hadoop file system, seen by way of the session's JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
        """Names of all files below a folder, relative to this one; none where it is absent."""
        found = []
        files, path = self.file_system(), self.path(below)
        if files.exists(path):
            entries = files.listFiles(path, True)
            while entries.hasNext():
                found.append(entries.next().getPath().toString().split(self.uri + "/", 1)[1])
        return sorted(found)

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
