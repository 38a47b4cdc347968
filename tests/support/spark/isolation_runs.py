"""Runs of ``isolation_job.py``, and of an undisturbed query."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from harness.process import kill_session
from support import environment, program
from support.spark.isolation import BAD, PARTITIONS, feed, results, run, state
from support.spark.queries import settings

SECONDS = 240


def job(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, program("spark/isolation_job.py"), "--folder", str(folder), *arguments],
        env=environment(variables),
        stdout=(folder / "log.txt").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def found(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """The result of a job."""
    process = job(folder, *arguments, variables=variables)
    try:
        assert process.wait(seconds) == 0, log(folder)
    finally:
        if process.poll() is None:
            kill(process)
    result: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return result


def wait_for(path: Path, folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Waits for a file that a job makes."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert process.poll() is None, log(folder)
        assert time.monotonic() < deadline, log(folder)
        time.sleep(0.02)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a job with all its processes."""
    kill_session(process.pid)
    process.wait()


def log(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-60_000:]


def markers(checkpoint: Path) -> dict[int, dict[str, Any]]:
    """By batch, the marker of the batch."""
    return {
        int(file.name): json.loads(file.read_text())
        for file in (checkpoint / "isolation").glob("[0-9]*")
    }


def undisturbed(
    spark: SparkSession,
    folder: Path,
    phases: Sequence[range],
    query: str,
    sink: str = "foreach",
    *,
    partitions: int = PARTITIONS,
    wide: bool = False,
) -> dict[str, Any]:
    """The same batches and restarts with the repaired program, and without isolation."""
    with settings(spark, {"spark.sql.shuffle.partitions": str(partitions)}):
        for batches in phases:
            feed(folder / "input", batches, wide=wide)
            run(spark, folder, query=query, program="good", sink=sink)
        return {"rows": results(spark, folder, sink), "state": state(spark, folder, query)}


def without_bad(whole: dict[str, Any]) -> dict[str, Any]:
    """The result of an undisturbed run without the bad records."""
    rows = [row for row in whole["rows"] if row[0] not in BAD]
    state = [row for row in whole["state"] if not any(f"'{key}'" in row for key in BAD)]
    return {"rows": rows, "state": state}
