"""Commands of Holdfast, each in a process of its own, and their resident memory. Run as a program.

Runs one command, and prints the most resident memory that its JVM had.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.cli import local_spark
from holdfast.cli.main import main

PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def peak(spark: SparkSession) -> int:
    """The most resident memory that the JVM of a session had, in bytes."""
    jvm: Any = spark._jvm
    process = jvm.java.lang.ProcessHandle.current().pid()
    found = PEAK.search(Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def measured() -> int:
    """Run the command of this process, and return the peak in bytes."""
    real, peaks = local_spark.session, []

    @contextmanager
    def session(*arguments: Any, **named: Any) -> Iterator[SparkSession]:
        with real(*arguments, **named) as spark:
            yield spark
            peaks.append(peak(spark))

    local_spark.session = session
    if main(sys.argv[1:]):
        sys.exit(1)
    (most,) = peaks
    return most


if __name__ == "__main__":
    print(measured())
