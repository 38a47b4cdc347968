"""Regions without rows for long are dropped with their state (R66)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.coordinator.idle import IDLE_PROPERTY, LEAST_CHECKPOINTS, IdleTime
from support.regional.ending import NONE, REGIONS, run
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Row, RunningCount, Troubled, output_of, rows_of
from support.regional.quick_clock import QuickClock

#: A region is idle for long enough after this, which is many times what a batch takes.
IDLE = timedelta(hours=2)
STEP_MS = IDLE // timedelta(milliseconds=1) // LEAST_CHECKPOINTS
#: So many batches without rows of a region retire it.
ENOUGH = LEAST_CHECKPOINTS


class Counted(Troubled):
    """Puts out every row with its number, and says what becomes of its regions."""

    hooks: Hooks

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ballast = ctx.state.array("ballast", shape=(600,), dtype="int64")

    def close(self) -> None:
        self.hooks.seen.append(("closed", self.region, 0))


class Farewell(Counted):
    """Puts out the number of its rows when its region is retired."""

    def on_retire(self, ctx: hf.OperatorContext) -> Iterator[pa.RecordBatch]:
        self.hooks.seen.append(("retired", ctx.region, 0))
        if self.hooks.on_flush is not None:
            self.hooks.on_flush(self.region)
        row = {"region": [self.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        yield pa.RecordBatch.from_pydict(row, schema=COUNTED)


class Tally(hf.Operator):
    """Passes rows on, and puts out how many it saw when its region is retired."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.rows = ctx.state.value("rows", 0)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows.value += batch.num_rows
        return batch

    def on_retire(self, ctx: hf.OperatorContext) -> pa.RecordBatch:
        row = {"region": [ctx.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        return pa.RecordBatch.from_pydict(row, schema=COUNTED)


def pipeline(
    path: Path, operator: hf.Operator, *, then: Sequence[hf.Operator] = (), **options: Any
) -> hf.LocalQuery:
    chain = hf.regional(region_by="region").apply(operator, schema=COUNTED, name="count")
    for number, more in enumerate(then):
        chain = chain.apply(more, schema=COUNTED, name=f"then-{number}")
    options = {"retire_idle": IDLE, **options}
    return chain.write_parquet(path / "out").open_local(path / "ckpt", **options)


def rows(batch: int, *idle: str) -> list[Row]:
    """Rows of all regions but some."""
    return rows_of(batch, [region for region in REGIONS if region not in idle])


def go_on(
    query: hf.LocalQuery, clock: QuickClock, batches: Sequence[Sequence[Row]], *, first: int = 0
) -> None:
    """Run batches, each an eighth of the time after the one before."""
    for number in range(first, len(batches)):
        clock.pauses.append(STEP_MS)
        run(query, batches[: number + 1], first=number)


def batches_without(region: str, count: int) -> list[list[Row]]:
    """A batch of all regions, and `count` without one of them."""
    return [rows(0), *(rows(number, region) for number in range(1, count + 1))]


def known(query: hf.LocalQuery) -> list[str]:
    return sorted(query.latest.regions)


def rest(region: str) -> list[str]:
    return [other for other in REGIONS if other != region]


def farewells(path: Path) -> list[tuple[str, int]]:
    return sorted((row[0], row[2]) for row in output_of(path / "out") if row[1] == NONE)


def test_a_region_without_rows_is_dropped_with_its_state_and_begins_empty(
    tmp_path: Path, clock: QuickClock, hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    batches = batches_without("r01", ENOUGH)
    with pipeline(tmp_path, Counted(hooks), num_retained=1) as query:
        go_on(query, clock, batches[:-1])
        assert "idle regions" not in caplog.text
        assert known(query) == REGIONS
        segments = query.manager.stats().live_segments
        go_on(query, clock, batches, first=len(batches) - 1)
        assert known(query) == rest("r01")
        assert "drops 1 idle regions: 'r01'" in caplog.text
        assert query.manager.stats().live_segments == segments - 1
        batches.append(rows(len(batches)))
        go_on(query, clock, batches, first=len(batches) - 1)
        assert known(query) == REGIONS
        assert hooks.happened("closed") == ["r01"]
    back = [row for row in output_of(tmp_path / "out") if row[0] == "r01" and row[1] >= 1000]
    assert [row[2] for row in back] == list(range(1, len(back) + 1))


@pytest.mark.parametrize("timeout", [None, timedelta(0)])
def test_its_last_rows_are_published_with_the_checkpoint_that_drops_it(
    tmp_path: Path, clock: QuickClock, hooks: Hooks, timeout: timedelta | None
) -> None:
    # With the timeout, rows of the first batch are in flight for some batches.
    batches = batches_without("r01", ENOUGH + (2 if timeout is None else 6))
    operators = {"operator": Farewell(hooks), "then": [Tally(), Tally()]}
    with pipeline(tmp_path, **operators, aligned_timeout=timeout) as query:
        number = 0
        while (entry := query.latest.regions.get("r01")) is None or entry.operators:
            assert farewells(tmp_path) == []
            go_on(query, clock, batches[: number + 1], first=number)
            number += 1
        # An operator takes in the last rows of the one before it.
        last_rows = [("r01", 5), ("r01", 6), ("r01", 7)]
        assert (farewells(tmp_path), len(entry.staged)) == (last_rows, 1)
        go_on(query, clock, batches, first=number)
        assert known(query) == rest("r01")
        assert hooks.happened("retired") == hooks.happened("closed") == ["r01"]
    assert farewells(tmp_path) == last_rows


def test_rows_in_the_batch_that_would_retire_their_region_keep_it(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = [*batches_without("r01", ENOUGH - 1), rows(ENOUGH)]
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches)
        assert known(query) == REGIONS
    seen = [row[2] for row in output_of(tmp_path / "out") if row[0] == "r01"]
    assert sorted(seen) == list(range(1, 11))
    assert hooks.happened("retired") == []


def test_nothing_is_retired_with_a_checkpoint_in_which_a_region_fell_back(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = batches_without("r01", ENOUGH + 1)
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[:-2])
        hooks.fail_for("r02", range(ENOUGH * 1000, (ENOUGH + 1) * 1000))
        go_on(query, clock, batches[:-1], first=len(batches) - 2)
        assert (set(query.latest.failed), farewells(tmp_path)) == ({"r02"}, [])
        assert query.latest.regions["r01"].origin == query.latest.id - ENOUGH
        hooks.calm()
        go_on(query, clock, batches, first=len(batches) - 1)
        assert farewells(tmp_path) == [("r01", 5)]


def test_last_rows_are_in_no_file_with_rows_of_regions_that_stay(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    # R84: r03 replays rows in the task that would retire r01, and r02 fails in another one.
    batches = [
        *batches_without("r01", ENOUGH - 1),
        rows(ENOUGH, "r01", "r03"),
        rows(ENOUGH + 1, "r01"),
    ]
    with pipeline(tmp_path, Farewell(hooks), tasks=1, max_consecutive_failures=9) as query:
        go_on(query, clock, batches[: ENOUGH - 1])
        hooks.fail_for("r03", range((ENOUGH - 1) * 1000, ENOUGH * 1000))
        go_on(query, clock, batches[:ENOUGH], first=ENOUGH - 1)
        hooks.fail_for("r02", range(ENOUGH * 1000, (ENOUGH + 1) * 1000))
        go_on(query, clock, batches[: ENOUGH + 1], first=ENOUGH)
        assert (set(query.latest.failed), farewells(tmp_path)) == ({"r02"}, [])
        assert hooks.happened("retired") == ["r01"]
        hooks.calm()
        go_on(query, clock, batches, first=ENOUGH + 1)
        assert farewells(tmp_path) == [("r01", 5)]


def test_a_region_that_owes_rows_is_not_retired(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    hooks.fail_for("r01", range(1000))
    batches = batches_without("r01", 2 * ENOUGH)
    options: dict[str, Any] = {
        "max_consecutive_failures": 100,
        "max_region_staleness": (100, timedelta(days=9)),
    }
    with pipeline(tmp_path, Farewell(hooks), **options) as query:
        go_on(query, clock, batches)
        assert set(query.latest.failed) == {"r01"}
        hooks.calm()
        query.finish()
        assert known(query) == REGIONS


def test_a_region_that_fails_at_its_end_stays_as_it_was(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    def trouble(region: str) -> None:
        raise RuntimeError(f"{region} is in trouble")

    hooks.on_flush = trouble
    batches = [*batches_without("r01", ENOUGH + 1), rows(ENOUGH + 2)]
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[:-2])
        assert set(query.latest.failed) == {"r01"}
        go_on(query, clock, batches, first=len(batches) - 2)
        assert not query.latest.failed
    seen = [row[2] for row in output_of(tmp_path / "out") if row[0] == "r01"]
    assert sorted(seen) == list(range(1, 11))


@pytest.mark.parametrize("later", ["fail", "restart"])
def test_a_region_that_ended_stays_unless_rows_begin_it_anew(
    tmp_path: Path, clock: QuickClock, hooks: Hooks, later: str
) -> None:
    class Ends(Farewell):
        def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            if self.region == "r01":
                self.ctx.finish()
            yield from super().process(batch)

        def open(self, ctx: hf.OperatorContext) -> None:
            super().open(ctx)
            self.ctx = ctx

    with pipeline(tmp_path, Ends(hooks), on_rows_after_finish=later) as query:
        go_on(query, clock, batches_without("r01", ENOUGH + 1))
        assert known(query) == (REGIONS if later == "fail" else rest("r01"))
    assert hooks.happened("retired") == []


def test_time_without_the_pipeline_or_its_source_counts_as_one_short_step(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = batches_without("r01", ENOUGH)
    for number in range(len(batches)):
        with pipeline(tmp_path, Farewell(hooks)) as query:
            assert known(query) == (REGIONS if number else [])
            clock.pauses.append(30 * 24 * 3_600_000)
            run(query, batches[: number + 1], first=number)
    assert farewells(tmp_path) == [("r01", 5)]


def test_a_clock_that_is_set_back_retires_nothing_and_goes_on(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = batches_without("r01", ENOUGH + 4)
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[:-6])
        for number in range(len(batches) - 6, len(batches) - 2):
            clock.pauses.append(-STEP_MS)
            run(query, batches[: number + 1], first=number)
        assert known(query) == REGIONS
        go_on(query, clock, batches, first=len(batches) - 2)
    assert farewells(tmp_path) == [("r01", 5)]


def test_a_start_without_the_option_begins_to_count_anew(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = batches_without("r01", 2 * ENOUGH)
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[: ENOUGH - 1])
    with pipeline(tmp_path, Farewell(hooks), retire_idle=None) as query:
        go_on(query, clock, batches[:ENOUGH], first=ENOUGH - 1)
        assert IDLE_PROPERTY not in query.latest.properties
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[:-1], first=ENOUGH)
        assert known(query) == REGIONS
        go_on(query, clock, batches, first=len(batches) - 1)
    assert farewells(tmp_path) == [("r01", 5)]


def test_going_back_takes_a_retirement_back_with_its_rows(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:
    batches = [*batches_without("r01", ENOUGH), rows(ENOUGH + 1)]
    with pipeline(tmp_path, Farewell(hooks)) as query:
        go_on(query, clock, batches[:-1])
        before = query.latest.id - 1
        assert farewells(tmp_path) == [("r01", 5)]
    writer = hf.regional(region_by="region").apply(Farewell(hooks), schema=COUNTED, name="count")
    again = writer.write_parquet(tmp_path / "out").open_local(
        tmp_path / "ckpt", retire_idle=IDLE, checkpoint_id=before
    )
    with again as query:
        assert farewells(tmp_path) == []
        run(query, [*batches[:-2], batches[-1]], first=len(batches) - 2)
    seen = [row[2] for row in output_of(tmp_path / "out") if row[0] == "r01"]
    assert sorted(seen) == list(range(1, 11))


class Ending(Farewell):
    """Says that its region flushes."""

    def on_end_of_data(self) -> None:
        self.hooks.seen.append(("flushed", self.region, 0))


@pytest.mark.parametrize("saved", [False, True])
def test_a_retired_region_does_not_flush_after_a_restart_and_in_a_savepoint(
    tmp_path: Path, clock: QuickClock, hooks: Hooks, saved: bool
) -> None:
    options: dict[str, Any] = {}
    with pipeline(tmp_path, Ending(hooks)) as query:
        go_on(query, clock, batches_without("r01", ENOUGH))
        assert known(query) == REGIONS  # with its last rows
        if saved:
            query.stop_with_savepoint(tmp_path / "saved")
            options["restore"] = hf.restore(tmp_path / "saved")
    folder = tmp_path / "again" if saved else tmp_path
    with pipeline(folder, Ending(hooks), **options) as query:
        query.end_of_data()
        assert known(query) == rest("r01")
    assert sorted(hooks.happened("flushed")) == rest("r01")
    assert farewells(tmp_path) == [("r01", 5)]


def test_shared_state_is_refused(tmp_path: Path) -> None:
    class Unsafe(RunningCount):
        region_safe = False

    with pytest.raises(ValueError, match="or start without retire_idle"):
        pipeline(tmp_path, Unsafe(), max_consecutive_failures=0)


def test_a_few_checkpoints_are_remembered_however_many_there_were() -> None:
    marks = 0
    idle, latest = IdleTime(1000), 0
    for id in range(1, 500):
        record = idle.record(id)
        marks = max(marks, len(json.loads(record[IDLE_PROPERTY])["marks"]))
        latest += 7
        metadata = CheckpointMetadata(id, id, "checkpoint", latest, b"", [], properties=record)
        idle = IdleTime.at(metadata, latest + 7, 1000)
        since = idle.idle_since
        # Regions are retired neither early nor much later.
        assert (id - since) * 7 >= 1000 - 7 or since == 0
        assert (id - since) * 7 <= 1000 + 2 * idle.longest_step_ms
    assert marks <= LEAST_CHECKPOINTS + 2


def test_the_record_of_version_1_stays_readable() -> None:
    idle = IdleTime(1000, ms=1300, marks=((4, 100), (9, 250), (17, 400), (25, 1300)))
    record = idle.record(31)[IDLE_PROPERTY]
    fixture = Path(__file__).parents[2] / "fixtures" / "idle-v1" / "property.json"
    assert record == fixture.read_text().strip()
    metadata = CheckpointMetadata(
        31, 9, "checkpoint", 50, b"", [], properties={IDLE_PROPERTY: record}
    )
    found = IdleTime.at(metadata, 60, 1000)
    assert (found.ms, found.marks, found.idle_since) == (1310, idle.marks[1:], 9)


def test_a_record_of_a_newer_version_begins_anew() -> None:
    record = {IDLE_PROPERTY: json.dumps({"version": 2, "times": "?"})}
    metadata = CheckpointMetadata(9, 9, "checkpoint", 0, b"", [], properties=record)
    assert IdleTime.at(metadata, 10**6, 1000) == IdleTime(1000)
