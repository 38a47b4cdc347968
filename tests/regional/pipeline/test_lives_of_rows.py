"""Tables whose rows expire, in regions that fail, fall back and start again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.quick_clock import QuickClock, StoppedClock
from support.regional.seeds import some_and_more
from support.regional.timed import (
    BEGIN,
    DELAY,
    READINGS,
    REGIONS,
    Row,
    on_time,
    partitions,
    readings,
)

STEP = timedelta(minutes=1)
PROCESSING_TTL = timedelta(minutes=3, seconds=30)
EVENT_TTL = timedelta(seconds=12)
KEYS = 5
ALIVE = -1
COUNTED = pa.schema([("region", pa.string()), ("id", pa.int64()), ("count", pa.int64())])


class Counts(Hooked, hf.Operator):
    """Numbers the rows of each key, from 1 again when the key has expired."""

    region_safe = True
    ttl_by: str | None = None
    ttl = PROCESSING_TTL

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        value = {"count": pa.int64(), "time": pa.timestamp("us", "UTC")}
        self.counts = ctx.state.table(
            "counts", key=pa.int64(), value=value, ttl=self.ttl, ttl_by=self.ttl_by
        )

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        found = []
        for row in batch.to_pylist():
            key = row["id"] % KEYS
            count = 1 + (self.counts[key]["count"] if key in self.counts else 0)
            self.counts[key] = {"count": count, "time": row["time"]}
            found.append((self.region, row["id"], count))
        yield pa.table(list(zip(*found, strict=True)), schema=COUNTED).combine_chunks()


class CountsByEvent(Counts):
    """The same, by the event time of the newest row. Also tells how many keys have not expired."""

    ttl_by = "time"
    ttl = EVENT_TTL

    def on_watermark(self, watermark: datetime) -> pa.RecordBatch:
        alive = sum(batch.num_rows for batch in self.counts.scan())
        return pa.record_batch([[self.region], [ALIVE], [alive]], schema=COUNTED)


class Model:
    """The rows of a region, as one dict has them."""

    def __init__(self) -> None:
        self.owed: list[Row] = []
        self.seen: list[Row] = []
        self.counts: dict[int, tuple[int, datetime | None]] = {}
        self.found: list[tuple[str, int, int]] = []

    def contribute(self, attempt: datetime, by_event: bool) -> None:
        """Take in the rows that it owes, in an attempt that began at this time."""
        now = self.watermark() if by_event else attempt
        self.seen += self.owed
        kept = set(on_time(self.seen)[0])
        for region, row_id, time in self.owed:
            if row_id not in kept:
                continue
            count, since = self.counts.get(row_id % KEYS, (0, None))
            if over(since, now, by_event):
                count = 0
            self.counts[row_id % KEYS] = (count + 1, time if by_event else attempt)
            self.found.append((region, row_id, count + 1))
        self.owed = []
        if by_event and (now := self.watermark()):
            alive = [since for _, since in self.counts.values() if not over(since, now, by_event)]
            self.found.append((self.seen[0][0], ALIVE, len(alive)))

    def watermark(self) -> datetime | None:
        newest = max((time for _, _, time in self.seen if time), default=None)
        return newest and newest - DELAY


def over(since: datetime | None, now: datetime | None, by_event: bool) -> bool:
    ttl = EVENT_TTL if by_event else PROCESSING_TTL
    return now is not None and since is not None and since + ttl <= now


@pytest.mark.parametrize("operator", [Counts, CountsByEvent])
@pytest.mark.parametrize("seed", some_and_more(range(2), 40))
def test_rows_expire_by_the_attempt_or_the_watermark_alone(
    seed: int, operator: type[Counts], tmp_path: Path, hooks: Hooks, clock: QuickClock
) -> None:
    by_event = operator is CountsByEvent
    writer = (
        hf.regional(region_by="region")
        .with_watermark("time", DELAY, schema=READINGS)
        .apply(operator(hooks), schema=COUNTED)
        .write_parquet(tmp_path / "out")
    )
    chance = random.Random(seed)  # noqa: S311
    stopped = StoppedClock(clock, STEP)
    batches = readings(seed, batches=16)
    model = {region: Model() for region in REGIONS}
    for first in range(0, len(batches), 4):
        with writer.open_local(
            tmp_path / "ckpt", max_consecutive_failures=99, max_failure_ratio=1.0
        ) as query:
            for number in range(first, first + 4):
                hooks.calm()
                if number % 4 != 3:
                    hooks.fail_for(chance.choice(REGIONS), range(1_000_000))
                now = stopped.step()
                query.run_batch(partitions(batches[number], slices=3), batch_id=number)
                for region in REGIONS:
                    rows = [row for row in batches[number] if row[0] == region]
                    model[region].owed += rows
                    if model[region].owed and region not in query.latest.failed:
                        model[region].contribute(now, by_event)
            query.finish()
    expected = sorted(row for one in model.values() for row in one.found)
    # Some keys had expired, and some had not.
    again = sum(count == 1 for _, row_id, count in expected if row_id != ALIVE)
    assert 0 < again - len(REGIONS) * KEYS < len(expected)
    assert output_of(tmp_path / "out") == expected


def test_a_ttl_by_event_time_needs_a_watermark(tmp_path: Path) -> None:
    writer = (
        hf.regional(region_by="region")
        .apply(CountsByEvent(), schema=COUNTED)
        .write_parquet(tmp_path / "out")
    )
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(
            hf.RegionalQueryError, match="state 'counts' follows a watermark, and there is none"
        ),
    ):
        query.run_batch(partitions([("bern", 1, BEGIN)]))
