"""Tables and timers follow the rows of their keys to other instances (SEMANTICS R73)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.base.errors import LayoutChangedError
from support.regional.seeds import new_seeds

REGIONS = ["r0", "r1", "r2"]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = pa.schema(
    [
        ("region", pa.string()),
        ("site", pa.int32()),
        ("device", pa.string()),
        ("amount", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
OUT = pa.schema(
    [
        ("region", pa.string()),
        ("site", pa.int32()),
        ("device", pa.string()),
        ("what", pa.string()),
        ("total", pa.int64()),
    ]
)

#: Regions that fail, after their operator changed its table.
FAILING: set[str] = set()


class Totals(hf.Operator):
    """Sums amounts by device, and sets a timer for each of its rows."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        key = {"site": pa.int32(), "device": pa.string()}
        self.totals = ctx.state.table("totals", key=key, value=pa.int64())
        self.recent = ctx.state.table("recent", key=key, value=pa.int64(), ttl="10 days")
        self.due = ctx.state.timers("due", key=key)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        for row in batch.to_pylist():
            key = row["site"], row["device"]
            self.totals[key] = total = self.known(key) + row["amount"]
            assert self.recent.get(self.one(*key))["value"][0].as_py() == (
                total - row["amount"] or None
            )
            self.recent[key] = total
            yield self.put_out(*key, "total", total)
            self.due.at(self.one(*key), row["ts"])
        if self.region in FAILING:
            raise RuntimeError("the region fails")

    def one(self, site: int, device: str) -> pa.Table:
        return pa.table({"site": [site], "device": [device]})

    def known(self, key: tuple[int, str]) -> int:
        try:
            return int(self.totals[key])
        except KeyError:
            return 0

    def on_timers(self, name: str, due: pa.RecordBatch) -> Iterator[pa.Table]:
        for row in due.to_pylist():
            key = row["site"], row["device"]
            yield self.put_out(*key, "due", int((row["time"] - BEGIN).total_seconds()))

    def put_out(self, site: int, device: str, what: str, number: int) -> pa.Table:
        columns = [[self.region], [site], [device], [what], [number]]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, OUT, strict=True)], schema=OUT
        )


#: Parallelism and columns of `route_by`.
LAYOUTS: list[tuple[int, tuple[str, ...]]] = [
    (1, ()),
    (2, ("device",)),
    (3, ("device",)),
    (3, ("site", "device")),
    (5, ("site",)),
]


def pipeline(
    path: Path, layout: tuple[int, tuple[str, ...]], published: list[dict[str, Any]], **options: Any
) -> hf.LocalQuery:
    parallelism, columns = layout
    route = {"parallelism": parallelism, "route_by": list(columns)} if parallelism > 1 else {}
    return (
        hf.regional(region_by="region")
        .with_watermark("ts", "5 seconds", schema=ROWS)
        .apply(Totals(), schema=OUT, name="totals", **route)
        .foreach_batch(lambda rows, checkpoint: published.extend(rows.to_pylist()))
        .open_local(
            path, max_failure_ratio=0.8, max_consecutive_failures=1000, num_retained=2, **options
        )
    )


def batch_of(history: random.Random, number: int) -> list[tuple[Any, ...]]:
    return [
        (
            region,
            history.randrange(3),
            f"device {history.randrange(9)}",
            history.randrange(1, 100),
            BEGIN + timedelta(seconds=4 * number + history.randrange(4)),
        )
        for region in REGIONS
        for _ in range(history.randrange(1, 7))
    ]


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)], schema=ROWS)


def run_history(path: Path, seed: int) -> None:
    """Change the layout between batches, with regions that fail; compare with a dict."""
    history = random.Random(seed)  # noqa: S311
    published: list[dict[str, Any]] = []
    expected: list[tuple[Any, ...]] = []
    sums: dict[tuple[Any, ...], int] = {}
    folders = batches = 0
    local = pipeline(path / "0", history.choice(LAYOUTS), published)
    try:
        for number in range(history.randrange(4, 14)):
            FAILING.clear()
            # The first checkpoint in a layout needs all regions.
            if batches and history.random() < 0.4:
                FAILING.add(history.choice(REGIONS))
            batches += 1
            rows = batch_of(history, number)
            for region, site, device, amount, ts in rows:
                key = region, site, device
                sums[key] = sums.get(key, 0) + amount
                expected.append((*key, "total", sums[key]))
                expected.append((*key, "due", int((ts - BEGIN).total_seconds())))
            local.run_batch([[table_of(rows)]])
            chance = history.random()
            if chance < 0.3:
                FAILING.clear()
                if chance < 0.15:
                    local.stop_with_savepoint(path / f"save-{folders}")
                    origin = hf.restore(path / f"save-{folders}")
                else:  # the regions that failed owe rows
                    local.close()
                    origin = hf.restore(path / str(folders))
                folders, batches = folders + 1, 0
                layout = history.choice(LAYOUTS)
                local = pipeline(path / str(folders), layout, published, restore=origin)
        FAILING.clear()
        # The watermark passes all timers but those of these rows.
        last = [(region, 9, "last", 0, BEGIN + timedelta(days=1)) for region in REGIONS]
        expected += [(*row[:3], "total", 0) for row in last]
        local.run_batch([[table_of(last)]])
        local.finish()
    finally:
        FAILING.clear()
        local.close()
    found = [tuple(row[name] for name in OUT.names) for row in published]
    # A timer that is set twice is set once.
    assert sorted(row for row in found if row[3] == "total") == sorted(
        row for row in expected if row[3] == "total"
    ), seed
    assert {row for row in found if row[3] == "due"} == {
        row for row in expected if row[3] == "due"
    }, seed


@pytest.mark.parametrize("seed", range(3))
def test_tables_and_timers_follow_their_rows(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", new_seeds(150))
def test_tables_and_timers_follow_their_rows_in_many_histories(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


class Stray(Totals):
    """Sets keys whose rows do not come to the instance, behind others."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.strays = ctx.state.table("strays", key={"device": pa.string()}, value=pa.int64())

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        keys = batch.column("device").to_pylist()
        keys += [f"device {number}" for number in range(9)]
        self.strays.upsert(keys, [0] * len(keys))
        yield from ()


class OfOthers(Stray):
    """Sets keys whose rows do not come to the instance."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        for number in range(9):
            self.strays[f"device {number}"] = 0
        yield from ()


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (LAYOUTS[1], LAYOUTS[2], r"'strays' of instance \d has the key \{'device': 'device \d'\}"),
        (LAYOUTS[0], LAYOUTS[4], "table 'strays' has no column 'site' in its key"),
        (LAYOUTS[4], LAYOUTS[0], "table 'strays' has no column 'site' in its key"),
    ],
)
def test_tables_that_cannot_follow_are_refused(
    tmp_path: Path, before: Any, now: Any, message: str
) -> None:
    def opened(folder: str, layout: Any, **options: Any) -> hf.LocalQuery:
        parallelism, columns = layout
        route = {"parallelism": parallelism, "route_by": list(columns)} if parallelism > 1 else {}
        return (
            hf.regional(region_by="region")
            .apply(Stray(), schema=OUT, name="strays", **route)
            .foreach_batch(lambda rows, checkpoint: None)
            .open_local(tmp_path / folder, **options)
        )

    with opened("first", before) as local:
        local.run_batch([[table_of(batch_of(random.Random(0), 0))]])  # noqa: S311
    with pytest.raises(LayoutChangedError, match=message):
        opened("second", now, restore=hf.restore(tmp_path / "first"))
    assert not (tmp_path / "second").exists()
    with opened("first", before) as local:
        local.run_batch([[table_of(batch_of(random.Random(0), 1))]])  # noqa: S311


def test_a_key_of_another_instance_is_refused_if_it_comes_first(tmp_path: Path) -> None:
    with (
        hf.regional(region_by="region")
        .apply(OfOthers(), schema=OUT, name="strays", parallelism=3, route_by="device")
        .foreach_batch(lambda rows, checkpoint: None)
        .open_local(tmp_path) as local,
        pytest.raises(hf.RegionalQueryError, match=r"'device 0'\} do not come to instance \d of 3"),
    ):
        local.run_batch([[table_of(batch_of(random.Random(0), 0))]])  # noqa: S311
