"""What a region task tells the driver, and when."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    Owner,
    RegionEntry,
    SegmentRef,
    SnapshotManager,
)
from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator import Acked, Declined, Event, RegionStarted
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import (
    AttemptOrder,
    ClosingOrder,
    EndedAttempt,
    OutputPlan,
    TaskOptions,
)
from holdfast.regions.sinks import ParquetSink
from holdfast.regions.task.partition.cache import OperatorCache
from holdfast.regions.task.partition.region_task import RegionTask
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, partitions_of, rows_of

REGIONS = ["r00", "r01"]
EMPTY = CheckpointMetadata(1, -1, "checkpoint", 0, b"", {}).to_bytes()


class Store:
    """A snapshot manager whose device may be in trouble."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = SnapshotManager(folder)
        self.broken = False
        self.released: list[SegmentRef] = []
        self.was_read: list[SegmentRef] = []

    def append(self, owner: Owner, checkpoint: int, data: Any, **options: Any) -> SegmentRef:
        return self.manager.append(owner, checkpoint, data, **options)

    def read(self, ref: SegmentRef, owner: Owner, *, known_bytes: int) -> bytes:
        self.was_read.append(ref)
        assert ref.offset + ref.length <= known_bytes <= self.size_of(ref)
        return self.manager.read(ref, owner, known_bytes=known_bytes)

    def size_of(self, ref: SegmentRef) -> int:
        return (self.folder / ref.file).stat().st_size

    def persist_segments(self, checkpoint: int, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        if self.broken:
            raise OSError("the device is in trouble")
        self.manager.persist_segments(checkpoint, owner, refs)

    def release(self, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        self.released += refs
        self.manager.release(owner, refs)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "segments")


def run(
    store: Store,
    path: Path,
    hooks: Hooks | None = None,
    *,
    each: int,
    base: bytes = EMPTY,
    batch: int = 0,
    global_required: bool = False,
) -> list[list[Event]]:
    """Run one task over all regions; returns its answers, call by call."""
    plan = (
        holdfast.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED)
        ._chain.plan("test", [OutputPlan("", COUNTED, ParquetSink(path / "out"))], TaskOptions())
    )
    told: list[list[Event]] = []

    def tell(answers: Sequence[Answer]) -> None:
        assert {answer.partition for answer in answers} == {0}
        told.append([answer.event for answer in answers])

    order = AttemptOrder(
        attempt=2 + batch, created_ms=now_ms(), base=base, global_required=global_required
    )
    task = RegionTask(
        plan,
        order,
        partition=0,
        store=store,
        tell=tell,
        cache=OperatorCache(),
    )
    (batches,) = partitions_of(rows_of(batch, REGIONS, each=each), 1, slices=1)
    assert task.run(batches) == len(REGIONS)
    return told


def test_the_driver_knows_of_all_regions_before_any_answers(store: Store, tmp_path: Path) -> None:
    told = run(store, tmp_path, each=5)
    assert told[0] == [RegionStarted(attempt=2, region=region) for region in REGIONS]
    rest = [answer for answers in told[1:] for answer in answers]
    assert {answer.region for answer in rest if isinstance(answer, Acked)} == set(REGIONS)
    assert len(rest) == len(REGIONS)


def test_rows_that_could_not_be_made_durable_are_not_told(
    store: Store, tmp_path: Path, hooks: Hooks
) -> None:
    # R3: a decline refers to its stored rows only if they are durable.
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise RuntimeError("in trouble")

    hooks.on_rows = trouble
    store.broken = True
    told = run(store, tmp_path, hooks, each=99)
    declines = [a for answers in told for a in answers if isinstance(a, Declined)]
    assert {decline.region for decline in declines} == set(REGIONS)
    assert [tuple(decline.in_flight) for decline in declines] == [(), ()]
    assert len(store.released) == len(REGIONS)


@pytest.mark.parametrize("global_required", [False, True])
def test_a_region_that_makes_the_attempt_abort_stores_no_rows(
    store: Store, tmp_path: Path, global_required: bool, hooks: Hooks
) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise RuntimeError("in trouble")

    hooks.on_rows = trouble
    told = run(store, tmp_path, hooks, each=99, global_required=global_required)
    declines = [a for answers in told for a in answers if isinstance(a, Declined)]
    assert {decline.region for decline in declines} == set(REGIONS)
    assert all(decline.had_rows for decline in declines)
    assert all(bool(decline.in_flight) is not global_required for decline in declines)


def test_a_region_that_fails_again_reads_only_what_it_gets_to(
    store: Store, tmp_path: Path, hooks: Hooks
) -> None:
    # R55: what it owes comes back in its order, however much that is.
    def trouble(region: str, ids: Sequence[int]) -> None:
        taken.setdefault(region, []).extend(ids)
        if failing:
            raise RuntimeError("in trouble")

    hooks.on_rows = trouble
    failing = True
    owed: dict[str, tuple[InFlight, ...]] = dict.fromkeys(REGIONS, ())
    for batch in range(4):
        taken: dict[str, list[int]] = {}
        store.was_read.clear()
        for answers in run(store, tmp_path, hooks, each=99, base=owing(owed), batch=batch):
            for answer in answers:
                if isinstance(answer, Declined):
                    owed[answer.region] += tuple(answer.in_flight)
        oldest = [stored[0].ref for stored in owed.values()] if batch else []
        assert sorted(store.was_read, key=str) == sorted(oldest, key=str)
    failing = False
    taken = {}
    told = run(store, tmp_path, hooks, each=99, base=owing(owed), batch=4)
    acked = [a for answers in told for a in answers if isinstance(a, Acked)]
    assert {(answer.region, tuple(answer.entry.in_flight)) for answer in acked} == {
        (region, ()) for region in REGIONS
    }
    for region in REGIONS:
        rows = [row for batch in range(5) for row in rows_of(batch, REGIONS, each=99)]
        assert taken[region] == [number for of, number, _ in rows if of == region]


def owing(owed: Mapping[str, Sequence[InFlight]]) -> bytes:
    """Metadata of a checkpoint in which regions owe rows."""
    regions = {
        region: RegionEntry(region, origin=1, in_flight=stored)
        for region, stored in owed.items()
        if stored
    }
    return CheckpointMetadata(1, -1, "checkpoint", 0, b"", regions).to_bytes()


class Kept:
    """An operator instance that a process keeps; remembers what it is told."""

    where = "operator"

    def __init__(self) -> None:
        self.seen: list[object] = []

    def tell(self, ended: EndedAttempt, region: str, took_part: frozenset[str]) -> None:
        assert took_part == {"r01"}
        self.seen.append((ended.attempt, region))

    def close(self) -> None:
        self.seen.append("closed")


def test_operators_hear_of_their_last_checkpoint_only_if_it_has_their_state() -> None:  # R40, R61
    cache = OperatorCache()
    kept = {region: Kept() for region in ("r00", "r01")}
    cache.prune("run", CheckpointMetadata(1, -1, "checkpoint", 0, b"", {}))
    for region, instance in kept.items():
        instances: Any = ((instance,),)
        thread = cache.thread_of(region, failed=False, at_most=4)
        cache.keep(region, RegionEntry(region, origin=5, finished=True), instances, thread)
    # Another worker has run r01 since, so that its instance here was left behind.
    regions = [RegionEntry(region, origin=5, finished=True) for region in kept]
    regions[1] = RegionEntry("r01", origin=6, finished=True)
    base = CheckpointMetadata(6, 0, "final", 0, b"", regions).to_bytes()
    order = ClosingOrder("run", base, (EndedAttempt(6, "global"),))
    for _ in range(2):
        cache.close(order)
    assert kept["r00"].seen == [(6, "r00"), "closed"]
    assert kept["r01"].seen == ["closed"]


@pytest.mark.parametrize("looks_at_all", [True, False])
def test_operators_are_closed_that_fit_no_checkpoint_any_more(
    looks_at_all: bool,
) -> None:
    cache = OperatorCache(all_pruned=1_000 if looks_at_all else 0)
    kept = {region: Kept() for region in ("r00", "r01", "r02", "r03")}

    def keep(region: str, attempt: int) -> None:
        instances: Any = ((kept[region],),)
        thread = cache.thread_of(region, failed=False, at_most=4)
        cache.keep(region, RegionEntry(region, origin=attempt), instances, thread)

    def prune(base: int, *, attempt: int, **origins: int) -> list[str]:
        entries = [RegionEntry(region, origin=origin) for region, origin in origins.items()]
        metadata = CheckpointMetadata(base, 0, "checkpoint", 0, b"", entries)
        cache.prune("run", metadata, attempt=attempt)
        for region in kept:
            done = threading.Event()
            cache.thread_of(region, failed=False, at_most=4).do(done.set)
            done.wait()
        return [region for region, one in kept.items() if one.seen == ["closed"]]

    prune(4, attempt=5)
    for region in kept:
        keep(region, 5)
    assert prune(4, attempt=5) == []  # they are of the attempt that is under way
    assert prune(5, attempt=6, r00=5, r01=5, r02=5, r03=5) == []
    keep("r02", 6)
    # Another process ran r01; the attempt was repeated, without the answer of r02 from here.
    assert prune(7, attempt=8, r00=5, r01=7, r02=5, r03=5) == ["r01", "r02"]
    assert prune(8, attempt=9, r00=5, r01=7, r02=5) == ["r01", "r02", "r03"]
    cache.close_all()


def test_a_finished_region_with_rows_declines_and_no_operator_runs(
    store: Store, tmp_path: Path, hooks: Hooks
) -> None:  # R60
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise AssertionError(f"an operator of {region} runs")

    hooks.on_rows = trouble
    entries = [RegionEntry(region, origin=1, finished=True) for region in REGIONS]
    base = CheckpointMetadata(1, 0, "final", 0, b"", entries).to_bytes()
    told = run(store, tmp_path, hooks, each=5, base=base)
    declines = [a for answers in told for a in answers if isinstance(a, Declined)]
    assert [decline.cause for decline in declines] == ["its data ended in checkpoint 1"] * 2
