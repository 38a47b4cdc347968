"""Timers in processing time: due by the driver's time, with or without rows of their region."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import holdfast as hf
from holdfast._core import RegionEntry
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.base.saved import StateError
from holdfast.regions.coordinator.options import Bounds
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import write_operator
from holdfast.regions.state.tables.stored_table import (
    FrozenTable,
    first_due,
    saved_columns,
    saved_due,
)
from holdfast.regions.state.tables.timers import DueTimers
from holdfast.regions.state.tables.times import AttemptTimes, microseconds_of
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.quick_clock import QuickClock, StoppedClock
from support.regional.seeds import some_and_more
from support.regional.table_world import OWNERS, World
from support.regional.tuned import tune_coordinators

ROWS = pa.schema([("region", pa.string()), ("id", pa.int64())])
REGIONS = ["bern", "oslo", "riga"]
STEP = timedelta(minutes=1)
WAIT = 2.5 * STEP
AGAIN = 0.75 * STEP
#: A timer sets another one so often.
STEPS = 2
FIRED = pa.schema(
    [
        ("region", pa.string()),
        ("id", pa.int64()),
        ("step", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("at", pa.timestamp("us", "UTC")),
    ]
)

Fired = tuple[str, int, int, datetime, datetime]


class Alarms(Hooked, hf.Operator):
    """Sets a timer for each row, which sets others, and one that it takes back."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx
        self.region = ctx.region
        key = {"id": pa.int64(), "step": pa.int64()}
        self.alarms = ctx.state.timers("alarms", key=key, time="processing")
        self.never = ctx.state.timers("never", key=pa.int64(), time="processing")

    def process(self, batch: pa.RecordBatch) -> None:
        self.before(batch)
        keys = pa.table({"id": batch["id"], "step": [0] * batch.num_rows})
        self.alarms.at(keys, self.ctx.processing_time() + WAIT)
        self.never.at(batch["id"], self.ctx.processing_time())
        assert self.never.cancel(batch["id"], self.ctx.processing_time()).false_count == 0

    def on_timers(self, name: str, due: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert name == "alarms"
        self.before(due)
        count = due.num_rows
        now = self.ctx.processing_time()
        yield pa.table(
            [[self.region] * count, due["id"], due["step"], due["time"], [now] * count],
            schema=FIRED,
        )
        more = due.filter(pc.less(due["step"], STEPS))
        if more.num_rows:
            keys = pa.table({"id": more["id"], "step": pc.add(more["step"], 1)})
            self.alarms.at(keys, pc.add(more["time"], pa.scalar(AGAIN)))


@dataclass
class Model:
    """The rows and timers of a region."""

    region: str
    owed: list[int] = field(default_factory=list)
    timers: list[tuple[datetime, int, int]] = field(default_factory=list)
    fired: list[Fired] = field(default_factory=list)

    def contribute(self, now: datetime) -> None:
        """Take in the rows that it owes, and the timers that are due."""
        self.timers += [(now + WAIT, row_id, 0) for row_id in self.owed]
        self.owed = []
        while due := [timer for timer in self.timers if timer[0] <= now]:
            self.timers = [timer for timer in self.timers if timer[0] > now]
            self.fired += [(self.region, row_id, step, time, now) for time, row_id, step in due]
            self.timers += [
                (time + AGAIN, row_id, step + 1) for time, row_id, step in due if step < STEPS
            ]


def partitions(rows: Sequence[tuple[str, int]]) -> list[list[pa.Table]]:
    columns = zip(*rows, strict=True) if rows else ((), ())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ROWS.types, strict=True)]
    return [[pa.table(arrays, schema=ROWS)]]


def pipeline(path: Path, hooks: Hooks) -> hf.RegionalWriter:
    return (
        hf.regional(region_by="region")
        .apply(Alarms(hooks), schema=FIRED, name="alarms")
        .write_parquet(path / "out")
    )


@pytest.mark.parametrize("seed", some_and_more(range(2), 60))
def test_timers_fire_once_in_the_first_batch_after_their_time(
    seed: int, tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    chance = random.Random(seed)  # noqa: S311
    stopped = StoppedClock(clock, STEP)
    ids = iter(range(1_000_000))
    model = {region: Model(region) for region in REGIONS}
    fell_back = 0
    for start in range(4):
        with pipeline(tmp_path, hooks).open_local(
            tmp_path / "ckpt", max_consecutive_failures=99, max_failure_ratio=1.0
        ) as query:
            for number in range(4):
                hooks.calm()
                is_first = start == number == 0
                if not is_first and number < 3:
                    hooks.fail_for(chance.choice(REGIONS), range(1_000_000))
                rows = [
                    (region, next(ids))
                    for region in REGIONS
                    for _ in range(1 if is_first else chance.choice([0, 0, 1, 2]))
                ]
                now = stopped.step()
                query.run_batch(partitions(rows))
                fell_back += len(query.latest.failed)
                for region, one in model.items():
                    one.owed += [row_id for at, row_id in rows if at == region]
                    if region not in query.latest.failed:
                        one.contribute(now)
    assert fell_back
    assert output_of(tmp_path / "out") == sorted(row for one in model.values() for row in one.fired)
    # When data ends, all timers fire that are set.
    with pipeline(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        hooks.calm()
        query.end_of_data()
    left = sum(len(one.timers) for one in model.values())
    assert left
    assert len(output_of(tmp_path / "out")) == sum(len(one.fired) for one in model.values()) + left


def test_timers_of_a_region_in_quarantine_wait_until_it_is_repaired(
    tmp_path: Path, hooks: Hooks, clock: QuickClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A region that is set aside takes no other one's turn.
    tune_coordinators(monkeypatch.setattr, bounds=Bounds(woken_at_once=1))
    stopped = StoppedClock(clock, STEP)
    options: dict[str, Any] = {"quarantine_after": 1}
    with pipeline(tmp_path, hooks).open_local(tmp_path / "ckpt", **options) as query:
        query.run_batch(partitions([("riga", 1), ("bern", 2)]))
        stopped.step(0.1)
        query.run_batch(partitions([("oslo", 3)]))
        hooks.fail_for("riga", range(10))
        stopped.step(2.5)
        for _ in range(3):
            query.run_batch(partitions([("bern", 4)]))
        assert in_quarantine(query.latest.regions["riga"])
        assert {row[0] for row in output_of(tmp_path / "out")} == {"bern", "oslo"}
    hooks.calm()
    with pipeline(tmp_path, hooks).open_local(tmp_path / "ckpt", **options) as query:
        query.run_batch(partitions([]))
        query.run_batch(partitions([]))
    assert [row[:3] for row in output_of(tmp_path / "out") if row[0] == "riga"] == [("riga", 1, 0)]


def test_another_pipeline_that_begins_there_knows_the_timers(
    tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    stopped = StoppedClock(clock, STEP)
    (tmp_path / "new").mkdir()
    with pipeline(tmp_path, hooks).open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions([("bern", 1)]))
        query.stop_with_savepoint(tmp_path / "save")
    stopped.step(9)
    origin = hf.restore(tmp_path / "save")
    writer = pipeline(tmp_path / "new", hooks)
    with writer.open_local(tmp_path / "new" / "ckpt", restore=origin) as query:
        query.run_batch(partitions([]))
    assert [row[:3] for row in output_of(tmp_path / "new" / "out")] == [
        ("bern", 1, n) for n in range(3)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_says_when_the_first_timer_is_due(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    world = World(tmp_path)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    model: set[tuple[int, datetime]] = set()
    for _ in range(40):
        now += timedelta(seconds=chance.choice([0, 1, 100, 10_000]))
        registry = world.begin(AttemptTimes(now))
        timers = registry.timers("t", key=pa.int64(), time="processing")
        for key in range(chance.randrange(4)):
            time = now + timedelta(microseconds=chance.choice([-5, 0, 1, 10**5, 10**9, 10**13]))
            timers.at([key], time)
            model.add((key, time))
        for key, time in chance.sample(sorted(model), len(model) // 4):
            timers.cancel([key], time)
            model.discard((key, time))
        if chance.random() < 0.8:
            taken = DueTimers([("t", timers)], AttemptTimes(now)).take()
            found = {(row["key"], row["time"]) for _, due in taken for row in due.to_pylist()}
            assert found == {timer for timer in model if timer[1] <= now}
            model -= found
        world.complete(registry)
        (saved,) = world.saved
        first = min((microseconds_of(time) for _, time in model), default=None)
        due = saved_due(saved.data)
        # It may be too early after a timer was taken back, and then it has passed soon.
        assert due == first or (due is not None and (first is None or due < first))
        if due is not None and due <= microseconds_of(now):
            assert due == first
    world.manager.close()


def test_texts_of_timers_in_checkpoints() -> None:
    columns = '{"key":[["time","timestamp[us, tz=UTC]"],["key","int64"]],"value":[["set","bool"]]}'
    columns = columns[:-1] + ',"time":"processing"}'
    text = FrozenTable("t", columns, "c", (), 3, 1767225600000000).text
    fixture = f'{{"version":1,"commit":"c","keys":3,{columns[1:-1]},"due":1767225600000000}}'
    assert text == fixture.encode()
    assert saved_columns(memoryview(text)) == columns
    assert saved_due(memoryview(text)) == 1767225600000000
    assert saved_due(memoryview(b'{"version":1,"commit":"c","keys":3}')) is None


def test_values_do_not_say_when_timers_are_due(tmp_path: Path) -> None:
    world = World(tmp_path)
    registry = world.begin()
    registry.value("v", {"due": 5})
    registry.timers("t", key=pa.int64(), time="processing").at(
        [1], datetime(2026, 1, 1, tzinfo=UTC)
    )
    registry.timers("none", key=pa.int64(), time="processing").at([], [])
    states = registry.freeze(lambda name, refs: [])
    operator = write_operator(world.manager, OWNERS, 1, "count", states)
    assert first_due(RegionEntry("bern", origin=1, operators=[operator])) == 1767225600000000
    assert first_due(RegionEntry("bern", origin=1)) is None
    world.manager.close()


@pytest.mark.parametrize(("before", "after"), [("event", "processing"), ("processing", "event")])
def test_timers_stay_in_their_time(tmp_path: Path, before: str, after: str) -> None:
    world = World(tmp_path)
    registry = world.begin()
    registry.timers("t", key=pa.int64(), time=before)  # type: ignore[arg-type]
    world.complete(registry)
    with pytest.raises(StateError, match=r"the checkpoint has a table of .* the operator declares"):
        world.begin().timers("t", key=pa.int64(), time=after)  # type: ignore[arg-type]
    world.manager.close()


def test_there_are_two_times() -> None:
    with pytest.raises(StateError, match="expected 'event' or 'processing'"):
        StateRegistry(None).timers("t", key=pa.int64(), time="later")  # type: ignore[arg-type]
