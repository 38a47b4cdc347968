"""How many requests the checkpoints and starts of a pipeline cost the name node of HDFS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast
from support.regional.pipelines import COUNTED, RunningCount, rows_of
from support.spark.mini_hdfs import MiniHdfs
from support.spark.regional_input import regional_source, write_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

REGIONS = [f"r{number}" for number in range(6)]
#: Batches before requests are counted, and while they are.
FIRST, COUNTED_BATCHES = 2, 4
#: A checkpoint's metadata is a file that is created, given a block, completed and renamed; and the
#: metadata of an older one is deleted.
OF_CHECKPOINT = 5
#: An executor asks whether the file that it appends to is there still.
OF_EXECUTOR = 1
#: Behind it: the history now and then, and the signs of life of the leases.
BESIDE = 0.75
#: A file of the output is created, given a block, completed and renamed.
OF_OUTPUT_FILE = 4
#: The output folder's lease is asked for twice, and staged files are listed, swept and their folder
#: removed.
OF_OUTPUT_FOLDER = 5


def large(operator: type[RunningCount]) -> RunningCount:
    """An operator whose state changes in every batch and does not fit into the metadata."""

    class Large(operator):  # type: ignore[misc, valid-type]
        def open(self, ctx: holdfast.OperatorContext) -> None:
            super().open(ctx)
            self.ballast = ctx.state.array("ballast", shape=(300,), dtype="int64")

        def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            self.ballast += batch.num_rows
            yield from super().process(batch)

    return Large()


def requests_per_batch(
    hdfs: MiniHdfs, folder: Path, source: DataFrame, start: Callable[[DataFrame], Any]
) -> tuple[float, Counter[str]]:
    """Run a query; returns the requests of a batch and, by kind, those of all that are counted.

    A client asks again whether a file is complete until its data node has told the name node of the
    last block; these repetitions are left out.
    """
    write_rows(folder, 0, rows_of(0, REGIONS))
    query = start(source)
    for batch in range(1, FIRST):
        query.processAllAvailable()
        write_rows(folder, batch, rows_of(batch, REGIONS))
    query.processAllAvailable()
    before = Counter(hdfs.requests()[0])
    for batch in range(FIRST, FIRST + COUNTED_BATCHES):
        write_rows(folder, batch, rows_of(batch, REGIONS))
        query.processAllAvailable()
    counts = Counter(hdfs.requests()[0])
    counts.subtract(before)
    query.stop()
    assert counts["Complete"] >= counts["Create"]
    counts["Complete"] = counts["Create"]
    return counts.total() / COUNTED_BATCHES, +counts


def test_a_healthy_checkpoint_costs_five_requests_one_of_each_executor_and_its_output_files(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    def by_itself(source: DataFrame) -> Any:
        def write(rows: DataFrame, batch_id: int) -> None:
            rows.mapInArrow(lambda batches: batches, "region string, id long, key long").collect()

        writer = source.writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", f"{root}/plain").start()

    def into(output: str, checkpoint: str) -> Callable[[DataFrame], Any]:
        def start(source: DataFrame) -> Any:
            return (
                holdfast.regional(source, region_by="region")
                .apply(large(RunningCount), schema=COUNTED, name="count")
                .write_parquet(output)
                .start(f"{root}/{checkpoint}", name=checkpoint)
            )

        return start

    root = f"{hdfs.uri}/{tmp_path.name}"
    counted: dict[str, tuple[float, Counter[str]]] = {}
    starts = {
        "plain": by_itself,
        "local": into(str(tmp_path / "out"), "local"),
        "remote": into(f"{root}/out", "remote"),
    }
    for name, start in starts.items():
        folder = tmp_path / name
        folder.mkdir()
        source = regional_source(spark, folder)
        counted[name] = requests_per_batch(hdfs, folder, source, start)
    (plain, _), (local, _), (remote, _) = counted.values()
    of_checkpoint = OF_CHECKPOINT + OF_EXECUTOR
    assert local - plain <= of_checkpoint + BESIDE, counted
    files = OF_OUTPUT_FILE * len(REGIONS) + OF_OUTPUT_FOLDER
    assert remote - plain <= of_checkpoint + files + 2 * BESIDE, counted


@pytest.mark.full
def test_a_restart_opens_files_and_not_regions(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    """The driver verifies the states of all regions, and workers that began anew read them."""
    root = f"{hdfs.uri}/{tmp_path.name}"
    requests = {}
    for regions in (4, 84):
        names = [f"r{number:02}" for number in range(regions)]
        folder = tmp_path / f"of-{regions}"
        folder.mkdir()
        pipeline = (
            holdfast.regional(regional_source(spark, folder), region_by="region")
            .apply(large(RunningCount), schema=COUNTED, name="count")
            .write_parquet(tmp_path / f"out-{regions}")
        )
        for batch in range(2):
            write_rows(folder, batch, rows_of(batch, names))
            before = Counter(hdfs.requests()[0])
            query = pipeline.start(f"{root}/{regions}", name=folder.name)
            query.processAllAvailable()
            query.stop()
            counts = Counter(hdfs.requests()[0])
            counts.subtract(before)
        entries = query.latest.regions.values()
        stored = [ref for entry in entries for _, _, ref in entry.refs()]
        assert len(stored) == regions
        requests[regions] = +counts
    assert requests[84]["GetBlockLocations"] <= requests[4]["GetBlockLocations"] + 12, requests
