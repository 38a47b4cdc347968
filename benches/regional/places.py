"""Servers on loopback for the checkpoints of the suite of requests, which count requests."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# The tests have the servers, and the means to fetch their jars.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

if TYPE_CHECKING:  # they need PySpark, which suites without Spark do not
    from support.spark.mini_hdfs import MiniHdfs
    from support.spark.object_stores import S3Server

#: What a request to the object store takes, beside the work for it.
S3_REQUEST_MS = 30

_BUCKET = "requests"


class Place(ABC):
    """A server for checkpoints.

    Attributes
    ----------
    uri
        Its root.
    settings
        Spark's, to get there.
    """

    uri: str
    settings: Mapping[str, str]

    @abstractmethod
    def requests(self) -> Counter[str]:
        """Return how many requests there were so far, by kind."""


class Hdfs(Place):
    """A name node and one data node in another JVM; counted is what the name node is asked for."""

    def __init__(self, cluster: MiniHdfs) -> None:
        self._cluster = cluster
        self.settings = {"spark.hadoop.dfs.replication": "1"}
        self.uri = cluster.uri

    def requests(self) -> Counter[str]:
        """Return how many requests there were so far, by kind.

        A client asks again whether a file is complete until its data node has told the name node
        of the last block. How often says nothing about who asks: these repetitions are left out.
        """
        counts = Counter(self._cluster.requests()[0])
        counts["Complete"] = min(counts["Complete"], counts["Create"])
        return counts


class S3(Place):
    """A server of the S3 protocol in another JVM."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        classes = os.pathsep.join(map(str, server.client))
        self.settings = {
            **server.store(_BUCKET).settings,
            "spark.driver.extraClassPath": classes,
            "spark.executor.extraClassPath": classes,
        }
        self.uri = f"s3a://{_BUCKET}"

    def requests(self) -> Counter[str]:
        """Return how many requests there were so far, by kind."""
        return self._server.requests()


@contextmanager
def _open_hdfs(folder: Path) -> Iterator[Place]:
    from support.spark.mini_hdfs import MiniHdfs

    with closing(MiniHdfs(folder, data_nodes=1)) as cluster:
        yield Hdfs(cluster)


@contextmanager
def _open_s3(folder: Path) -> Iterator[Place]:
    from support.spark.java_side import compiled
    from support.spark.object_stores import S3Server

    latency = {"s3proxy.latency-blobstore.*.latency": str(S3_REQUEST_MS)}
    with closing(S3Server(folder, compiled("UntilInputEnds"), properties=latency)) as server:
        yield S3(server)


_OPENERS = {"hdfs": _open_hdfs, "s3": _open_s3}


@contextmanager
def open_place(name: str, folder: Path) -> Iterator[Place]:
    """Start a server, ``hdfs`` or ``s3``, whose files are below a folder."""
    folder.mkdir()
    with _OPENERS[name](folder) as place:
        yield place
