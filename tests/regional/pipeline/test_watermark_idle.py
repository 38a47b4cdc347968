"""Watermarks of regions without rows go on with the time of the driver."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.coordinator.idle import IDLE_PROPERTY, LEAST_CHECKPOINTS, IdleTime
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.quick_clock import QuickClock, StoppedClock
from support.regional.seeds import some_and_more
from support.regional.timed import BEGIN, DELAY, READINGS, REGIONS, Row, partitions

STEP = timedelta(minutes=1)
IDLE = LEAST_CHECKPOINTS * STEP
#: Id of a row that tells a watermark.
TOLD = -1


class Told(Hooked, hf.Operator):
    """Puts out the rows on time, and the watermarks that it hears of."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.before(batch)
        return batch

    def on_watermark(self, watermark: datetime) -> pa.RecordBatch:
        told = pa.record_batch([[self.region], [TOLD], [watermark]], schema=READINGS)
        self.before(told)
        return told


@dataclass
class Model:
    """The watermark of a region. Times are those of the driver."""

    region: str
    owed: list[Row] = field(default_factory=list)
    newest: datetime | None = None
    last: datetime | None = None
    found: list[Row] = field(default_factory=list)

    def contribute(self, now: datetime) -> None:
        """Take in the rows that it owes, or go on without rows."""
        if self.owed:
            for region, row_id, time in self.owed:
                assert time is not None
                if self.newest is None or time >= self.newest - DELAY:
                    self.found.append((region, row_id, time))
                self.newest = max(time, self.newest or time)
            self.owed = []
        elif self.last is not None and self.newest is not None and now - self.last >= IDLE:
            # Time that passed while it failed is not all remembered.
            self.newest += min(now - self.last, IDLE + STEP)
        else:
            return
        self.last = now
        self.found.append((self.region, TOLD, self.newest - DELAY))


def pipeline(path: Path, hooks: Hooks | None = None) -> hf.RegionalWriter:
    return (
        hf.regional(region_by="region")
        .with_watermark("time", DELAY, watermark_idle=IDLE, schema=READINGS)
        .apply(Told(hooks), schema=READINGS)
        .write_parquet(path / "out")
    )


@pytest.mark.parametrize("seed", some_and_more([2, 0], 60))
def test_the_watermark_of_a_region_without_rows_goes_on_with_the_time(
    seed: int, tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    chance = random.Random(seed)  # noqa: S311
    stopped = StoppedClock(clock, STEP)
    ids = iter(range(1_000_000))
    model = {region: Model(region) for region in REGIONS}
    fell_back = 0
    for start in range(3):
        with pipeline(tmp_path, hooks).open_local(
            tmp_path / "ckpt", max_consecutive_failures=99, max_failure_ratio=1.0
        ) as query:
            for number in range(20):
                hooks.calm()
                is_first = start == number == 0
                if not is_first and number < 19 and chance.random() < 0.7:
                    hooks.fail_for(chance.choice(REGIONS), range(TOLD, 1_000_000))
                now = stopped.step()
                rows: list[Row] = [
                    (region, next(ids), now + timedelta(seconds=chance.randint(-15, 15)))
                    for region in REGIONS
                    if is_first or chance.random() < 0.1
                    for _ in range(3)
                ]
                query.run_batch(partitions(rows))
                fell_back += len(query.latest.failed)
                for region, one in model.items():
                    one.owed += [row for row in rows if row[0] == region]
                    if region not in query.latest.failed:
                        one.contribute(now)
    assert fell_back
    expected = sorted(row for one in model.values() for row in one.found)
    assert output_of(tmp_path / "out") == expected


def rows_of(*regions: str, at: datetime) -> list[list[pa.Table]]:
    return partitions([(region, 1, at) for region in regions])


def test_time_without_the_pipeline_is_one_short_step(tmp_path: Path, clock: QuickClock) -> None:
    stopped = StoppedClock(clock, STEP)
    with pipeline(tmp_path).open_local(tmp_path / "ckpt") as query:
        stopped.step()
        query.run_batch(rows_of("bern", "riga", at=BEGIN))
    for _ in range(LEAST_CHECKPOINTS - 1):
        stopped.step(100_000)
        with pipeline(tmp_path).open_local(tmp_path / "ckpt") as query:
            query.run_batch(rows_of("bern", at=BEGIN))
    told = [row for row in output_of(tmp_path / "out") if row[:2] == ("riga", TOLD)]
    assert told == [("riga", TOLD, BEGIN - DELAY)]
    with pipeline(tmp_path).open_local(tmp_path / "ckpt") as query:
        stopped.step()
        query.run_batch(rows_of("bern", at=BEGIN))
    told = [row for row in output_of(tmp_path / "out") if row[:2] == ("riga", TOLD)]
    assert told == [("riga", TOLD, BEGIN - DELAY), ("riga", TOLD, BEGIN - DELAY + IDLE)]


def test_a_region_without_rows_is_retired_although_its_watermark_goes_on(
    tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    stopped = StoppedClock(clock, STEP)
    ran = []
    for number in range(34):
        hooks.calm()
        if number == 16:
            hooks.fail_for("riga", range(TOLD, 0))
        # Restarts forget nothing.
        writer = pipeline(tmp_path, hooks)
        with writer.open_local(tmp_path / "ckpt", retire_idle=3 * IDLE) as query:
            stopped.step()
            query.run_batch(rows_of("bern", *["riga"] * (number == 0), at=BEGIN))
            if "riga" not in query.latest.regions:
                break
            if query.latest.regions["riga"].origin == query.latest.id:
                ran.append(number)
    assert ran[:3] == [0, 8, 17]
    assert "riga" not in query.latest.regions
    assert 24 <= number <= 27


def test_records_of_regions_that_ran_without_rows() -> None:
    idle = IdleTime(1000, ms=1300, marks=((4, 100), (25, 1300)))
    plain = {"version": 1, "ms": 1300, "marks": [[4, 100], [25, 1300]]}
    rested = {**plain, "rested": {"riga": 3}}
    for record, regions in ((plain, {}), (rested, {"riga": 3})):
        one = IdleTime(idle.retire_ms, idle.ms, idle.marks, regions)
        assert json.loads(one.record(31)[IDLE_PROPERTY]) == record
        properties = {IDLE_PROPERTY: json.dumps(record)}
        metadata = CheckpointMetadata(31, 9, "checkpoint", 50, b"", [], properties=properties)
        assert IdleTime.at(metadata, 50, 1000) == one


@pytest.mark.parametrize("idle", [timedelta(), timedelta(microseconds=1), "soon"])
def test_times_that_are_none(idle: object) -> None:
    with pytest.raises(ValueError, match="watermark_idle="):
        hf.regional(region_by="region").with_watermark(
            "time",
            DELAY,
            watermark_idle=idle,
            schema=READINGS,  # type: ignore[arg-type]
        )
