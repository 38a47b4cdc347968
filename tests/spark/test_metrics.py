"""What Holdfast tells about itself: progress of a query, Spark's metrics system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support import (
    STATE,
    drain,
    merged_files,
    run,
    settings,
    source,
    stored_segments,
    write_batch,
)

PARTITIONS = 4


@pytest.fixture
def progress(spark: SparkSession, tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(4):
        write_batch(folder, number, [{"key": key} for key in range(200)])
    counts = source(spark, folder).groupBy("key").count()
    query = drain(counts, checkpoint=tmp_path / "checkpoint", mode="update", into={})
    return [p["stateOperators"][0] for p in query.recentProgress]


def total(progress: list[dict[str, Any]], metric: str) -> int:
    return sum(operator["customMetrics"][metric] for operator in progress)


def test_the_progress_of_a_query_adds_up(progress: list[dict[str, Any]]) -> None:
    changelogs = len(progress) * PARTITIONS
    assert total(progress, "holdfastChangelogs") == changelogs
    # Base images are segments as well; what was written after the last task is told by nobody.
    assert changelogs <= total(progress, "holdfastSegments") <= changelogs * 2
    assert total(progress, "holdfastFilesCreated") == 1
    assert total(progress, "holdfastStoredBytes") > 0
    assert total(progress, "holdfastWrittenBytes") > 0
    assert total(progress, "holdfastRebuilds") == 0
    for name in ("holdfastAppendMs", "holdfastLoadMs", "holdfastSealMs", "holdfastPinnedBytes"):
        assert total(progress, name) >= 0
    assert all(operator["memoryUsedBytes"] > 200 * 16 for operator in progress)


# Ends once its files hold a number of segments: the last of these are base images, which
# maintenance writes after all tasks.
JOB = """
import sys
import time
from pathlib import Path
sys.path.insert(0, {support!r})
from support import builder, merged_files, source, stored_segments
import holdfast
folder = Path({folder!r})
spark = holdfast.configure(
    builder("local[2]", folder / "warehouse")
    .config("spark.metrics.conf.*.sink.csv.class", "org.apache.spark.metrics.sink.CsvSink")
    .config("spark.metrics.conf.*.sink.csv.directory", str(folder / "csv"))
    .config("spark.metrics.namespace", "job")
).getOrCreate()
counts = source(spark, folder / "input").groupBy("key").count()
query = (
    counts.writeStream.outputMode("update")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .format("noop")
    .start()
)
deadline = time.monotonic() + 120
while sum(len(stored_segments(file)) for file in merged_files(folder / "checkpoint")) < {segments}:
    assert time.monotonic() < deadline and not query.awaitTermination(0.1)
query.stop()
spark.stop()
"""


def test_executor_and_driver_publish_totals_to_sparks_metrics_system(tmp_path: Path) -> None:
    for name in ("input", "csv"):
        (tmp_path / name).mkdir()
    # The last batch makes a base image due in every partition, see minDeltasForSnapshot.
    batches = 4
    segments = (batches + 1) * PARTITIONS
    for number in range(batches):
        write_batch(tmp_path / "input", number, [{"key": key} for key in range(200)])
    support = str(Path(__file__).parent)
    job = JOB.format(support=support, folder=str(tmp_path), segments=segments)
    # In a process of its own: Spark's sinks write when the application ends.
    done = subprocess.run(
        [sys.executable, "-c", job], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last = {}
    for path in (tmp_path / "csv").glob("*holdfast*.csv"):
        name = path.stem.rsplit(".", 1)[1]
        last[name] = int(path.read_text().splitlines()[-1].split(",")[1])
    (file,) = merged_files(tmp_path / "checkpoint")
    stored = stored_segments(file)
    assert len(stored) == segments
    assert last["segments"] == segments, "what maintenance wrote after the last task included"
    assert last["storedBytes"] == sum(stored)
    assert last["filesCreated"] == 1
    published = {"memoryBytes", "filesSealed", "appendMs", "sealMs", "loadMs"}
    assert published | {"closedFileBytes", "pinnedBytes"} <= last.keys()


def test_row_checksums_are_kept_and_verified(spark: SparkSession, tmp_path: Path) -> None:
    rows = [[{"key": key, "value": key * batch} for key in range(50)] for batch in range(4)]
    runs, written = {}, {}
    for enabled in ("false", "true"):
        checks = {
            STATE + "rowChecksum.enabled": enabled,
            STATE + "rowChecksum.readVerificationRatio": "1",
        }
        folder = tmp_path / enabled
        with settings(spark, checks):
            runs[enabled] = run(
                spark,
                inputs={"events": rows},
                query=lambda frames: frames["events"].groupBy("key").sum("value"),
                mode="update",
                folder=folder,
            )
        state = spark.read.format("statestore").option("path", str(folder / "checkpoint"))
        assert state.load().count() == 50
        files = (folder / "checkpoint" / "state" / "holdfast").glob("*.hf")
        written[enabled] = sum(path.stat().st_size for path in files)
    assert runs["true"] == runs["false"]
    assert written["true"] > written["false"], "a checksum per value was written"
