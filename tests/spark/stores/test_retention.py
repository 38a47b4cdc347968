"""What spark.sql.streaming.minBatchesToRetain promises: so many batches stay readable, older ones
are cleaned up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark.operator_cases import Frames, count_and_sum, joined, late_after_10_minutes
from support.spark.operator_inputs import events
from support.spark.processors import Everything
from support.spark.queries import (
    STATE,
    canonical,
    drain,
    select_provider,
    settings,
    source,
    write_batch,
)
from support.spark.state_files import merged_files
from support.spark.transform_with_state_cases import transformed

RETAINED = 7
FEWEST = 42
MOST = 120
ROWS = 40


def everything(frames: Frames) -> DataFrame:
    stream = late_after_10_minutes(frames["events"])
    return transformed(stream, Everything, pandas=False, mode="update", time="EventTime")


# Query, output mode, streams, and what the statestore reader is asked for.
QUERIES: Mapping[
    str, tuple[Callable[[Frames], DataFrame], str, tuple[str, ...], list[dict[str, str]]]
] = {
    "aggregation": (count_and_sum, "update", ("events",), [{}]),
    "join": (
        lambda frames: joined(frames, "fullouter"),
        "append",
        ("events", "others"),
        [{"joinSide": "left"}, {"joinSide": "right"}],
    ),
    "transformWithState": (
        everything,
        "update",
        ("events",),
        [{"stateVarName": name} for name in ("n", "values", "latest", "slots")],
    ),
}


class Stream:
    """A query that is given its input little by little."""

    def __init__(self, spark: SparkSession, name: str, provider: str, folder: Path) -> None:
        self.spark = spark
        self.provider = provider
        self.query, self.mode, self.streams, self.readers = QUERIES[name]
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.batches = 0
        self.parts: list[int] = []

    def go_on(self, batches: int) -> None:
        for n, stream in enumerate(self.streams):
            (self.folder / stream).mkdir(parents=True, exist_ok=True)
            rows = events(n, batches=MOST)
            for number in range(self.batches, self.batches + batches):
                write_batch(self.folder / stream, number, rows[number][:ROWS])
        self.batches += batches
        self.parts.append(batches)
        frames = {stream: source(self.spark, self.folder / stream) for stream in self.streams}
        select_provider(self.spark, self.provider)
        drain(self.query(frames), checkpoint=self.checkpoint, mode=self.mode, into={})
        select_provider(self.spark, "holdfast")

    def retained(self) -> list[int]:
        """Batches in the commit log."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))

    def state(self, batch: int) -> list[list[Any]]:
        """All that can be read of a batch."""
        return [
            canonical(
                self.spark.read.format("statestore")
                .options(batchId=batch, **options)
                .load(str(self.checkpoint))
                .collect()
            )
            for options in self.readers
        ]


@pytest.mark.full
@pytest.mark.parametrize("name", QUERIES)
def test_the_last_batches_are_readable_and_files_of_older_ones_are_gone(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    wanted = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
        # Every segment fills a file, so that files stand for segments.
        STATE + "holdfast.maxFileBytes": "1",
    }
    stream = Stream(spark, name, "holdfast", tmp_path / "holdfast")
    other = Stream(spark, name, "rocksdb", tmp_path / "rocksdb")
    with settings(spark, wanted):
        stream.go_on(10)
        early = {path.name for path in merged_files(stream.checkpoint)}
        assert len(early) > 10
        deadline = time.monotonic() + 120

        def left() -> set[str]:
            return early & {path.name for path in merged_files(stream.checkpoint)}

        # Clean-up goes on beside batches, after every second.
        while stream.batches < FEWEST or (left() and time.monotonic() < deadline):
            stream.go_on(8)
        assert left() == set(), "no retained batch needs what was written so long ago"
        # In equal parts: each ends with a batch without data where there is a watermark.
        for batches in stream.parts:
            other.go_on(batches)
    last = stream.retained()[-1]
    assert other.retained()[-1] == last
    assert stream.retained()[0] > last - 3 * RETAINED
    for batch in range(last - RETAINED + 1, last + 1):
        expected = other.state(batch)
        assert any(expected)
        assert stream.state(batch) == expected, batch
    with pytest.raises(Exception, match=r"batch(Id)? ?0|offset|commit"):
        stream.state(0)
