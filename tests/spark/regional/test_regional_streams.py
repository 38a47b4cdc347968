"""Regional pipelines with other sources, triggers and shapes, and several in one application."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast._core import CheckpointMetadata
from support.regional.pipelines import (
    COUNTED,
    ROWS,
    Row,
    RunningCount,
    expected,
    output_of,
    rows_of,
)
from support.spark.regional_input import TASKS, regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.versions]

REGIONS = [f"r{number:02}" for number in range(6)]
RATE_REGIONS = 8
WAIT_SECONDS = 300

#: In place of a row's id and of a count.
NONE = -1

#: What the first of two operators puts out.
KEYED = ROWS.append(pa.field("of_key", pa.int64()))


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def written(path: Path, count: int) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=60) for number in range(count)]
    for number, rows in enumerate(batches):
        write_rows(path / "in", number, rows)
    return batches


class Waiting(RunningCount):
    """Stands still in the middle of a batch until the test has done its part, once."""

    def __init__(self, folder: Path, *, region: str = "3") -> None:
        self.folder = folder
        self.waits = region

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == self.waits and self.rows.value > 0 and not (self.folder / "go").exists():
            (self.folder / "waiting").touch()
            wait_until((self.folder / "go").exists)
        return super().process(batch)


def rate_pipeline(
    spark: SparkSession, path: Path, operator: holdfast.Operator
) -> holdfast.RegionalQuery:
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200)
    frame = rate.option("numPartitions", TASKS).load()
    place = F.col("value") % RATE_REGIONS
    frame = frame.select(
        place.cast("string").alias("region"), F.col("value").alias("id"), place.alias("key")
    )
    return (
        holdfast.regional(frame, region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger={"processingTime": "100 milliseconds"})
    )


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_goes_on_with_the_next_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = rate_pipeline(spark, tmp_path, Waiting(tmp_path))
    wait_until((tmp_path / "waiting").exists)
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(query.stop)
        wait_until(lambda: not query.stream.isActive)
        # Interrupted, the batch still waits for its operator.
        (tmp_path / "go").touch()
        stopped.result(timeout=WAIT_SECONDS)
    assert not query.isActive
    assert query.latest.is_global
    assert query.exception() is None
    before = query.latest.batch_id
    query = rate_pipeline(spark, tmp_path, RunningCount())
    wait_until(lambda: query.latest.batch_id >= before + 3)
    query.stop()
    rows = output_of(tmp_path / "out")
    count = len(rows)
    assert sorted(row_id for _, row_id, _, _ in rows) == list(range(count)), "none is missing"
    for region, row_id, seen, of_key in rows:
        assert (region, seen) == (str(row_id % RATE_REGIONS), row_id // RATE_REGIONS + 1)
        assert of_key == seen


def test_files_that_were_noted_and_not_planned_before_a_crash_come_batch_by_batch(
    spark: SparkSession, tmp_path: Path
) -> None:  # R93
    def run(**options: Any) -> holdfast.RegionalQuery:
        query = (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(RunningCount(), schema=COUNTED, name="count")
            .write_parquet(tmp_path / "out")
            .start(tmp_path / "ckpt", trigger={"availableNow": True}, **options)
        )
        query.awaitTermination()
        return query

    written(tmp_path, 1)
    run()
    # What a process leaves that is killed between the two files: sources/0/1, no offsets/1.
    batches = written(tmp_path, 3)
    log = tmp_path / "ckpt" / "spark" / "sources" / "0"
    entry = (log / "0").read_text()
    (log / "1").write_text(
        entry.replace("batch-000", "batch-001").replace('"batchId":0', '"batchId":1')
    )
    run()
    assert output_of(tmp_path / "out") == expected(batches)
    # A folder in which Spark has put them into one batch before now: the way out.
    batches = written(tmp_path, 5)
    (log / "3").write_text(
        entry.replace("batch-000", "batch-003").replace('"batchId":0', '"batchId":3')
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.regions.api.writer.settle_stream", lambda *_: None)
        with pytest.raises(holdfast.RegionalQueryError, match="checkpoint_id= of the newest"):
            run()
    with pytest.raises(holdfast.RegionalQueryError, match="two tasks"):
        run()
    newest = CheckpointMetadata.list(tmp_path / "ckpt" / "metadata")[-1]
    run(checkpoint_id=newest)
    assert output_of(tmp_path / "out") == expected(batches)


class CountByKey(holdfast.Operator):
    """Adds to every row how many of its key there were."""

    region_safe = True

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.counts = ctx.state.array("counts", shape=(300,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        of_key = []
        for key in batch.column("key").to_pylist():
            self.counts[key] += 1
            of_key.append(int(self.counts[key]))
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(of_key)], schema=KEYED)


class CountAll(holdfast.Operator):
    """Numbers the rows of a region; fails once, after it took some in."""

    region_safe = True

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.rows = ctx.state.value("rows", 0)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        first = self.rows.value + 1
        self.rows.value += batch.num_rows
        ids = batch.column("id").to_pylist()
        if batch.column("region")[0].as_py() == "r01" and ids[0] >= 1000 and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("in trouble, once")
        seen = pa.array(range(first, self.rows.value + 1), pa.int64())
        columns = [batch.column("region"), batch.column("id"), seen, batch.column("of_key")]
        return pa.RecordBatch.from_arrays(columns, schema=COUNTED)


def test_a_chain_with_parallel_instances_keeps_every_row_and_each_keys_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 3)
    query = (
        holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
        .apply(CountByKey(), schema=KEYED, name="by-key", parallelism=3, route_by="key")
        .apply(CountAll(tmp_path / "mark"), schema=COUNTED, name="all")
        .write_parquet(tmp_path / "out")
        .start(tmp_path / "ckpt", trigger={"availableNow": True})
    )
    query.awaitTermination()
    assert [row.outcome for row in query.history()].count("regional") == 1
    rows, wanted = output_of(tmp_path / "out"), expected(batches)
    assert [(*row[:2], row[3]) for row in rows] == [(*row[:2], row[3]) for row in wanted]
    # Rows of different instances have no order among each other.
    assert sorted((row[0], row[2]) for row in rows) == sorted((row[0], row[2]) for row in wanted)


def test_two_pipelines_run_in_one_application_and_a_third_with_a_name_in_use_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 3)
    frame = regional_source(spark, tmp_path / "in")
    counting = holdfast.regional(frame, region_by="region").apply(RunningCount(), schema=COUNTED)

    def start(name: str, folder: str) -> holdfast.RegionalQuery:
        writer = counting.write_parquet(tmp_path / folder / "out")
        return writer.start(tmp_path / folder / "ckpt", name=name)

    one, two = start("one", "1"), start("two", "2")
    with pytest.raises(RuntimeError, match="'one' is open already"):
        start("one", "3")
    with pytest.raises(RuntimeError, match="'two' is open already"):
        start("three", "2")
    for query in (one, two):
        query.processAllAvailable()
        query.stop()
    for folder in ("1", "2"):
        assert output_of(tmp_path / folder / "out") == expected(batches)
    # The names are free again.
    start("one", "1").stop()
    assert output_of(tmp_path / "1" / "out") == expected(batches)


class Summing(Waiting):
    """At the end of data, puts out how many rows there were; leaves a mark when it is closed."""

    told = 0

    def on_end_of_data(self) -> pa.RecordBatch:
        row = {"region": [self.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        return pa.RecordBatch.from_pydict(row, schema=COUNTED)

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        self.told = checkpoint

    def close(self) -> None:
        (self.folder / f"closed-{self.told}-{self.region}").touch()


def bounded_pipeline(spark: SparkSession, path: Path, **options: Any) -> holdfast.RegionalQuery:
    trigger = options.pop("trigger", {"availableNow": True})
    return (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(Summing(path, region=REGIONS[3]), schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger=trigger, bounded=True, **options)
    )


def with_sums(batches: list[list[Row]]) -> list[tuple[str, int, int, int]]:
    sums = [(region, NONE, 60 * len(batches), NONE) for region in REGIONS]
    return sorted(expected(batches) + sums)


def test_a_bounded_query_flushes_when_it_has_read_everything_and_only_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    query = bounded_pipeline(spark, tmp_path)
    wait_until((tmp_path / "waiting").exists)
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(query.stream.stop)
        wait_until(lambda: not query.stream.isActive)
        (tmp_path / "go").touch()
        stopped.result(timeout=WAIT_SECONDS)
    query.awaitTermination()
    # Not by `query.stop`, but it was stopped.
    assert query.status()["finished"] == 0
    assert set(output_of(tmp_path / "out")) <= set(expected(batches))

    query = bounded_pipeline(spark, tmp_path)
    query.awaitTermination()
    assert (query.latest.kind, query.status()["finished"]) == ("final", len(REGIONS))
    assert output_of(tmp_path / "out") == with_sums(batches)
    last = query.latest.id
    closed = sorted(path.name for path in tmp_path.glob(f"closed-{last}-*"))
    assert closed == [f"closed-{last}-{region}" for region in REGIONS]

    query = bounded_pipeline(spark, tmp_path)
    query.awaitTermination()
    assert query.latest.id == last

    batches = written(tmp_path, 3)
    query = bounded_pipeline(spark, tmp_path)
    with pytest.raises(
        holdfast.RegionalQueryError, match=f"data ended in checkpoint {last}.*{last - 1}"
    ):
        query.awaitTermination()
    query = bounded_pipeline(spark, tmp_path, checkpoint_id=last - 1)
    query.awaitTermination()
    assert output_of(tmp_path / "out") == with_sums(batches)


@pytest.mark.parametrize("trigger", [None, {"processingTime": "1 second"}, {"once": True}])
def test_a_query_that_may_end_before_it_has_read_everything_cannot_be_bounded(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any] | None
) -> None:
    (tmp_path / "in").mkdir()
    found = "no trigger" if trigger is None else next(iter(trigger))
    with pytest.raises(ValueError, match=f"bounded=True .*{found}.*'availableNow': True"):
        bounded_pipeline(spark, tmp_path, trigger=trigger)
    assert not (tmp_path / "ckpt").exists()
