"""Spark's UI for tests: an application that follows orders, and the History Server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from support import environment, program
from support.servers import free_port, listens, wait_until_up


class Application:
    """A process of ``ui_job.py``. It prints its answers."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    program("spark/ui_job.py"),
                    str(folder),
                    *(f"{key}={value}" for key, value in settings.items()),
                ],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._is_at(self._answer())

    def ask(self, word: str, *arguments: str) -> Any:
        """Have a word carried out, and return the answer."""
        assert self.process.stdin is not None
        print(json.dumps([word, *arguments]), file=self.process.stdin, flush=True)
        return self._answer()

    def again(self, settings: Mapping[str, str]) -> None:
        """End the application, and begin another one in its process."""
        self._is_at(self.ask("again", *(f"{key}={value}" for key, value in settings.items())))

    def _is_at(self, answer: dict[str, str]) -> None:
        self.url, self.id = answer["url"], answer["application"]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the application ended:\n{self.log.read_text(errors='replace')[-5000:]}"
        return json.loads(line)


@contextmanager
def application(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Application]:
    """Run an application with its input in a folder, until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Application(folder, settings or {})
    try:
        yield running
    finally:
        _kill(running.process)


@contextmanager
def history_server(
    folder: Path, events: Path, settings: Mapping[str, str], class_path: str
) -> Iterator[str]:
    """Run Spark's History Server over event logs on loopback; gives its address.

    Parameters
    ----------
    folder
        Receives its log.
    events
        The logs of applications.
    settings
        Settings of Spark, without their prefix ``spark.history.``.
    class_path
        Its class path in addition to Spark.
    """
    port = free_port()
    wanted = {
        "ui.port": str(port),
        "fs.logDirectory": events.as_uri(),
        "fs.update.interval": "1s",
        **settings,
    }
    options = " ".join(f"-Dspark.history.{key}={value}" for key, value in wanted.items())
    log = folder / f"history-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                "org.apache.spark.deploy.history.HistoryServer",
            ],
            env=environment()
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "512m",
                "SPARK_HISTORY_OPTS": options,
                "SPARK_DAEMON_CLASSPATH": class_path,
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until_up(
            process,
            "the History Server",
            lambda: listens(port),
            lambda: log.read_text(errors="replace"),
        )
        yield f"http://127.0.0.1:{port}"
    finally:
        _kill(process)


def fetched(address: str, headers: Mapping[str, str] | None = None) -> str:
    """The answer of a server, as text."""
    with _asked(address, headers or {}) as answer:
        return str(answer.read().decode())


def headers_of(address: str) -> dict[str, str]:
    """The headers of an answer."""
    with _asked(address, {}) as answer:
        return dict(answer.headers)


def _asked(address: str, headers: Mapping[str, str]) -> Any:
    assert address.startswith("http://127.0.0.1:")
    request = urllib.request.Request(address, headers=dict(headers))  # noqa: S310 - see above
    return urllib.request.urlopen(request, timeout=60)  # noqa: S310


def _kill(process: subprocess.Popen[Any]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
