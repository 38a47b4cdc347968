"""Rows with varying event times, in batches that fail and restart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from support.regional.hooks import Hooks

REGIONS = ["bern", "oslo", "riga"]
READINGS = pa.schema(
    [("region", pa.string()), ("id", pa.int64()), ("time", pa.timestamp("us", "UTC"))]
)
DELAY = timedelta(seconds=10)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Row = tuple[str, int, "datetime | None"]


def readings(seed: int, batches: int) -> list[list[Row]]:
    """Rows whose event times rise and vary; one in twenty has none."""
    chance = random.Random(seed)  # noqa: S311
    ids = iter(range(1_000_000))

    def row(batch: int) -> Row:
        time = BEGIN + timedelta(seconds=8 * batch + chance.randint(-15, 15))
        return chance.choice(REGIONS), next(ids), None if chance.random() < 0.05 else time

    return [[row(batch) for _ in range(20)] for batch in range(batches)]


def on_time(rows: Sequence[Row], delay: timedelta = DELAY) -> tuple[list[int], list[int]]:
    """Ids of rows on time and of late rows, row by row."""
    newest: dict[str, datetime] = {}
    kept: list[int] = []
    late: list[int] = []
    for region, row_id, time in rows:
        is_late = time is not None and region in newest and time < newest[region] - delay
        (late if is_late else kept).append(row_id)
        if time is not None:
            newest[region] = max(time, newest.get(region, time))
    return kept, late


def partitions(rows: Sequence[Row], slices: int = 1) -> list[list[pa.Table]]:
    """One partition for each region, with its rows in `slices` tables."""
    split = []
    for region in REGIONS:
        own = [row for row in rows if row[0] == region]
        table = pa.Table.from_pydict(
            dict(zip(READINGS.names, zip(*own, strict=True), strict=True))
            if own
            else {name: [] for name in READINGS.names},
            schema=READINGS,
        )
        step = -(-max(1, len(own)) // slices)
        split.append([table.slice(at, step) for at in range(0, max(1, len(own)), step)])
    return split


def run_troubled(writer: hf.RegionalWriter, path: Path, hooks: Hooks, seed: int) -> list[Row]:
    """Runs batches in which regions fail, with restarts in between."""
    batches = readings(seed, batches=12)
    chance = random.Random(seed)  # noqa: S311
    fell_back = 0
    options: dict[str, Any] = {"max_consecutive_failures": 99, "max_failure_ratio": 1.0}
    if seed % 2:
        # Barriers overtake rows, so regions have pending rows.
        options["aligned_timeout"] = timedelta(0)
    for first in range(0, len(batches), 4):
        with writer.open_local(path, **options) as query:
            for number in range(first, first + 4):
                hooks.calm()
                if number % 4:
                    region, row_id, _ = chance.choice(batches[number])
                    # After some rows, unless these may be pending.
                    hooks.fail_for(region, range(0 if seed % 2 else row_id, 1_000_000))
                query.run_batch(partitions(batches[number], slices=3), batch_id=number)
                fell_back += len(query.latest.failed)
            hooks.calm()
            query.run_batch([], batch_id=first + 3)
            if first + 4 == len(batches):
                query.finish()
    assert fell_back
    return [row for batch in batches for row in batch]
