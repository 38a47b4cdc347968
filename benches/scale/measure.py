"""The driver of a query with 10 to 1,000 simulated executors: requests, waits, CPU time, memory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.java import compile_java
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target

from harness.process import follow
from harness.screen import Screen
from holdfast import plugin_jars
from holdfast._options import OPTIONS

_HERE = Path(__file__).parent
_SILENCE_S = 1_800.0  # of the batch in which 1,000 executors join

#: Executors of a query, or one of them by ``--executors``.
SIZES = (10, 100, 1_000)

#: Partitions of each executor.
_PARTITIONS = 10

#: Spark's share of further batches between two clean-ups.
_EXTRA = 0.3

#: Clean-ups after the log is full: files of the last batches before may still be needed.
_CLEAN_UPS = 2

_SEED = 7
_KINDS = ("put", "list", "get", "head", "delete", "bulk_delete")
_DRIVER, _CLEAN_UP = "driver", "clean_up"
_NS_PER_MS = 1e6
_MS_PER_S = 1e3

REQUESTS = Metric(name="requests", title="requests of the driver, per batch", decimals=2)
BY_KIND = {
    kind: Metric(name=kind, title=f"of these, {kind.replace('_', ' ')}", decimals=2)
    for kind in _KINDS
}
BESIDE = Metric(name="beside", title="requests of clean-ups, per batch", decimals=2)
PUTS = Metric(name="executor_puts", title="puts of an executor, per batch", decimals=2)
WAIT = Metric(name="wait_s", title="a batch waits for the driver's requests, s", decimals=2)
LONGEST = Metric(name="longest_s", title="the longest such wait, s", decimals=2)
READS = Metric(name="reads", title="reads of a clean-up, per 1,000 new files", decimals=2)
CLEAN_UP = Metric(name="clean_up_s", title="a clean-up waits for its requests, s", decimals=1)
CPU = Metric(name="cpu_ms", title="CPU time of the driver, ms a batch", decimals=1)
CLEAN_UP_CPU = Metric(name="clean_up_cpu_ms", title="of this, clean-ups", decimals=1)
MESSAGES_CPU = Metric(name="messages_cpu_ms", title="of this, messages of both sides", decimals=1)
HEAP = Metric(name="heap_mib", title="heap of the driver in the end, MiB")
START = Metric(name="first_requests", title="requests of the first start and batch")
RESTART = Metric(name="restart_requests", title="requests of a restart")
RESTART_WAIT = Metric(
    name="restart_s", title="wait of a restart up to its first batch, s", decimals=1
)

METRICS = (
    *(REQUESTS, *BY_KIND.values(), BESIDE, PUTS, WAIT, LONGEST, READS, CLEAN_UP),
    *(CPU, CLEAN_UP_CPU, MESSAGES_CPU, HEAP, START, RESTART, RESTART_WAIT),
)

#: Of the largest size.
TARGETS = (
    Target(metric=REQUESTS, at_most=5),
    Target(metric=READS, at_most=1),
    Target(metric=CPU, at_most=300),
    Target(metric=HEAP, at_most=512),
    Target(metric=RESTART, at_most=200),
)

NOTES = (
    "The driver's code is the plugin's, and executors are simulated around the plugin's code. The "
    "store is in memory and counts\nthe requests of S3A. A wait is the sum of the requests' times "
    "on a virtual clock: 30 ms a put or delete, 15 ms a get or\nhead, 80 ms a list or bulk delete. "
    "Executors that the driver asks work at the same time. Tasks take no time. Clean-ups\nrun "
    "beside batches. So do Spark's deletions of old entries, which are among the requests of a "
    "batch. CPU time: the\nquery's thread, answers to executors, clean-ups and Spark's threads for "
    "messages, which serve both sides here. Without the\nstore and its client. Heap: after "
    "collections, Spark's included, without executors and the content of the store. A\nrestart: up "
    "to its first batch and the clean-up behind it. There are no copies of commits."
)

#: The settings of the query, without its retention.
_SETTINGS = {
    "spark.hadoop.fs.scale.impl": "io.holdfast.bench.CountedStore",
    "spark.hadoop.fs.AbstractFileSystem.scale.impl": "io.holdfast.bench.CountedContext",
    # A client knows by its settings whose it is.
    "spark.hadoop.fs.scale.impl.disable.cache": "true",
    # Spark's block manager keeps copies, and executors are in one process here.
    OPTIONS["commit_copies"].key: "0",
    OPTIONS["local_cache_bytes"].key: "0",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of one size.

    Attributes
    ----------
    executors
        How many there are at any time.
    retained
        Batches that Spark retains.
    """

    folder: Path
    executors: int
    retained: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"scale-{self.executors}-executors"

    @property
    def between(self) -> int:
        """Return the batches from one clean-up to the next."""
        return round(self.retained * _EXTRA)

    @property
    def batches(self) -> int:
        """Return the batches up to the restart, whose first one has a clean-up behind it."""
        least = self.retained + _CLEAN_UPS * self.between
        return -(-least // self.between) * self.between - 1

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.executors:,} executors with {_PARTITIONS} partitions each, which commit a few "
            f"changes in each of {self.batches} batches\n{self.retained} batches are retained; a "
            f"clean-up follows after every {self.between} batches; executors die and are replaced; "
            f"one run\nFigures are of the last {self.between} batches and of a restart behind them"
        )

    def measure(self, screen: Screen) -> Result:
        """Run the query up to the restart, and restart it.

        Raises
        ------
        ChildError
            If the run fails, or a store finds other state than it wrote.
        BuildError
            If the Java part cannot be compiled.
        """
        classes = self.compiled()
        load = os.getloadavg()[0]
        events: list[tuple[str, Mapping[str, Any]]] = []
        with screen.runs():
            line = screen.run(self.title, rows=None)

            def on_event(kind: str, fields: Mapping[str, Any]) -> None:
                events.append((kind, fields))
                if kind == "batch":
                    line.note(f"batch {fields['batch']}")

            follow(
                [str(_HERE / "child.py")],
                spec=self.spec(classes),
                log=self.folder / f"{self.title}.log",
                silence_s=_SILENCE_S,
                on_event=on_event,
            )
            line.finish("done")
        run = Run(provider=MEASURED, round_number=0, load=load, values=figures(self, events))
        return Result(
            name=self.title,
            plan={
                "executors": self.executors,
                "partitions_each": _PARTITIONS,
                "retained": self.retained,
                "batches_of_each_executor": self.batches,
                "driver_memory": self.driver_memory,
                "curves": [fields for kind, fields in events if kind != "heap"],
            },
            metrics=METRICS,
            targets=TARGETS if self.executors == max(SIZES) else (),
            runs=[run],
            notes=NOTES,
        )

    def compiled(self) -> Path:
        """Return the folder of the compiled Java part."""
        into = self.folder / f"{self.title}-classes"
        return compile_java(_HERE / "java", into=into, jars=plugin_jars())

    def spec(self, classes: Path) -> dict[str, Any]:
        """Return the task of the child."""
        return {
            "classes": str(classes),
            # One place by two names: a new process knows nothing of a store either.
            "checkpoints": ["scale://first/checkpoint", "scale://restarted/checkpoint"],
            "executors": self.executors,
            "partitions_each": _PARTITIONS,
            "driver_memory": self.driver_memory,
            "seed": _SEED,
            "batches": self.batches,
            "batches_restarted": 1,
            "settings": _SETTINGS
            | {
                "spark.sql.streaming.minBatchesToRetain": str(self.retained),
                "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": str(_EXTRA),
            },
        }


def requests(
    events: Sequence[Mapping[str, Any]], roles: Sequence[str], kinds: Sequence[str] = _KINDS
) -> int:
    """Return the number of requests of some kinds in some events."""
    return sum(event[f"{role}_{kind}"] for event in events for role in roles for kind in kinds)


def figures(
    plan: Plan, events: Sequence[tuple[str, Mapping[str, Any]]]
) -> Mapping[str, list[float]]:
    """Return the values of all metrics by what a run reported."""
    starts = [fields for kind, fields in events if kind == "started"]
    batches = [fields for kind, fields in events if kind == "batch"]
    (heap,) = (fields["bytes"] for kind, fields in events if kind == "heap")
    first, *_, restarted = batches
    steady = batches[-1 - plan.between : -1]
    cleaned = [batch for batch in batches[:-1] if "clean_up_cpu_ns" in batch]
    (last,) = (batch for batch in steady if batch in cleaned)
    since = batches.index(cleaned[-2]) + 1
    new = sum(batch["executor_put"] for batch in batches[since : batches.index(last) + 1])
    clean_up_ns = last["clean_up_cpu_ns"] / plan.between
    waits = [batch["path_ms"] / _MS_PER_S for batch in steady]
    driver_ns = [
        batch["query_cpu_ns"] + batch["answers_cpu_ns"] + batch["messages_cpu_ns"] + clean_up_ns
        for batch in steady
    ]
    restart = [starts[1], restarted]
    return {
        REQUESTS.name: [requests(steady, [_DRIVER]) / len(steady)],
        **{
            metric.name: [requests(steady, [_DRIVER], [kind]) / len(steady)]
            for kind, metric in BY_KIND.items()
        },
        BESIDE.name: [requests(steady, [_CLEAN_UP]) / len(steady)],
        PUTS.name: [batch["executor_put"] / plan.executors for batch in steady],
        WAIT.name: waits,
        LONGEST.name: [max(waits)],
        READS.name: [1_000 * (last["clean_up_get"] + last["clean_up_head"]) / new],
        CLEAN_UP.name: [last["clean_up_ms"] / _MS_PER_S],
        CPU.name: [ns / _NS_PER_MS for ns in driver_ns],
        CLEAN_UP_CPU.name: [clean_up_ns / _NS_PER_MS],
        MESSAGES_CPU.name: [batch["messages_cpu_ns"] / _NS_PER_MS for batch in steady],
        HEAP.name: [heap / (1 << 20)],
        START.name: [requests([starts[0], first], [_DRIVER, _CLEAN_UP])],
        RESTART.name: [requests(restart, [_DRIVER, _CLEAN_UP])],
        RESTART_WAIT.name: [sum(step["path_ms"] for step in restart) / _MS_PER_S],
    }


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    sizes = (options.executors,) if options.executors else (4,) if options.quick else SIZES
    for executors in sizes:
        yield Plan(
            folder=folder,
            executors=executors,
            retained=6 if options.quick else 130,
            driver_memory=options.driver_memory,
        )
