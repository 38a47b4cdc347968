"""Storage through Hadoop's S3A, against a server of the S3 protocol on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from java_side import (
    check_conformance,
    classpath,
    compile_helpers,
    jars,
    skipped_without_jars,
    tool,
)

BUCKET = "bucket"


@dataclass(frozen=True)
class Server:
    """A running server, the compiled helpers, and Hadoop's settings to reach it."""

    helpers: Path
    client: list[Path]
    settings: dict[str, str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("s3")
    (folder / "objects" / BUCKET).mkdir(parents=True)
    with skipped_without_jars():
        cluster, proxy = jars("hdfs"), jars("s3proxy")
        client = jars("s3a")
    helpers = compile_helpers(folder / "classes", *cluster)
    endpoint = f"http://127.0.0.1:{free_port()}"
    (folder / "s3proxy.conf").write_text(
        f"s3proxy.endpoint={endpoint}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        "s3proxy.identity=user\n"
        "s3proxy.credential=secret\n"
        "jclouds.provider=filesystem\n"
        f"jclouds.filesystem.basedir={folder / 'objects'}\n"
    )
    path = os.pathsep.join(map(str, [helpers, *proxy]))
    program = ["UntilInputEnds", "org.gaul.s3proxy.Main"]
    program += ["--properties", str(folder / "s3proxy.conf")]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [tool("java"), "-Xmx256m", "-cp", path, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n", (folder / "log.txt").read_text()[-4000:]
        yield Server(
            helpers=helpers,
            client=client,
            settings={
                "fs.s3a.endpoint": endpoint,
                "fs.s3a.endpoint.region": "us-east-1",
                "fs.s3a.path.style.access": "true",
                "fs.s3a.connection.ssl.enabled": "false",
                "fs.s3a.access.key": "user",
                "fs.s3a.secret.key": "secret",
                "fs.s3a.input.stream.type": "classic",
            },
        )
        process.stdin.close()
        process.wait(timeout=60)


def test_the_storage_conformance_suite_passes_on_s3a(server: Server) -> None:
    settings = [f"{key}={value}" for key, value in server.settings.items()]
    path = classpath(server.helpers, *server.client)
    check_conformance(path, f"s3a://{BUCKET}/conformance", *settings)
