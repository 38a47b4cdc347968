"""Timers in event time: each fires once, when the watermark of its region has passed it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import holdfast as hf
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.timed import (
    BEGIN,
    DELAY,
    READINGS,
    REGIONS,
    on_time,
    partitions,
    run_troubled,
)

WAIT = timedelta(seconds=7)
STEP = timedelta(seconds=2)
#: A timer sets another one so often, a step later.
STEPS = 2
FIRED = pa.schema(
    [
        ("region", pa.string()),
        ("id", pa.int64()),
        ("step", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)


class Alarms(Hooked, hf.Operator):
    """Sets a timer for each row, which sets others, and one that it takes back."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.alarms = ctx.state.timers("alarms", key={"id": pa.int64(), "step": pa.int64()})
        self.never = ctx.state.timers("never", key=pa.int64())

    def process(self, batch: pa.RecordBatch) -> None:
        self.before(batch)
        rows = batch.filter(pc.is_valid(batch["time"]))
        if rows.num_rows:
            times = pc.add(rows["time"], pa.scalar(WAIT))
            self.alarms.at(pa.table({"id": rows["id"], "step": [0] * rows.num_rows}), times)
            self.never.at(rows["id"], times)
            assert self.never.cancel(rows["id"], times).true_count == rows.num_rows
            assert len(self.never) == 0

    def on_timers(self, name: str, due: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert name == "alarms"
        assert due["time"].to_pylist() == sorted(due["time"].to_pylist())
        yield due.add_column(0, "region", pa.array([self.region] * due.num_rows)).select(
            FIRED.names
        )
        more = due.filter(pc.less(due["step"], STEPS))
        if more.num_rows:
            keys = pa.table({"id": more["id"], "step": pc.add(more["step"], 1)})
            self.alarms.at(keys, pc.add(more["time"], pa.scalar(STEP)))


@pytest.mark.parametrize("seed", range(6))
def test_timers_fire_once_when_the_watermark_has_passed_them(
    seed: int, tmp_path: Path, hooks: Hooks
) -> None:
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", DELAY, schema=READINGS)
        .apply(Alarms(hooks), schema=FIRED)
        .write_parquet(tmp_path / "out")
    )
    rows = run_troubled(writer, tmp_path / "ckpt", hooks, seed)
    kept = set(on_time(rows)[0])
    watermark = {
        at: max(time for region, _, time in rows if time and region == at) - DELAY for at in REGIONS
    }
    due = [
        (region, row_id, step, time + WAIT + step * STEP)
        for region, row_id, time in rows
        for step in range(STEPS + 1)
        if time and row_id in kept
    ]
    before = sorted(one for one in due if one[3] <= watermark[one[0]])
    assert output_of(tmp_path / "out") == before
    # When data ends, all timers fire that are set.
    left = {one[:2]: one for one in sorted(due, reverse=True) if one not in before}
    with writer.open_local(tmp_path / "ckpt") as query:
        query.end_of_data()
    assert output_of(tmp_path / "out") == sorted([*before, *left.values()])


class Reminder(hf.Operator):
    """Reminds of each row, at its time."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.reminders = ctx.state.timers("reminders", key=pa.int64())

    def process(self, batch: pa.RecordBatch) -> None:
        self.reminders.at(batch["id"], batch["time"])

    def on_timers(self, name: str, due: pa.RecordBatch) -> pa.RecordBatch:
        return pa.table({"id": due["key"]})


def test_more_timers_than_one_batch_holds_fire_in_order_of_time(tmp_path: Path) -> None:
    count = 200_000
    ids = [(n * 7919) % count for n in range(count)]
    times = [BEGIN + timedelta(seconds=one) for one in ids]
    rows = pa.table(
        [["bern"] * (count + 1), [*ids, -1], [*times, BEGIN + timedelta(days=99)]], schema=READINGS
    )
    found: list[int] = []
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", timedelta(days=9), schema=READINGS)
        .apply(Reminder(), schema=pa.schema([("id", pa.int64())]))
        .foreach_batch(lambda got, _: found.extend(got["id"].to_pylist()))
    )
    with writer.open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
        query.run_batch([])
    assert found == list(range(count))


def test_timers_fire_when_the_watermark_is_beyond_all_years(tmp_path: Path) -> None:
    found: list[int] = []
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", timedelta(0), schema=READINGS)
        .apply(Reminder(), schema=pa.schema([("id", pa.int64())]))
        .foreach_batch(lambda got, _: found.extend(got["id"].to_pylist()))
    )
    times = pa.array([0, 2**62], pa.int64()).cast(READINGS.field("time").type)
    with writer.open_local(tmp_path / "ckpt") as query:
        query.run_batch([[pa.table([["bern"] * 2, [1, 2], times], schema=READINGS)]])
    assert found == [1]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ({"time": pa.int64()}, "a column of the key cannot be named 'time'"),
        (pa.list_(pa.int64()), "cannot be kept in a table"),
    ],
)
def test_keys_that_timers_cannot_have(key: object, error: str, tmp_path: Path) -> None:
    class Wrong(Reminder):
        def open(self, ctx: hf.OperatorContext) -> None:
            ctx.state.timers("reminders", key=key)

    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=READINGS)
    writer = pipeline.apply(Wrong(), schema=READINGS).write_parquet(tmp_path / "out")
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match=error),
    ):
        query.run_batch(partitions([("bern", 1, BEGIN)]))


def test_rows_without_a_column_of_the_key_are_refused(tmp_path: Path) -> None:
    class Wrong(Reminder):
        def process(self, batch: pa.RecordBatch) -> None:
            self.reminders.at([], [])
            self.reminders.at(batch.select(["id"]), batch["time"])

    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=READINGS)
    writer = pipeline.apply(Wrong(), schema=READINGS).write_parquet(tmp_path / "out")
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match="the rows have no column 'key', only 'time'"),
    ):
        query.run_batch(partitions([("bern", 1, BEGIN)]))


def test_timers_need_a_watermark(tmp_path: Path) -> None:
    writer = (
        hf.regional(region_by="region")
        .apply(Reminder(), schema=READINGS)
        .write_parquet(tmp_path / "out")
    )
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(
            hf.RegionalQueryError, match="state 'reminders' follows a watermark, and there is none"
        ),
    ):
        query.run_batch(partitions([("bern", 1, BEGIN)]))
