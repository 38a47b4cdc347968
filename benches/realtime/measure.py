"""Latency of a query in Real-Time Mode and the gap between its batches, beside RocksDB."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, in_rounds
from common.targets import MEASURED, Target, title_of

from harness.process import follow
from harness.screen import Screen
from support.regional.kafka_pipeline import PARTITIONS, new_topic
from support.spark.java_side import compiled, jars
from support.spark.kafka_broker import KafkaBroker

_SILENCE_S = 300.0
_ROCKSDB = "rocksdb-changelog"
_NO_STATE = "no state"
_PROVIDERS = (MEASURED, _ROCKSDB, _NO_STATE)

P50 = Metric(name="p50", title="latency, p50, ms")
P90 = Metric(name="p90", title="latency, p90, ms")
P99 = Metric(name="p99", title="latency, p99, ms")
GAP = Metric(name="gap", title="longest silence around a batch's begin, ms")
#: Spark's names of parts of a batch that are in the gap.
PARTS = (
    Metric(name="queryPlanning", title="planning of a batch, ms"),
    Metric(name="walCommit", title="write of its plan, ms"),
    Metric(name="commitOffsets", title="write of its commit, ms"),
)

NOTES = (
    "Latency is the time from the moment in which a row is sent to the topic to the moment in which"
    " its result arrives\nfrom the other topic. Sender and receiver are threads of the process that"
    " runs the driver. The gap is the median of\na run's batches. No state: rows pass without a"
    " shuffle, and Spark then writes its logs in the background."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the query is fed.

    Attributes
    ----------
    batches, warm_up
        Batches of a run that count, and batches before them.
    """

    folder: Path
    rounds: int
    driver_memory: str
    batches: int
    warm_up: int
    batch_s: int = 5
    rows_per_s: int = 100
    partitions: int = 4
    cores: int = 12

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "realtime"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"Kafka to groupBy(key).agg(count, max) to Kafka in Real-Time Mode: {self.rows_per_s} "
            f"rows/s, 1,000 keys, batches of {self.batch_s} s, {self.partitions} partitions, "
            f"checkpoint on a local disk\n{self.rounds} rounds x {len(_PROVIDERS)} in rotated "
            f"order, each run in a fresh JVM (heap {self.driver_memory}); {self.batches} batches "
            f"behind {self.warm_up}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "rows_per_s": self.rows_per_s,
            "batch_s": self.batch_s,
            "batches": self.batches,
            "warm_up": self.warm_up,
            "partitions": self.partitions,
            "cores": self.cores,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a query fails, or a count is wrong.
        """
        folder = self.folder / self.title
        (folder / "kafka").mkdir(parents=True)
        helpers = compiled("UntilInputEnds")
        broker = KafkaBroker(folder / "kafka", helpers, partitions=PARTITIONS)
        with closing(broker), screen.runs():

            def run(provider: str, number: int) -> Run:
                return self._run(screen, broker.servers, folder, provider, number)

            runs = list(in_rounds(_PROVIDERS, self.rounds, run))
        return Result(
            name=self.title,
            plan=self.to_json(),
            metrics=(P50, P90, P99, GAP, *PARTS),
            targets=(
                Target(metric=P50, at_most=1.0, to=_ROCKSDB),
                Target(metric=P99, at_most=0.7, to=_ROCKSDB),
            ),
            runs=runs,
            notes=NOTES,
            bases=(_ROCKSDB,),
        )

    def _run(self, screen: Screen, servers: str, folder: Path, provider: str, number: int) -> Run:
        name = f"{provider.replace(' ', '-')}-{number}"
        load = os.getloadavg()[0]
        topics = {"read": f"{name}-in", "write": f"{name}-out"}
        for topic in topics.values():
            new_topic(servers, topic)
        line = screen.run(f"{title_of(provider)}, round {number + 1}", rows=None)
        values: dict[str, list[float]] = {}

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "run":
                values.update({metric: [float(value)] for metric, value in fields.items()})

        follow(
            [str(Path(__file__).with_name("child.py"))],
            spec={
                **self.to_json(),
                **topics,
                "servers": servers,
                "source_partitions": PARTITIONS,
                "provider": provider,
                "stateful": provider != _NO_STATE,
                "parts": [metric.name for metric in PARTS],
                "checkpoint": str(folder / f"{name}-checkpoint"),
                "settings": {"spark.jars": ",".join(map(str, jars("spark-kafka")))},
            },
            log=folder / f"{name}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )
        p50, p99 = values[P50.name][0], values[P99.name][0]
        line.finish(f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms")
        return Run(provider=provider, round_number=number, load=load, values=values)


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield the plan, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        rounds=options.rounds,
        driver_memory=options.driver_memory,
        batches=4 if options.quick else 8,
        warm_up=2,
    )
