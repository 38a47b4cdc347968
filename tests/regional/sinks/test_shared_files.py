"""The regions of a task write into one file for each checkpoint, unless they are told otherwise."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import holdfast as hf
from holdfast._core import CheckpointMetadata, SnapshotManager
from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator import Acked, Declined, Event
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, OutputPlan, TaskOptions
from holdfast.regions.sinks import ParquetSink
from holdfast.regions.sinks.parquet_stage import OutputFile
from holdfast.regions.task.partition.cache import OperatorCache
from holdfast.regions.task.partition.region_task import RegionTask
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    ROWS,
    Gate,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)
from support.regional.tuned import tune_tasks

REGIONS = [f"r{number:02}" for number in range(6)]
BATCHES = [rows_of(number, REGIONS) for number in range(4)]
EMPTY = CheckpointMetadata(1, -1, "checkpoint", 0, b"", {}).to_bytes()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No acknowledgement waits for too long, however slow the machine is."""
    tune_tasks(monkeypatch.setattr, share_wait_ms=600_000)


def opened(
    path: Path, hooks: Hooks | None = None, *, options: Any = None, **settings: Any
) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED, name="count")
        .write_parquet(path / "out", **(options or {}))
        .open_local(path / "ckpt", **settings)
    )


def run(query: hf.LocalQuery, *numbers: int, tasks: int = 2) -> None:
    for number in numbers:
        query.run_batch(partitions_of(BATCHES[number], tasks), batch_id=number)


def regions_by_file(folder: Path) -> list[list[str]]:
    """The regions in each file, in the order of their rows there; files in that of their names."""
    return [
        [region for region, _ in itertools.groupby(pq.read_table(file)["region"].to_pylist())]
        for file in sorted(folder.glob("*.parquet"))
    ]


def test_a_task_writes_one_file_for_each_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path) as query:
        run(query, 0, 1)
    found = regions_by_file(tmp_path / "out")
    assert sorted(map(sorted, found)) == [REGIONS[::2]] * 2 + [REGIONS[1::2]] * 2
    assert output_of(tmp_path / "out") == expected(BATCHES[:2])
    names = sorted(path.name for path in (tmp_path / "out").glob("*.parquet"))
    form = re.compile(r"part-0{9}[23]-3-regions-[0-9a-f]{20}\.parquet")
    assert all(map(form.fullmatch, names)), names


def test_each_region_writes_a_file_of_its_own_if_told_so(tmp_path: Path) -> None:
    with opened(tmp_path, options={"per_region": True}) as query:
        run(query, 0)
    assert regions_by_file(tmp_path / "out") == [[region] for region in REGIONS]


def test_a_task_begins_another_file_when_one_is_large_enough(tmp_path: Path) -> None:
    # A region in such a file is in no other: readers see all of its rows at once (R81).
    with opened(tmp_path, options={"target_file_bytes": 300}) as query:
        run(query, 0, tasks=1)
    found = regions_by_file(tmp_path / "out")
    assert 1 < len(found) < len(REGIONS)
    assert sorted(itertools.chain.from_iterable(found)) == REGIONS
    assert output_of(tmp_path / "out") == expected(BATCHES[:1])


def test_a_task_with_very_many_regions_writes_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_tasks(monkeypatch.setattr, share_regions=2)
    with opened(tmp_path) as query:
        run(query, 0, tasks=1)
    found = regions_by_file(tmp_path / "out")
    assert [len(regions) for regions in found] == [2, 2, 2]
    assert output_of(tmp_path / "out") == expected(BATCHES[:1])


def test_a_region_with_many_rows_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_tasks(monkeypatch.setattr, share_rows_bytes=2000)
    rows = [*rows_of(0, ["few", "fewer"]), *rows_of(0, ["many"], each=500)]
    with opened(tmp_path) as query:
        query.run_batch(partitions_of(rows, 1, slices=20))
    assert sorted(map(sorted, regions_by_file(tmp_path / "out"))) == [["few", "fewer"], ["many"]]
    assert output_of(tmp_path / "out") == expected([rows])


@pytest.mark.parametrize("write", ["write_parquet", "write_delta"])
def test_a_region_that_falls_back_is_in_no_file_and_its_rows_come_later_once(
    tmp_path: Path, hooks: Hooks, write: str
) -> None:
    # R80, R84
    def pipeline() -> hf.LocalQuery:
        counted = hf.regional(region_by="region").apply(Troubled(hooks), schema=COUNTED)
        writer: hf.RegionalWriter = getattr(counted, write)(tmp_path / "out")
        return writer.open_local(tmp_path / "ckpt", max_consecutive_failures=9)

    def seen() -> list[tuple[Any, ...]]:
        if write == "write_parquet":
            return output_of(tmp_path / "out")
        return sorted(
            tuple(row.values())
            for row in DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
        )

    hooks.fail_for("r02", range(1000, 3000))
    without = [[row for row in rows if row[0] != "r02"] for rows in BATCHES[1:3]]
    with pipeline() as query:
        run(query, 0, 1)
        assert set(query.latest.failed) == {"r02"}
        assert seen() == expected([BATCHES[0], without[0]])
    with pipeline() as query:
        run(query, 2)
        assert seen() == expected([BATCHES[0], *without])
        hooks.calm()
        run(query, 3)
    assert seen() == expected(BATCHES)
    # The rows that it owed are in the files of the checkpoint in which it recovered.
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2 * len(BATCHES)


@pytest.mark.parametrize("per_region", [True, False])
def test_a_start_with_the_other_layout_publishes_what_was_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_region: bool
) -> None:
    # R74. Checkpoints of builds without shared files have a file for each region.
    with opened(tmp_path, options={"per_region": per_region}) as query:
        monkeypatch.setattr(ParquetSink, "commit", refused)
        with pytest.raises(hf.RegionalQueryError, match="the device is in trouble"):
            run(query, 0)
    monkeypatch.undo()
    assert regions_by_file(tmp_path / "out") == []
    with opened(tmp_path, options={"per_region": not per_region}) as query:
        assert output_of(tmp_path / "out") == expected(BATCHES[:1])
        run(query, *range(1, 4))
    assert output_of(tmp_path / "out") == expected(BATCHES)


def refused(sink: ParquetSink, checkpoint: int, staged: Any) -> None:
    raise OSError("the device is in trouble")


def test_the_log_of_a_delta_table_counts_the_rows_of_all_regions_in_a_file(tmp_path: Path) -> None:
    writer = hf.regional(region_by="region").apply(Troubled(), schema=COUNTED)
    with writer.write_delta(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0)
    actions = pa.table(DeltaTable(tmp_path / "out").get_add_actions())
    counts = {
        path: pq.read_metadata(tmp_path / "out" / path).num_rows
        for path in actions["path"].to_pylist()
    }
    assert dict(zip(counts, actions["num_records"].to_pylist(), strict=True)) == counts
    assert sum(counts.values()) == len(BATCHES[0])


# --- rows that no file can have ------------------------------------------------------------------

SECONDS = pa.schema([("region", pa.string()), ("at", pa.timestamp("s"))])


class Far(hf.Operator):
    """Puts out times; those of one region are too far for Parquet, which has milliseconds."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.far = ctx.region == "r02"

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = pa.array([2**60 if self.far else 5] * batch.num_rows, pa.timestamp("s"))
        return pa.RecordBatch.from_arrays([batch["region"], at], schema=SECONDS)


def test_rows_that_cannot_be_encoded_make_their_region_alone_fail(tmp_path: Path) -> None:
    writer = hf.regional(region_by="region").apply(Far(), schema=SECONDS)
    with writer.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0, tasks=1)
        assert set(query.latest.failed) == {"r02"}
        cause = query.latest.regions["r02"].cause
        (record,) = query.history(last=1)
    assert "Integer overflow" in cause
    assert [failed.region for failed in record.failed] == ["r02"]
    (regions,) = regions_by_file(tmp_path / "out")
    assert set(regions) == set(REGIONS) - {"r02"}
    assert list((tmp_path / "out").glob("_holdfast/staged/*/*")) == []


def test_a_file_that_cannot_be_made_durable_fails_all_of_its_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as query:
        monkeypatch.setattr(OutputFile, "persist", broken)
        with pytest.raises(hf.RegionalQueryError, match="did not make its output durable"):
            run(query, 0)
    monkeypatch.undo()
    with opened(tmp_path) as query:
        run(query, *range(4))
    assert output_of(tmp_path / "out") == expected(BATCHES)


def broken(file: OutputFile) -> None:
    raise OSError("the device is in trouble")


def test_a_side_output_that_cannot_be_stored_takes_no_rows_of_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only r02 has rows for it. The main output is written again, without r02.
    monkeypatch.setattr(ParquetSink, "persist", persist_no_side(ParquetSink.persist))
    pipeline = hf.regional(region_by="region").apply(EmitsOfOne(), schema=ROWS)
    pipeline = pipeline.side("one", schema=ROWS).write_parquet(tmp_path / "one")
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 0, tasks=1)
        assert set(query.latest.failed) == {"r02"}
    (regions,) = regions_by_file(tmp_path / "out")
    assert set(regions) == set(REGIONS) - {"r02"}
    assert regions_by_file(tmp_path / "one") == []


class EmitsOfOne(hf.Operator):
    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.ctx.region == "r02":
            self.ctx.emit("one", batch)
        return batch


def persist_no_side(persist: Any) -> Any:
    def failing(sink: ParquetSink, stages: Any, store: Any) -> Any:
        if sink.root.name == "one":
            return [OSError("the device is in trouble") for _ in stages]
        return persist(sink, stages, store)

    return failing


# --- answers of a task ----------------------------------------------------------------------------


def answers_of(
    path: Path,
    hooks: Hooks | None = None,
    *,
    shares: bool = True,
    heard: Callable[[Sequence[Answer]], None] = lambda answers: None,
    **options: Any,
) -> list[Sequence[Answer]]:
    """Run a task over all regions; returns its answers behind the first, call by call."""
    plan = (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED)
        ._chain.plan(
            "test",
            [OutputPlan("", COUNTED, ParquetSink(path / "out"))],
            TaskOptions(**{"share_wait_ms": 600_000, **options}),
        )
    )
    told: list[Sequence[Answer]] = []

    def tell(answers: Sequence[Answer]) -> None:
        told.append(answers)
        heard(answers)

    task = RegionTask(
        plan,
        AttemptOrder(attempt=2, created_ms=now_ms(), base=EMPTY),
        partition=0,
        store=SnapshotManager(path / "segments"),
        tell=tell,
        cache=OperatorCache(),
        shares=shares,
    )
    (batches,) = partitions_of(BATCHES[0], 1, slices=1)
    assert task.run(batches) == len(REGIONS)
    return told[1:]


def files_of(events: Sequence[Event]) -> set[str]:
    return {one.path for event in events if isinstance(event, Acked) for one in event.entry.staged}


def test_regions_in_one_file_acknowledge_together(tmp_path: Path) -> None:
    (told,) = answers_of(tmp_path)
    assert [answer.with_next for answer in told] == [True] * (len(REGIONS) - 1) + [False]
    assert len(files_of([answer.event for answer in told])) == 1


def test_a_task_that_runs_again_writes_a_file_for_each_region(tmp_path: Path) -> None:
    # Some of its regions may have answered before, and are not in the checkpoint twice.
    told = [answer for answers in answers_of(tmp_path, shares=False) for answer in answers]
    assert not any(answer.with_next for answer in told)
    assert len(files_of([answer.event for answer in told])) == len(REGIONS)


def test_acknowledgements_do_not_wait_for_a_region_that_hangs(tmp_path: Path, hooks: Hooks) -> None:
    gate = Gate()
    told: list[str] = []

    def hang(region: str, ids: Sequence[int]) -> None:
        if region == "r02":
            gate.pass_through()

    def heard(answers: Sequence[Answer]) -> None:
        told.extend(a.event.region for a in answers if isinstance(a.event, Acked))
        if len(told) == len(REGIONS) - 1:
            gate.open()

    hooks.on_rows = hang
    answers = answers_of(tmp_path, hooks, heard=heard, share_wait_ms=0, share_ratio=10**9)
    assert told[-1] == "r02"
    assert not any(isinstance(a.event, Declined) for sent in answers for a in sent)
