"""Object stores for tests: S3 through Hadoop's S3A, and a file system that behaves like one.

The objects of both can be seen as files, by their names in jobs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from support.servers import free_port
from support.spark.class_archive import on_class_path
from support.spark.java_side import QUICK_START, JavaServer, jars, s3a_jars, tool
from support.spark.remote_folder import RemotePath

#: The server's metrics for Prometheus.
_SERVED = re.compile(
    r"http_server_request_duration_seconds_count\{(?P<labels>[^}]*)\} (?P<count>\S+)"
)
_OPERATION = re.compile(r'\bs3_operation="(?P<name>\w+)"')


@dataclass(frozen=True)
class Store:
    """A place for a checkpoint."""

    #: The checkpoint's name in jobs.
    uri: str
    #: The same, as files.
    folder: Path | RemotePath
    #: Settings of Spark with which jobs reach it.
    settings: dict[str, str]
    #: The environment of jobs.
    environment: dict[str, str]


def stand_in(helpers: Path, folder: Path) -> Store:
    """``ObjectsFileSystem``: a local folder with the rules of an object store."""
    settings = {"spark.hadoop.fs.objects.impl": "ObjectsFileSystem"}
    return Store(f"objects:{folder}", folder, settings, on_class_path(helpers))


def requests_served(metrics_port: int) -> Counter[str]:
    """Return the number of requests of a server so far, by kind."""
    metrics = HTTPConnection("127.0.0.1", metrics_port, timeout=30)
    metrics.request("GET", "/metrics")
    text = metrics.getresponse().read().decode()
    metrics.close()
    counts: Counter[str] = Counter()
    for served in _SERVED.finditer(text):
        operation = _OPERATION.search(served["labels"])
        counts[operation["name"] if operation else "Other"] += int(float(served["count"]))
    return counts


@dataclass
class S3Server(JavaServer):
    """A server of the S3 protocol on loopback, in a JVM of its own.

    Parameters
    ----------
    folder
        Receives the buckets, as folders, and the log; must exist.
    helpers
        The compiled ``tests/spark/java``.
    environment
        Further variables for the server's process.
    properties
        Further settings of the server.
    """

    folder: Path
    helpers: Path
    environment: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        server, self.client = jars("s3proxy"), s3a_jars()
        (self.folder / "buckets").mkdir()
        endpoint = f"http://127.0.0.1:{free_port()}"
        self.metrics_port = free_port()
        #: Hadoop's settings to reach it.
        self.settings = {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": "user",
            "fs.s3a.secret.key": "secret",
            "fs.s3a.input.stream.type": "classic",
        }
        configuration = self.folder / "s3proxy.conf"
        configuration.write_text(
            f"s3proxy.endpoint={endpoint}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            "s3proxy.identity=user\n"
            "s3proxy.credential=secret\n"
            "s3proxy.metrics.enabled=true\n"
            "s3proxy.metrics.host=127.0.0.1\n"
            f"s3proxy.metrics.port={self.metrics_port}\n"
            "jclouds.provider=filesystem\n"
            f"jclouds.filesystem.basedir={self.folder / 'buckets'}\n"
            + "".join(f"{key}={value}\n" for key, value in self.properties.items())
        )
        path = os.pathsep.join(map(str, [self.helpers, *server]))
        # The server's log gets everything on standard error, and so must not write there itself.
        log = "-Dorg.slf4j.simpleLogger"
        options = ["-Xmx256m", f"{log}.defaultLogLevel=warn", f"{log}.cacheOutputStream=true"]
        program = ["UntilInputEnds", "org.gaul.s3proxy.Main", "--properties", str(configuration)]
        self.log = (self.folder / "log.txt").open("wb")
        self.process = subprocess.Popen(
            [tool("java"), *QUICK_START, *options, "-cp", path, *program],
            env=os.environ | self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "started\n":
            raise AssertionError((self.folder / "log.txt").read_text()[-4000:])

    def requests(self) -> Counter[str]:
        """Return the number of requests so far, by kind."""
        return requests_served(self.metrics_port)

    def bucket(self, name: str) -> Path:
        """Make a bucket; returns the folder with its objects."""
        folder = self.folder / "buckets" / name
        folder.mkdir()
        return folder

    def store(self, name: str) -> Store:
        """Make a bucket for a checkpoint."""
        settings = {f"spark.hadoop.{key}": value for key, value in self.settings.items()}
        folder = self.bucket(name) / "checkpoint"
        return Store(f"s3a://{name}/checkpoint", folder, settings, on_class_path(*self.client))
