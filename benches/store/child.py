"""One run of the store benchmark in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.process import Reporter, report_to_parent
from holdfast._options import OPTIONS

# A script finds what is beside it; this is where the packages are, and the means of the tests.
sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from common.recording import end_recordings

from store.session import start_spark
from support.spark.queries import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Keys of the stores on which the JVM warms up, and how often it does everything there.
_WARM_UP_KEYS = 100_000
_WARM_UPS = 2

_GROUP_SIZE = 10
_PASSES = 2
_COMMITS = 5
_RESTORES = 2

#: So that most of a store is in an image, which a few commits follow.
_IMAGES = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "2"}

_NS_PER_MS = 1e6
_NS_PER_US = 1e3


class Scenario:
    """The operations on stores of one provider, and their cost.

    Parameters
    ----------
    native
        True if the provider keeps its entries outside the Java heap.
    step
        Called with what is done next.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, *, native: bool, step: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._step = step
        self._folder = folder
        self._native = native
        self._stores = 0
        self.values: dict[str, list[float]] = defaultdict(list)

    def _bench(self) -> Any:
        assert self._spark._jvm is not None
        return self._spark._jvm.io.holdfast.bench.StoreBench

    def _store(self, *, keys: int, group_size: int = 1) -> Any:
        self._stores += 1
        checkpoint = str(self._folder / f"checkpoint-{self._stores}")
        return self._bench()(self._spark._jsparkSession, checkpoint, keys, group_size)

    def _commit(self, store: Any) -> float:
        took = store.commit() / _NS_PER_MS
        self.values["publish_ms"].append(store.publish() / _NS_PER_MS)
        return float(took)

    def points(self, *, keys: int, changes: int) -> None:
        """Single rows in and out, a whole scan, and commits of a few changes."""
        values = self.values
        heap = self._bench().heapBytes()
        store = self._store(keys=keys)
        self._step("put")
        store.begin()
        values["put_ns"].append(store.put(keys, 0) / keys)
        values["commit_all_ms"].append(self._commit(store))
        values["entry_bytes"].append(self._entry_bytes(store, heap, keys))
        values["open_ms"].append(store.begin() / _NS_PER_MS)
        self._step("get and scan")
        for _ in range(_PASSES):
            values["get_ns"].append(store.getHits(keys, 0) / keys)
            values["miss_ns"].append(store.getMisses(keys) / keys)
            values["scan_ns"].append(store.scan(0) / keys)
        self._step("update")
        values["update_ns"].append(store.put(keys, keys) / keys)
        self._commit(store)
        for number in range(_COMMITS):
            values["open_ms"].append(store.begin() / _NS_PER_MS)
            store.put(changes, number * changes)
            values["commit_ms"].append(self._commit(store))
        self._step("remove")
        store.begin()
        values["remove_ns"].append(store.remove(keys) / keys)
        store.abort()
        store.close()

    def _entry_bytes(self, store: Any, heap_before: int, keys: int) -> float:
        # A provider only estimates its own heap: the difference of two readings is what it retains.
        in_heap = self._bench().heapBytes() - heap_before
        return float(in_heap + (store.memoryUsedBytes() if self._native else 0)) / keys

    def prefixes(self, *, keys: int) -> None:
        """Scans of prefixes that `_GROUP_SIZE` keys share."""
        store = self._store(keys=keys, group_size=_GROUP_SIZE)
        self._step("put, prefix store")
        store.begin()
        self.values["prefix_put_ns"].append(store.put(keys, 0) / keys)
        self._commit(store)
        store.begin()
        self._step("prefix scans")
        count = keys // _GROUP_SIZE
        for _ in range(_PASSES):
            took = store.scanPrefixes(count, 0)
            self.values["prefix_us"].append(took / count / _NS_PER_US)
        store.abort()
        store.close()

    def restores(self, *, keys: int, changelogs: int, changes: int, maintained: bool) -> None:
        """Loads of a store by a fresh provider after many commits."""
        name = "restore_maintained_ms" if maintained else "restore_ms"
        self._step(f"{changelogs} commits, {'with' if maintained else 'without'} maintenance")
        store = self._changed(
            keys=keys, changelogs=changelogs, changes=changes, maintained=maintained
        )
        self._restore(store, name)

    def cold_restores(self, *, keys: int, changelogs: int, changes: int) -> None:
        """The same where state may leave memory, and nothing of it is to be there at first."""
        self._step(f"{changelogs} commits of state that may leave memory")
        target = OPTIONS["target_memory_bytes"].key
        with settings(self._spark, {**_IMAGES, target: "1t"}):
            store = self._changed(
                keys=keys, changelogs=changelogs, changes=changes, maintained=True
            )
        with settings(self._spark, {**_IMAGES, target: "1"}):
            self._restore(store, "restore_cold_ms")

    def image_restores(self, *, keys: int, changelogs: int, changes: int) -> None:
        """Loads by a fresh provider, up to its first key, and up to the last of all."""
        self._step(f"{changelogs} commits of {keys:,} keys")
        with settings(self._spark, _IMAGES):
            store = self._changed(
                keys=keys, changelogs=changelogs, changes=changes, maintained=True
            )
            self._restore(store, "restore_image_ms", then_all="restore_all_ms")

    def _changed(self, *, keys: int, changelogs: int, changes: int, maintained: bool) -> Any:
        store = self._store(keys=keys)
        store.begin()
        store.put(keys, 0)
        self._commit(store)
        for number in range(changelogs):
            store.begin()
            store.put(changes, number * changes)
            self._commit(store)
            if maintained:
                store.maintain()
        return store

    def _restore(self, store: Any, name: str, *, then_all: str | None = None) -> None:
        self._step("restore")
        for _ in range(_RESTORES):
            first = store.restore() / _NS_PER_MS
            self.values[name].append(first)
            if then_all is not None:
                self.values[then_all].append(first + store.getAll() / _NS_PER_MS)
            store.abort()
        store.close()


def _silent(text: str) -> None:
    """Say nothing of what the warm-up does."""


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Warm up, measure, and report what was measured."""
    folder = Path(spec["folder"])
    provider = spec["provider"]
    spark = start_spark(spec)
    native = provider != "spark"
    keys, changes = spec["keys"], spec["changes"]
    warm = min(keys, _WARM_UP_KEYS)
    report("step", text="warm-up")
    for number in range(_WARM_UPS):
        warm_up = Scenario(spark, folder / f"warm-up-{number}", native=native, step=_silent)
        warm_up.points(keys=warm, changes=changes)
        warm_up.prefixes(keys=warm)
    measured = Scenario(
        spark,
        folder / "measured",
        native=native,
        step=lambda text: report("step", text=text),
    )
    if spec["restores_only"]:
        measured.image_restores(keys=keys, changelogs=spec["changelogs"], changes=changes)
    else:
        measured.points(keys=keys, changes=changes)
        measured.prefixes(keys=keys)
    if spec["changelogs"] and not spec["restores_only"]:
        for maintained in (False, True):
            measured.restores(
                keys=keys,
                changelogs=spec["changelogs"],
                changes=2 * changes,
                maintained=maintained,
            )
        measured.cold_restores(keys=keys, changelogs=spec["changelogs"], changes=2 * changes)
    report("figures", values=measured.values)
    end_recordings(spark)
    report("done")
    spark.stop()


if __name__ == "__main__":
    report_to_parent(run, dict)
