"""Watermarks of regions, and the rows that come too late for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.quick_clock import QuickClock, StoppedClock
from support.regional.timed import (
    BEGIN,
    DELAY,
    READINGS,
    REGIONS,
    on_time,
    partitions,
    readings,
    run_troubled,
)

COUNTS = pa.schema([("region", pa.string()), ("minute", pa.string()), ("rows", pa.int64())])


class Passes(Hooked, hf.Operator):
    """Passes rows on, or fails."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        yield batch


class Ids(hf.Operator):
    """Drops the time of rows."""

    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["region", "id"])


class Windows(Hooked, hf.Operator):
    """Counts the rows of each minute, and puts a minute out once it is complete."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.counts = ctx.state.value("counts", {})

    def process(self, batch: pa.RecordBatch) -> None:
        self.before(batch)
        for time in batch.column("time").to_pylist():
            if time is not None:
                minute = f"{time:%F %H:%M}"
                self.counts.value[minute] = self.counts.value.get(minute, 0) + 1

    def on_watermark(self, watermark: datetime) -> pa.RecordBatch:
        return self.taken(f"{watermark:%F %H:%M}")

    def on_end_of_data(self) -> pa.RecordBatch:
        return self.taken("~")

    def taken(self, before: str) -> pa.RecordBatch:
        done = sorted(minute for minute in self.counts.value if minute < before)
        counts = [self.counts.value.pop(minute) for minute in done]
        return pa.RecordBatch.from_arrays([[self.region] * len(done), done, counts], schema=COUNTS)


class InOrder(hf.Operator):
    """Passes rows on, unless one is of a minute that was complete before."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.complete = ctx.state.value("complete", "")

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert min(batch.column("minute").to_pylist()) >= self.complete.value
        return batch

    def on_watermark(self, watermark: datetime) -> None:
        assert f"{watermark:%F %H:%M}" >= self.complete.value
        self.complete.value = f"{watermark:%F %H:%M}"


def ids_in(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder).column("id").to_pylist())


def writer_of(path: Path, hooks: Hooks | None = None) -> hf.RegionalWriter:
    return (
        hf.regional(region_by="region")
        .side("late", schema=READINGS)
        .write_parquet(path / "late")
        .with_watermark("time", "10 seconds", late="late", schema=READINGS)
        .apply(Passes(hooks), schema=READINGS)
        .write_parquet(path / "out")
    )


@pytest.mark.parametrize("seed", range(6))
def test_late_rows_depend_on_the_rows_of_the_region_alone(
    seed: int, tmp_path: Path, hooks: Hooks
) -> None:
    rows = run_troubled(writer_of(tmp_path, hooks), tmp_path / "ckpt", hooks, seed)
    kept, late = on_time(rows)
    assert late
    assert ids_in(tmp_path / "late") == sorted(late)
    assert ids_in(tmp_path / "out") == sorted(kept)


@pytest.mark.parametrize("seed", range(6))
def test_windows_come_out_once_when_they_are_complete(
    seed: int, tmp_path: Path, hooks: Hooks
) -> None:
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", DELAY, schema=READINGS)
        .apply(Windows(hooks), schema=COUNTS)
        .apply(InOrder(), schema=COUNTS)
        .write_parquet(tmp_path / "out")
    )
    rows = run_troubled(writer, tmp_path / "ckpt", hooks, seed)
    kept = set(on_time(rows)[0])
    counts = Counter(
        (region, f"{time:%F %H:%M}") for region, row_id, time in rows if time and row_id in kept
    )
    newest = {at: max(time for region, _, time in rows if time and region == at) for at in REGIONS}
    complete = {at: f"{time - DELAY:%F %H:%M}" for at, time in newest.items()}
    expected = [(*key, rows) for key, rows in sorted(counts.items())]
    assert output_of(tmp_path / "out") == [row for row in expected if row[1] < complete[row[0]]]
    with writer.open_local(tmp_path / "ckpt") as query:
        query.end_of_data()
    assert output_of(tmp_path / "out") == expected


TOLD = pa.schema([("region", pa.string()), ("time", pa.timestamp("us", "UTC"))])


class Told(hf.Operator):
    """Puts out the watermarks that it hears of, also in batches without rows of its region."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx
        self.wakes = ctx.state.timers("wakes", key=pa.int64(), time="processing")

    def process(self, batch: pa.RecordBatch) -> None:
        self.wakes.at([1], self.ctx.processing_time())

    def on_timers(self, name: str, due: pa.RecordBatch) -> None:
        self.wakes.at([1], self.ctx.processing_time() + timedelta(milliseconds=1))

    def on_watermark(self, watermark: datetime) -> pa.RecordBatch:
        return pa.record_batch([[self.ctx.region], [watermark]], schema=TOLD)


@pytest.mark.parametrize("seed", range(4))
def test_the_watermark_never_goes_back_whatever_a_start_changes(
    seed: int, tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    chance = random.Random(seed)  # noqa: S311
    stopped = StoppedClock(clock, timedelta(seconds=30))
    schema = READINGS.append(pa.field("other", READINGS.field("time").type))
    told: dict[str, list[datetime]] = {"bern": [], "riga": []}
    options: dict[str, Any] = {
        "max_consecutive_failures": 99,
        "max_failure_ratio": 1.0,
        "quarantine_after": 2,
    }

    def hear(got: pa.Table, _: int) -> None:
        for region, time in zip(*got.to_pydict().values(), strict=True):
            told[region].append(time)

    def batch() -> pa.Table:
        regions = ["riga", *["bern"] * chance.choice([0, 1, 2])]
        now = stopped.step()
        one, other = (
            [now + timedelta(seconds=chance.randint(-200, 0)) for _ in regions] for _ in range(2)
        )
        return pa.table([regions, range(len(regions)), one, other], schema=schema)

    for _ in range(8):
        writer = (
            hf.regional(region_by="region")
            .with_watermark(
                chance.choice(["time", "other"]),
                timedelta(seconds=chance.choice([0, 3, 30, 300])),
                watermark_idle=chance.choice([None, "1 minute"]),
                schema=schema,
            )
            .apply(Passes(hooks), schema=schema)
            .apply(Told(), schema=TOLD)
            .foreach_batch(hear)
        )
        with writer.open_local(tmp_path / "ckpt", **options) as query:
            for _ in range(chance.randint(1, 4)):
                hooks.calm()
                if len(query.latest.regions) > 1 and chance.random() < 0.3:
                    hooks.fail_for("bern", range(10))
                query.run_batch([[batch()]])
    for times in told.values():
        assert len(set(times)) > 3
        assert times == sorted(times)


def test_rows_that_are_dropped_are_counted(tmp_path: Path) -> None:
    (rows,) = readings(1, batches=1)
    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=READINGS)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions(rows))
        counted = query.metrics().operators["watermark"].counters["late_rows"]
    kept, late = on_time(rows)
    assert counted == len(late) > 0
    assert ids_in(tmp_path / "out") == sorted(kept)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (pa.timestamp("s"), 1),
        (pa.timestamp("ms", "Europe/Bern"), 10**3),
        (pa.timestamp("ns"), 10**9),
    ],
)
def test_timestamps_of_every_unit(kind: pa.DataType, unit: int, tmp_path: Path) -> None:
    schema = pa.schema([("region", pa.string()), ("id", pa.int64()), ("time", kind)])
    seconds = [100, 90, 89, 101, 91, 90]
    times = pa.array([one * unit for one in seconds]).cast(kind)
    rows = pa.table([["bern"] * 6, range(6), times], schema=schema)
    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=schema)
    writer = pipeline.apply(Ids(), schema=READINGS.remove(2)).write_parquet(tmp_path / "out")
    with writer.open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    assert ids_in(tmp_path / "out") == [0, 1, 3, 4]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_that_microseconds_do_not_hold_are_far_away(unit: str, tmp_path: Path) -> None:
    kind = pa.timestamp(unit)
    schema = pa.schema([("region", pa.string()), ("id", pa.int64()), ("time", kind)])
    most = 2**63 - 1
    # The first row has the first time of its region, and the last two come behind all others.
    times = pa.array([-most, 0, None, most, 0, -most], pa.int64()).cast(kind)
    rows = pa.table([["bern"] * 6, range(6), times], schema=schema)
    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=schema)
    writer = pipeline.apply(Ids(), schema=READINGS.remove(2)).write_parquet(tmp_path / "out")
    with writer.open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    assert ids_in(tmp_path / "out") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("at", DELAY), "the rows have the columns region, id, time"),
        (("time", "soon"), "delay='soon' is not allowed: expected a timedelta of at least 0, or"),
        (("time", "1 hour and"), "is not allowed"),
        (("time", ""), "is not allowed"),
        (("time", timedelta(seconds=-1)), "is not allowed"),
        (("time", f"{10**12} weeks"), "is not allowed"),
        (("time", timedelta.max), "is not allowed: expected at most 53 million days"),
    ],
)
def test_what_cannot_be_a_watermark(arguments: tuple[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        hf.regional(region_by="region").with_watermark(*arguments, schema=READINGS)


def test_a_watermark_needs_timestamps_of_known_rows_once() -> None:
    pipeline = hf.regional(region_by="region")
    with pytest.raises(TypeError, match="needs a timestamp, and id is int64"):
        pipeline.with_watermark("id", DELAY, schema=READINGS)
    with pytest.raises(ValueError, match=r"needs their schema: schema=\.\.\."):
        pipeline.with_watermark("time", DELAY)
    with pytest.raises(ValueError, match="the pipeline has a watermark"):
        pipeline.with_watermark("time", DELAY, schema=READINGS).with_watermark("time", DELAY)


def test_late_rows_need_a_side_output_with_their_columns(tmp_path: Path) -> None:
    pipeline = hf.regional(region_by="region")
    with pytest.raises(ValueError, match=r"late='late': there is no such side output"):
        pipeline.with_watermark("time", DELAY, late="late", schema=READINGS)
    other = pipeline.side("late", schema=READINGS.remove(1)).write_parquet(tmp_path)
    with pytest.raises(ValueError, match="has the columns region, time, and late rows have"):
        other.with_watermark("time", DELAY, late="late", schema=READINGS)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10 minutes", 600), ("1 hour 30 Minutes", 5400), ("2days", 172_800)]
)
def test_delays_in_words(text: str, seconds: int, tmp_path: Path) -> None:
    times = [BEGIN, BEGIN - timedelta(seconds=seconds), BEGIN - timedelta(seconds=seconds + 1)]
    rows = pa.table([["bern"] * 3, range(3), times], schema=READINGS)
    pipeline = hf.regional(region_by="region").with_watermark("time", text, schema=READINGS)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    assert ids_in(tmp_path / "out") == [0, 1]
