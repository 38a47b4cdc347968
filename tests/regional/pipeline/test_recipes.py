"""Recipes of the documents have the results of plain Python, whatever regions fail meanwhile."""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import output_of
from support.regional.recipes import PAGE, programs
from support.regional.timed import BEGIN, Row, on_time, run_troubled
from support.spark.readme import blocks

DELAY = timedelta(minutes=10)
HOUR = timedelta(hours=1)
Given = list[dict[str, Any]]
Result = list[tuple[Any, ...]]


def test_the_programs_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [block.text for block in blocks(PAGE) if block.language == "text"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        programs()
    assert printed.getvalue() == "".join(shown)


def minute(time: datetime) -> datetime:
    """The seconds of `timed.readings` as minutes, which the recipes count in."""
    return BEGIN + 60 * (time - BEGIN)


def reading(region: str, number: int, time: datetime, devices: int = 9) -> dict[str, Any]:
    device = f"{region}-{number % devices}"
    return {"site": region, "device": device, "time": time, "reading": float(number % 7)}


def message(region: str, number: int, time: datetime) -> dict[str, Any]:
    return {"site": region, "id": number % 5, "time": time}


def event(region: str, number: int, time: datetime) -> dict[str, Any]:
    return {
        "shop": region,
        "kind": ("order", "payment")[number % 2],
        "customer": f"{region}-{number // 2 % 4}",
        "time": time,
        "amount": float(number),
    }


def payment(region: str, number: int, time: datetime) -> dict[str, Any]:
    return {"shop": region, "customer": f"{region}-{number % 4}", "amount": float(number % 7)}


def windows(rows: Given) -> Result:
    found = defaultdict(list)
    for row in rows:
        begin = row["time"].replace(minute=row["time"].minute // 15 * 15)
        found[row["device"], begin].append(row["reading"])
    return [(*key, sum(values) / len(values), len(values)) for key, values in found.items()]


def sessions(rows: Given) -> Result:
    found: list[list[Any]] = []
    for row in sorted(rows, key=lambda row: (row["device"], row["time"])):
        device, time = row["device"], row["time"]
        if found and found[-1][0] == device and time - found[-1][2] <= timedelta(minutes=10):
            found[-1][2:] = [time, found[-1][3] + 1]
        else:
            found.append([device, time, time, 1])
    return [tuple(session) for session in found]


def without_duplicates(rows: Given) -> Result:
    seen: dict[tuple[str, int], datetime] = {}
    kept = []
    for row in rows:
        key = row["site"], row["id"]
        if key not in seen or row["time"] > seen[key] + HOUR:
            seen[key] = row["time"]
            kept.append(tuple(row.values()))
    return kept


def pairs(rows: Given) -> Result:
    orders, payments = (
        [row for row in rows if row["kind"] == kind] for kind in ("order", "payment")
    )
    return [
        (one["customer"], one["amount"], one["time"], other["time"], other["amount"])
        for one, other in product(orders, payments)
        if one["customer"] == other["customer"]
        and one["time"] <= other["time"] <= one["time"] + HOUR
    ]


def scored(rows: Given) -> Result:
    before = defaultdict(list)
    found = []
    for row in rows:
        known, amount = before[row["customer"]], row["amount"]
        total = sum(known)
        score = amount * len(known) / total if total else 1.0
        found.append((row["customer"], amount, len(known), total, score))
        known.append(amount)
    return found


class Rows(Hooked):
    """Makes rows of a recipe from readings that have a time."""

    region_safe = True

    def __init__(self, hooks: Hooks, make: Callable[..., dict[str, Any]], schema: pa.Schema):
        super().__init__(hooks)
        self.make = make
        self.schema = schema

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.before(batch)
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        return pa.RecordBatch.from_pylist(given(rows, self.make), schema=self.schema)


def given(rows: Sequence[Row], make: Callable[..., dict[str, Any]]) -> Given:
    return [make(region, number, minute(time)) for region, number, time in rows if time]


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize(
    ("operator", "rows", "result", "make", "expected"),
    [
        ("Windows", "READINGS", "MEANS", partial(reading, devices=2), windows),
        ("Sessions", "READINGS", "SESSIONS", reading, sessions),
        ("Deduplicated", "MESSAGES", "MESSAGES", message, without_duplicates),
        ("Paid", "EVENTS", "PAIRS", event, pairs),
        ("Scored", "PAYMENTS", "SCORED", payment, scored),
    ],
)
def test_a_recipe_has_the_rows_of_plain_python_while_regions_fail(
    operator: str,
    rows: str,
    result: str,
    make: Callable[..., dict[str, Any]],
    expected: Callable[[Given], Result],
    seed: int,
    tmp_path: Path,
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = programs()
    pipeline = hf.regional(region_by="region").apply(
        Rows(hooks, make, names[rows]), schema=names[rows]
    )
    has_time = "time" in names[rows].names
    if has_time:
        pipeline = pipeline.with_watermark("time", DELAY)
    writer = pipeline.apply(names[operator](), schema=names[result]).write_parquet(tmp_path / "out")
    taken = run_troubled(writer, tmp_path / "ckpt", hooks, seed)
    with writer.open_local(tmp_path / "ckpt") as query:
        query.end_of_data()
    found = output_of(tmp_path / "out")
    in_minutes = [(region, number, time and minute(time)) for region, number, time in taken]
    kept = set(on_time(in_minutes, DELAY)[0])
    used = [row for row in taken if not has_time or row[1] in kept]
    assert found == sorted(expected(given(used, make)))
