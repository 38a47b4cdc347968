"""The checkpoint coordinator with very many regions, many of them failing: no Spark, no tasks."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target

from harness.screen import Screen
from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Piece,
    RegionEntry,
    SegmentRef,
    StateEntry,
)
from holdfast.regions.coordinator import (
    Acked,
    Action,
    CheckpointCoordinator,
    CoordinatorOptions,
    Declined,
    Publish,
    Published,
    Start,
    TasksEnded,
    Topology,
    Trigger,
)

T = TypeVar("T")

ANSWERS = Metric(name="answers_ms", title="all answers taken in, ms", decimals=1)
EVALUATE = Metric(name="evaluate_ms", title="evaluation and composition, ms", decimals=1)
SETTLE = Metric(name="settle_ms", title="views and notices after publication, ms", decimals=1)
WRITE = Metric(name="write_ms", title="metadata written, ms", decimals=1)
READ = Metric(name="read_ms", title="metadata read, ms", decimals=1)
METADATA = Metric(name="metadata_ms", title="metadata written and read back, ms", decimals=1)
BYTES = Metric(name="metadata_kib", title="metadata, KiB")

METRICS = (ANSWERS, EVALUATE, SETTLE, WRITE, READ, METADATA, BYTES)

TARGETS = (Target(metric=EVALUATE, at_most=50), Target(metric=METADATA, at_most=200))

#: Measured per round; the first round's are warm, too.
_MEASUREMENTS = 3


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of the coordinator."""

    folder: Path
    rounds: int
    regions: int
    operators: int
    failing: float

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "coordinator"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.regions:,} regions x {self.operators} operators, each with one array of one "
            f"segment; {self.failing:.0%} of the regions fail and store their input\n"
            f"{self.rounds} rounds of {_MEASUREMENTS} measurements, each with a new coordinator"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        runs = []
        with screen.runs():
            _measure_once(self)  # Warms up.
            for number in range(self.rounds):
                line = screen.run(f"round {number + 1}", rows=None)
                load = os.getloadavg()[0]
                measured = [_measure_once(self) for _ in range(_MEASUREMENTS)]
                values = {name: [one[name] for one in measured] for name in measured[0]}
                runs.append(Run(provider=MEASURED, round_number=number, load=load, values=values))
                line.finish("done")
        return Result(
            name="coordinator",
            plan={key: value for key, value in asdict(self).items() if key != "folder"},
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
        )


NOTES = (
    "Evaluation and composition: from the last answer to the metadata object. Views and notices: "
    "what managers, regions\nand sinks are to be told. Written: durable under its final name, with "
    "the time of the disk."
)


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    yield Plan(folder=folder, rounds=options.rounds, regions=10_000, operators=4, failing=0.3)


def _measure_once(plan: Plan) -> dict[str, float]:
    topology = Topology(
        pipeline="bench",
        operators=tuple(f"operator-{number}" for number in range(plan.operators)),
        coordinators={},
        fingerprint=b"bench",
    )
    names = [f"region-{number:06}" for number in range(plan.regions)]
    failing = int(plan.failing * plan.regions)
    options = CoordinatorOptions(max_failure_ratio=plan.failing)
    coordinator = CheckpointCoordinator(options, topology)
    _publish(coordinator, coordinator.handle(Start(now_ms=0)))

    def entry(region: str, attempt: int) -> RegionEntry:
        states = (
            StateEntry("sums", "array", "<f8", (128,), pieces=[Piece(_ref(attempt), 0, 1024)])
            for _ in topology.operators
        )
        operators = [
            OperatorEntry(name, [state])
            for name, state in zip(topology.operators, states, strict=True)
        ]
        return RegionEntry(region, origin=attempt, operators=operators)

    def acked(regions: Iterable[str], attempt: int) -> list[Any]:
        return [
            Acked(attempt=attempt, region=region, entry=entry(region, attempt))
            for region in regions
        ]

    def declined(regions: Iterable[str], attempt: int) -> list[Any]:
        return [
            Declined(
                attempt=attempt,
                region=region,
                cause="ValueError: no such carrier",
                in_flight=[InFlight(attempt, "source", 100, 10_000, ref=_ref(attempt))],
            )
            for region in regions
        ]

    _batch(coordinator, 0, acked(names, 2))
    answers = acked(names[failing:], 3) + declined(names[:failing], 3)
    values, metadata = _batch(coordinator, 1, answers)
    assert len(metadata.failed) == failing
    return values | _write_and_read(metadata, plan.folder / "metadata")


def _batch(
    coordinator: CheckpointCoordinator, batch_id: int, answers: list[Any]
) -> tuple[dict[str, float], CheckpointMetadata]:
    coordinator.handle(Trigger(batch_id=batch_id, kind="checkpoint", now_ms=1))
    attempt = coordinator.pending
    assert attempt is not None

    def take_in() -> None:
        for answer in answers:
            coordinator.handle(answer)

    answers_ms, _ = _timed(take_in)
    ended = TasksEnded(attempt=attempt, now_ms=2)
    evaluate_ms, actions = _timed(lambda: coordinator.handle(ended))
    settle_ms, metadata = _timed(lambda: _publish(coordinator, actions))
    values = {
        ANSWERS.name: answers_ms,
        EVALUATE.name: evaluate_ms,
        SETTLE.name: settle_ms,
    }
    return values, metadata


def _publish(coordinator: CheckpointCoordinator, actions: list[Action]) -> CheckpointMetadata:
    (publish,) = (action for action in actions if isinstance(action, Publish))
    coordinator.handle(Published(attempt=publish.attempt, now_ms=3))
    return publish.metadata


def _write_and_read(metadata: CheckpointMetadata, folder: Path) -> dict[str, float]:
    folder.mkdir()
    write_ms, path = _timed(lambda: metadata.write(folder))
    read_ms, found = _timed(lambda: CheckpointMetadata.read(path).regions)
    assert len(found) == len(metadata.regions)
    size = path.stat().st_size
    shutil.rmtree(folder)
    return {
        WRITE.name: write_ms,
        READ.name: read_ms,
        METADATA.name: write_ms + read_ms,
        BYTES.name: size / 1024,
    }


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.perf_counter()
    result = work()
    return (time.perf_counter() - begun) * 1e3, result


def _ref(serial: int) -> SegmentRef:
    # References do not compress in practice: a digest is part of each.
    return SegmentRef.from_bytes(serial.to_bytes(8, "little") + os.urandom(36))
