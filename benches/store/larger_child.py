"""One run of the benchmark of large state in a process of its own: ``larger_child.py SPEC FD``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A script finds what is beside it; this is where the packages are.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from common.processes import Process
from memory.native import trim

from harness.process import Reporter, report_to_parent
from store.session import start_spark

_NS_PER_MS = 1e6
_MIB = 1 << 20

#: The store on which the JVM warms up, and how often it does everything there.
_WARM_UP_KEYS = 50_000
_WARM_UP_ROWS = 2_000
_WARM_UPS = 10

#: Batches that fill a store, and batches of one key until the others are in an image or a snapshot.
_FILLING = 20
_SETTLING = 12

#: Workload, how keys are chosen, what is done with each.
WORKLOADS = {
    "zipf": ("chooseZipf", "count"),
    "uniform": ("chooseUniform", "count"),
    "new": ("chooseMostlyNew", "deduplicate"),
}


class Batches:
    """Batches on one store, one after the other, with maintenance behind some of them.

    Parameters
    ----------
    maintain_every
        Batches from one maintenance to the next.
    """

    def __init__(self, store: Any, process: Process, *, maintain_every: int) -> None:
        self._store = store
        self._process = process
        self._maintain_every = maintain_every
        self._batches = 0
        self.touched_keys = 0

    def run(self, workload: str, *, batches: int, rows: int, seed: int) -> Iterator[dict[str, Any]]:
        """Yield what each batch cost."""
        choose, work = WORKLOADS[workload]
        for batch in range(batches):
            keys = getattr(self._store, choose)(rows, seed * 1_000 + batch)
            self.touched_keys += keys
            before = self._process.calls()
            open_ns = self._store.begin()
            work_ns = getattr(self._store, work)()
            commit_ns = self._store.commit()
            after = self._process.calls()
            self._store.requireAll()
            yield {
                "open_ms": open_ns / _NS_PER_MS,
                "work_ms": work_ns / _NS_PER_MS,
                "commit_ms": commit_ns / _NS_PER_MS,
                "batch_ms": (open_ns + work_ns + commit_ns) / _NS_PER_MS,
                "reads": (after["syscr"] - before["syscr"]) / keys,
                "read_bytes": (after["rchar"] - before["rchar"]) / keys,
                "publish_ms": self._store.publish() / _NS_PER_MS,
                "memory_mib": self._store.memoryUsedBytes() / _MIB,
                **self._maintain(),
            }

    def _maintain(self) -> dict[str, float]:
        self._batches += 1
        if self._batches % self._maintain_every:
            return {}
        return {"maintenance_ms": self._store.maintain() / _NS_PER_MS}


def _fill(store: Any, *, keys: int) -> Iterator[str]:
    """Put all keys, with maintenance after each batch so that they can leave memory.

    Yields how far it is.
    """

    def put(start: int, end: int, count: int) -> None:
        store.begin()
        store.fill(start, end, count)
        store.commit()
        store.publish()
        store.maintain()

    at_once = -(-keys // _FILLING)
    for start in range(0, keys, at_once):
        end = min(start + at_once, keys)
        put(start, end, 1)
        yield f"{end:,} keys"
    for number in range(1, _SETTLING + 1):
        # A value that was there already would be no change.
        put(0, 1, 1 + number)
        yield f"image or snapshot, batch {number} of {_SETTLING}"
    store.requireAll()


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Fill a store, or run the batches of one round on one that was filled."""
    folder = Path(spec["folder"])
    spark = start_spark(spec)
    jvm: Any = spark._jvm
    process = Process(jvm.java.lang.ProcessHandle.current().pid())

    def store_in(name: str, keys: int) -> Any:
        return jvm.io.holdfast.bench.LargerBench(spark._jsparkSession, str(folder / name), keys)

    # The folder may be there already, from a round before.
    warm_up = f"warm-up-{process.number}"
    small = store_in(warm_up, _WARM_UP_KEYS)
    report("step", text="warms up")
    for _ in _fill(small, keys=_WARM_UP_KEYS):
        pass
    small_batches = Batches(small, process, maintain_every=2)
    for workload in WORKLOADS:
        for _ in small_batches.run(workload, batches=_WARM_UPS, rows=_WARM_UP_ROWS, seed=0):
            pass
    small.close()
    shutil.rmtree(folder / warm_up)
    trim(process.number)
    empty_bytes = process.resident_bytes()
    written_before = process.calls()["wchar"]
    store = store_in("measured", spec["keys"])
    batches = Batches(store, process, maintain_every=spec["maintain_every"])
    if spec["at"] is None:
        for step in _fill(store, keys=spec["keys"]):
            report("step", text=step)
    else:
        store.stand(spec["at"]["version"], spec["at"]["commit_id"], spec["at"]["next_new"])
        for number, workload in enumerate(spec["workloads"]):
            seed = spec["round"] * len(WORKLOADS) + number + 1
            counts = {"batches": spec["warm_up"] + spec["batches"], "rows": spec["rows"]}
            for batch, figures in enumerate(batches.run(workload, **counts, seed=seed)):
                measured = batch >= spec["warm_up"]
                report("batch", workload=workload, measured=measured, figures=figures)
    report(
        "end",
        at={
            "version": store.version(),
            "commit_id": store.commitId(),
            "next_new": store.nextNew(),
        },
        counted=store.counted(),
        touched_keys=batches.touched_keys or spec["keys"],
        written_bytes=process.calls()["wchar"] - written_before,
        peak_bytes=process.peak_bytes() - empty_bytes,
    )
    store.close()
    report("done")
    spark.stop()


if __name__ == "__main__":
    report_to_parent(run, dict)
