"""Recipes on Spark put out what Spark's own operators put out for the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support.regional.recipes import programs
from support.spark.queries import drain, source, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.full]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: So much may rows be out of order, and so long are ids known.
DELAY = "1 hour"
BATCHES = 24


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream with an hour of rows in each batch, half an hour behind those of the batch before.

    None is late. Ids come again within an hour and after four hours. Behind all others comes a row
    that lets the watermark pass them.
    """
    chance = random.Random(0)  # noqa: S311
    folder = tmp_path / "in"
    folder.mkdir()

    def row(minute: int, device: str, number: int) -> dict[str, Any]:
        time = BEGIN + timedelta(minutes=minute)
        return {"site": "bern", "device": device, "time": time, "reading": 1.0, "id": number}

    for batch in range(BATCHES):
        minutes = (30 * batch + chance.randint(-30, 30) for _ in range(20))
        numbers = (100 * (batch % 8) + chance.randint(0, 12) for _ in range(20))
        devices = (f"d{chance.randint(0, 4)}" for _ in range(20))
        pairs = zip(minutes, devices, numbers, strict=True)
        write_batch(folder, batch, [row(*values) for values in pairs])
    write_batch(folder, BATCHES, [row(30 * BATCHES + 300, "last", 1000)])
    return source(spark, folder)


@pytest.fixture
def by_recipe(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, str], DataFrame]:
    """Run an operator of the recipes, by the names of its rows and of those that it puts out."""
    monkeypatch.chdir(tmp_path)
    names = programs()

    def run(operator: str, given: str, result: str) -> DataFrame:
        query = (
            holdfast.regional(rows.select(names[given].names), region_by="site")
            .with_watermark("time", DELAY)
            .apply(names[operator](), schema=names[result])
            .write_parquet(tmp_path / "out")
            .start(tmp_path / "ckpt")
        )
        query.processAllAvailable()
        query.stop()
        return spark.read.parquet(str(tmp_path / "out"))

    return run


def by_spark(frame: DataFrame, folder: Path) -> list[tuple[Any, ...]]:
    batches: dict[int, list[tuple[Any, ...]]] = {}
    drain(frame, checkpoint=folder / "of-spark", mode="append", into=batches)
    return sorted(row for rows in batches.values() for row in rows)


def test_sessions_are_those_of_session_window(
    rows: DataFrame, by_recipe: Callable[[str, str, str], DataFrame], tmp_path: Path
) -> None:
    window = F.session_window("time", "10 minutes")
    counted = rows.withWatermark("time", DELAY).groupBy(window, "device").count()
    last = F.col("session_window.end") - F.expr("interval 10 minutes")
    expected = by_spark(counted.select("device", "session_window.start", last, "count"), tmp_path)
    assert len({row[0] for row in expected}) == 5
    found = by_recipe("Sessions", "READINGS", "SESSIONS")
    assert sorted(tuple(row) for row in found.collect()) == expected


def test_duplicates_are_those_of_drop_duplicates_within_watermark(
    rows: DataFrame, by_recipe: Callable[[str, str, str], DataFrame], tmp_path: Path
) -> None:
    kept = rows.withWatermark("time", DELAY).dropDuplicatesWithinWatermark(["id"])
    expected = by_spark(kept.select("id"), tmp_path)
    assert len(set(expected)) < len(expected) < 20 * BATCHES
    found = by_recipe("Deduplicated", "MESSAGES", "MESSAGES")
    assert sorted(tuple(row) for row in found.select("id").collect()) == expected
