"""Timers in event time: each fires once, when the watermark of its region has passed it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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


#: More timers than a scan of the table has at a time, because of their wide keys.
MANY = 2500
WIDE = 4096
PAST = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime(2200, 1, 1, tzinfo=UTC)
SEEN = pa.schema([("name", pa.string()), ("id", pa.int64()), ("time", pa.timestamp("us", "UTC"))])


class Changing(hf.Operator):
    """Has timers of several names, cancels and sets them while they fire, and checks the rest."""

    region_safe = True

    def __init__(self, seed: int, begin: datetime) -> None:
        self.seed = seed
        self.begin = begin
        self.sets = begin == PAST

    def open(self, ctx: hf.OperatorContext) -> None:
        key = {"id": pa.int64(), "wide": pa.string()}
        self.timers = {
            "many": ctx.state.timers("many", key=key),
            "few": ctx.state.timers("few", key=key),
            "others": ctx.state.timers("others", key=key, time="processing"),
            "first": ctx.state.timers("first", key=key, time="processing"),
        }
        self.is_set: dict[str, set[tuple[datetime, int]]] = {name: set() for name in self.timers}
        self.chance = random.Random(self.seed)  # noqa: S311
        self.changes = 0

    def process(self, batch: pa.RecordBatch) -> None:
        for name in self.timers:
            count = MANY if name in ("many", "others") else 20
            self.set(name, [(self.seconds(MANY), number) for number in range(count)])

    def on_watermark(self, watermark: datetime) -> None:
        if self.sets and self.changes < 200:
            self.changes += 1
            self.set("few", [(self.seconds(9), 77)])

    def on_timers(self, name: str, due: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found = list(zip(due["time"].to_pylist(), due["id"].to_pylist(), strict=True))
        assert found == sorted(found)
        assert self.is_set[name].issuperset(found)
        # The first one of all in processing time, or, where there is none, of all in event time.
        firsts = [
            (other in ("many", "few"), min(times)[0], number, other)
            for number, (other, times) in enumerate(self.is_set.items())
            if times
        ]
        assert name == min(firsts)[-1]
        assert found[0] == min(self.is_set[name])
        self.is_set[name] -= set(found)
        yield pa.table([[name] * due.num_rows, due["id"], due["time"]], schema=SEEN)
        assert not self.timers[name].cancel(*self.rows(found)).true_count
        for other, times in self.is_set.items():
            gone = self.chance.sample(sorted(times), min(len(times) // 2, 40))
            if gone:
                assert not self.timers[other].cancel(*self.rows(gone)).false_count
                self.is_set[other] -= set(gone)
                self.set(other, gone[:10])  # these are as they were
        if self.sets and self.changes < 200:
            self.changes += 1
            later = [(time + timedelta(seconds=1), number) for time, number in found[:10]]
            self.set(self.chance.choice(list(self.timers)), later)

    def seconds(self, most: int) -> datetime:
        return self.begin + timedelta(seconds=self.chance.randint(0, most))

    def rows(self, timers: list[tuple[datetime, int]]) -> tuple[pa.Table, pa.Array]:
        ids = [number for _, number in timers]
        times = pa.array([time for time, _ in timers], SEEN.field("time").type)
        wide = pa.array([f"{number:0{WIDE}}" for number in ids], pa.string())
        return pa.table({"id": pa.array(ids, pa.int64()), "wide": wide}), times

    def set(self, name: str, timers: list[tuple[datetime, int]]) -> None:
        self.timers[name].at(*self.rows(timers))
        self.is_set[name] |= set(timers)

    def close(self) -> None:
        LEFT.append(sum(map(len, self.is_set.values())))


LEFT: list[int] = []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at_end", [False, True])
def test_changes_that_an_operator_makes_while_timers_fire_hold(
    tmp_path: Path, seed: int, *, at_end: bool
) -> None:
    found: list[object] = []
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", timedelta(0), schema=READINGS)
        .apply(Changing(seed, FUTURE if at_end else PAST), schema=SEEN, name="changing")
        .foreach_batch(lambda got, _: found.extend(got.to_pylist()))
    )
    LEFT.clear()
    with writer.open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions([("bern", 1, BEGIN)]))
        if at_end:
            assert not found
            query.end_of_data()
    assert len(found) > MANY // 4
    assert LEFT == [0]


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


@pytest.mark.parametrize(
    ("keys", "times", "error"),
    [
        ([1.5], BEGIN, r"column 'key' is declared as int64: 1\.5 would become 1: round"),
        (pa.array([1.5]), BEGIN, "column 'key' is declared as int64: Float value 1.5"),
        ([1], pa.array([1], pa.timestamp("ns")), "column 'time' is declared as timestamp"),
        ([1], pa.array([2**62]).cast(pa.timestamp("s")), "column 'time' is declared as timestamp"),
    ],
)
def test_timers_that_would_become_others_are_refused(
    keys: Any, times: Any, error: str, tmp_path: Path
) -> None:
    class Wrong(Reminder):
        def open(self, ctx: hf.OperatorContext) -> None:
            self.reminders = ctx.state.timers("reminders", key=pa.int64())

        def process(self, batch: pa.RecordBatch) -> None:
            for call in (self.reminders.cancel, self.reminders.at):
                with pytest.raises(hf.StateError, match=error):
                    call(keys, times)
            self.reminders.at(keys, times)

    pipeline = hf.regional(region_by="region").with_watermark("time", DELAY, schema=READINGS)
    writer = pipeline.apply(Wrong(), schema=READINGS).write_parquet(tmp_path / "out")
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.RegionalQueryError, match=error),
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
