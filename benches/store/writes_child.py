"""One run of the benchmark of writes in a process of its own: ``writes_child.py SPEC FD``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# A script finds what is beside it; this is where the packages are.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from harness.process import Reporter, report_to_parent
from store.session import start_spark

_NS_PER_MS = 1e6

#: A curve of a run has so many points.
_POINTS = 100

#: All keys are put in one batch, but in so many calls.
_PARTS = 20


class Written:
    """Bytes that a process has written so far.

    Parameters
    ----------
    folder
        Folder of the checkpoint.
    process
        Number of the JVM's process.
    """

    def __init__(self, folder: Path, process: int) -> None:
        self._folder = folder
        self._io = Path(f"/proc/{process}/io")
        self._sizes: dict[str, int] = {}
        self._checkpoint = 0

    def look(self) -> dict[str, int]:
        """Return bytes into the checkpoint, bytes of all system calls, and the number of files.

        A file that was deleted counts if it was seen before: look often.
        """
        for parent, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(parent, name)
                try:
                    size = os.stat(path).st_size
                except FileNotFoundError:
                    continue
                grown = size - self._sizes.get(path, 0)
                self._checkpoint += max(grown, 0)
                self._sizes[path] = size
        calls = dict(line.split(": ") for line in self._io.read_text().splitlines())
        return {
            "checkpoint": self._checkpoint,
            "process": int(calls["wchar"]),
            "files": len(self._sizes),
        }


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Put all keys, then change some of them in every batch."""
    spark = start_spark(spec)
    jvm: Any = spark._jvm
    checkpoint = Path(spec["folder"]) / "checkpoint"
    store = jvm.io.holdfast.bench.StoreBench(spark._jsparkSession, str(checkpoint), spec["keys"], 1)
    written = Written(checkpoint, jvm.java.lang.ProcessHandle.current().pid())
    changes, batches = spec["changes"], spec["batches"]
    every = max(1, batches // _POINTS)

    def commit() -> dict[str, float]:
        commit_ns = store.commit()
        store.publish()
        # Before maintenance: it may merge away what the commit wrote.
        written.look()
        maintenance_ns = store.maintain()
        return {
            "commit_ms": commit_ns / _NS_PER_MS,
            "maintenance_ms": maintenance_ns / _NS_PER_MS,
            **written.look(),
        }

    store.begin()
    part = max(1, spec["keys"] // _PARTS)
    for first in range(0, spec["keys"], part):
        store.put(min(part, spec["keys"] - first), first)
        # Ten million keys may take a provider longer than a run may be silent.
        report("put", keys=first + part)
    report("written", batch=0, **commit())
    for batch in range(1, batches + 1):
        store.begin()
        store.put(changes, batch * changes)
        figures = commit()
        if batch % every == 0 or batch == batches:
            report("written", batch=batch, **figures)
    store.close()
    report("done")
    spark.stop()


if __name__ == "__main__":
    report_to_parent(run, dict)
