"""A real HDFS: name node and data nodes in a JVM of their own, on loopback.

They run on the Hadoop of the newest Spark minor, for clients of any minor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.spark.java_side import (
    QUICK_START,
    SERVER_JARS,
    JavaServer,
    classpath,
    compiled,
    jars,
    tool,
)
from support.spark.minors import IS_NEWEST


class MiniHdfs(JavaServer):
    """The other process. It ends with its standard input, so not after this one.

    Parameters
    ----------
    folder
        Receives the disks of the data nodes and the log; must exist.
    data_nodes
        Their number.
    """

    def __init__(self, folder: Path, *, data_nodes: int) -> None:
        cluster = jars("hdfs")
        helpers = compiled("*" if IS_NEWEST else "MiniHdfs", *cluster, spark=SERVER_JARS)
        self.folder = folder
        self.classpath = classpath(helpers, *cluster, spark=SERVER_JARS)
        self.log = (folder / "log.txt").open("wb")
        program = ["MiniHdfs", str(folder / "disks"), str(data_nodes)]
        self.process = subprocess.Popen(
            [tool("java"), *QUICK_START, "-Xmx512m", "-cp", self.classpath, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.uri = self._answer("uri ")

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"HDFS ended: {(self.folder / 'log.txt').read_text()[-4000:]}")
        return line.rstrip("\n")

    def _answer(self, start: str) -> str:
        while not (line := self._line()).startswith(start):
            pass
        return line.removeprefix(start).strip()

    def _command(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def stop_data_node_of(self, file: str) -> None:
        """Stop a data node that has a replica of a file, given by its URI."""
        self._command(f"stop {file}")
        self._answer("stopped")

    def operations(self) -> int:
        """Return the number of requests of clients to the name node."""
        self._command("operations")
        return int(self._answer("operations "))

    def syncs(self) -> int:
        """Return the number of syncs of blocks on data nodes."""
        self._command("syncs")
        return int(self._answer("syncs "))

    def requests(self) -> tuple[dict[str, int], list[str]]:
        """Return the number of requests of each kind, and the requests since the last call.

        The requests have kind, path and other path, without requests about blocks.
        """
        self._command("requests")
        counts: dict[str, int] = {}
        noted: list[str] = []
        while (line := self._line()) != "end":
            what, _, told = line.partition(" ")
            if what == "count":
                count, kind = told.split(" ")
                counts[kind] = int(count)
            elif what == "note":
                noted.append(told)
        return counts, noted

    def code(self, folder: str) -> None:
        """Make a folder whose files are erasure-coded, unless a writer wants them replicated."""
        self._command(f"code {folder}")
        self._answer("coded")

    def coded(self, folder: str) -> list[str]:
        """Return the files below a folder that are erasure-coded, relative to it."""
        self._command(f"coded {folder}")
        found = []
        while (line := self._line()) != "end":
            if line.startswith(f"{folder}/"):
                found.append(line.removeprefix(f"{folder}/"))
        return sorted(found)

    def users(self) -> dict[str, list[str]]:
        """Return requests since the last call by user: kind, path, other path."""
        self._command("users")
        found: dict[str, list[str]] = {}
        while (line := self._line()) != "end":
            if line.startswith("asked "):
                _, user, told = line.split(" ", 2)
                found.setdefault(user, []).append(told)
        return found

    def files(self, folder: str) -> dict[str, int]:
        """Return the length of every file below a folder by its path relative to it."""
        self._command(f"files {folder}")
        found = {}
        while (line := self._line()) != "end":
            if " " + self.uri in line:
                length, uri = line.split(" ", 1)
                found[uri.removeprefix(f"{folder}/")] = int(length)
        return found
