"""What Holdfast reports of itself: progress of a query, Spark's metrics system."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import get_field
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from support import TESTS
from support.prometheus import metric_names, relabelled, samples
from support.reference import monitoring
from support.spark.minors import IS_NEWEST
from support.spark.queries import drain, settings, source, write_batch
from support.spark.state_files import merged_files, stored_segments

pytestmark = pytest.mark.versions

PARTITIONS = 4
UI_METRICS_KEY = "spark.sql.streaming.ui.enabledCustomMetricList"


@pytest.fixture
def progress(spark: SparkSession, tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(4):
        write_batch(folder, number, [{"key": key} for key in range(200)])
    counts = source(spark, folder).groupBy("key").count()
    checkpoint = tmp_path / "checkpoint"
    if not IS_NEWEST:
        # Before 4.3 the SQL tab has no values of what is below foreachBatch.
        sink = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query = sink.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
    else:
        query = drain(counts, checkpoint=checkpoint, mode="update", into={})
    return [json.loads(p.json) for p in query.recentProgress]


def operators(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [p["stateOperators"][0] for p in progress]


def total(progress: list[dict[str, Any]], metric: str) -> int:
    return sum(operator["customMetrics"][metric] for operator in operators(progress))


def test_the_progress_of_a_query_adds_up(progress: list[dict[str, Any]]) -> None:
    changelogs = len(progress) * PARTITIONS
    assert total(progress, "holdfastChangelogs") == changelogs
    # Base images are segments as well; no task reports what was written after the last one.
    assert changelogs <= total(progress, "holdfastSegments") <= changelogs * 2
    assert total(progress, "holdfastFilesCreated") == 1
    assert total(progress, "holdfastStoredBytes") > 0
    assert total(progress, "holdfastWrittenBytes") > 0
    assert total(progress, "holdfastRebuilds") == 0
    assert total(progress, "holdfastPinnedBytes") == 0, "every batch is retained"
    assert all(operator["memoryUsedBytes"] > 200 * 16 for operator in operators(progress))


def test_a_join_reports_all_that_its_executor_wrote(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    write_batch(folder, 0, [{"key": key} for key in range(200)])
    left, right = source(spark, folder), source(spark, folder)
    query = drain(left.join(right, "key"), checkpoint=checkpoint, mode="append", into={})
    progress = [json.loads(p.json) for p in query.recentProgress]
    stored = [segment for file in merged_files(checkpoint) for segment in stored_segments(file)]
    assert total(progress, "holdfastSegments") == len(stored) > 0
    assert total(progress, "holdfastStoredBytes") == sum(stored)


def test_times_lie_within_those_that_spark_takes(progress: list[dict[str, Any]]) -> None:
    # Spark drops a fraction of a millisecond of every commit.
    commits_ms = sum(operator["commitTimeMs"] + PARTITIONS for operator in operators(progress))
    assert total(progress, "holdfastAppendMs") <= commits_ms
    batches_ms = sum(p["durationMs"]["triggerExecution"] for p in progress)
    # Two tasks at a time load their stores, and the driver seals for all.
    assert total(progress, "holdfastLoadMs") <= 2 * batches_ms
    assert total(progress, "holdfastSealMs") <= batches_ms


def executor_nanos(spark: SparkSession) -> dict[str, int]:
    """Times that the executor in this JVM has measured so far, by metric of the progress."""
    jvm: Any = spark._jvm
    stores = jvm.io.holdfast.spark.executor.HoldfastExecutor.running().stores()
    totals = get_field(stores, "totals")
    return {
        "holdfastAppendMs": get_field(totals, "appendNanos"),
        "holdfastLoadMs": get_field(totals, "loadNanos"),
    }


def test_times_are_those_that_the_executor_measured(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    # 8 MiB that do not compress, so that there is time to measure.
    rows = [
        {"key": key, "text": hashlib.shake_256(str(key).encode()).digest(1 << 13)}
        for key in range(1 << 10)
    ]
    latest: list[dict[str, Any]] = []
    with settings(spark, {"spark.sql.shuffle.partitions": "1"}):
        for number in range(2):
            write_batch(folder, number, rows)
            state = source(spark, folder).groupBy("key").agg(F.last("text").alias("text"))
            before = executor_nanos(spark)
            query = drain(state, checkpoint=checkpoint, mode="update", into={})
            progress = [json.loads(p.json) for p in query.recentProgress]
            for metric, nanos in executor_nanos(spark).items():
                measured = nanos - before[metric]
                assert measured > 0
                # The one store drops a fraction of a millisecond.
                assert abs(total(progress, metric) - measured / 1e6) < 1
            latest.append(operators(progress)[-1]["customMetrics"])
    assert [metrics["holdfastWrittenBytes"] > 8 << 20 for metrics in latest] == [True, False]
    assert latest[1]["holdfastLoads"] == 1, "a query that is started again reads its files"


SIZE, TIME = r".*\n[0-9.]+ [KM]?i?B \(.*", r".*\n[0-9.]+ m?s \(.*"
# Metrics of the SQL tab, by the text that it shows, and what they say of the first batch.
IN_THE_SQL_TAB = {
    "Holdfast: versions read from physical files": f"{PARTITIONS}",
    "Holdfast: versions served by undoing a commit": "0",
    "Holdfast: bytes that commits wrote, before compression": SIZE,
    "Holdfast: commits that wrote nothing": "0",
    "Holdfast: versions rebuilt because a run was damaged": "0",
    "Holdfast: commits that wrote a changelog": f"{PARTITIONS}",
    "Holdfast: changelogs that are in no run yet": f"{PARTITIONS}",
    "Holdfast: base images and delta runs that stores are made of": "0",
    "Holdfast: time to load versions from physical files": TIME,
    "Holdfast: time to write changelogs": TIME,
    "Holdfast: physical files created": "1",
    "Holdfast: physical files closed with a footer": "0",
    "Holdfast: segments written, runs included": f"{PARTITIONS}",
    "Holdfast: bytes of these segments in physical files": SIZE,
    "Holdfast: time to make physical files durable for the batch before": TIME,
    "Holdfast: bytes in physical files that no retained batch needs any more": SIZE,
}


def test_the_sql_tab_of_sparks_ui_shows_the_metrics(
    spark: SparkSession, progress: list[dict[str, Any]]
) -> None:
    jvm: Any = spark._jvm
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava
    # Those of the fixture's query are the last, two for every batch: others of this session, of
    # which there are hundreds, are not looked at.
    latest = 2 * len(progress)
    shown: list[dict[str, str]] = []
    for execution in as_java(store.executionsList(store.executionsCount() - latest, latest)):
        values = as_java(store.executionMetrics(execution.executionId()))
        metrics = {
            metric.name(): values.get(metric.accumulatorId())
            for metric in as_java(execution.metrics())
            if metric.name() in IN_THE_SQL_TAB
        }
        # An execution without values is the one around that of foreachBatch.
        if any(value is not None for value in metrics.values()):
            shown.append(metrics)
    assert len(shown) == len(progress)
    first = shown[0]
    assert first.keys() == IN_THE_SQL_TAB.keys()
    for name, wanted in IN_THE_SQL_TAB.items():
        assert re.fullmatch(wanted, first[name]), (name, first[name])
    assert "\n0.0 B" not in first["Holdfast: bytes that commits wrote, before compression"]
    changelogs = [int(metrics["Holdfast: commits that wrote a changelog"]) for metrics in shown]
    assert changelogs == [
        operator["customMetrics"]["holdfastChangelogs"] for operator in operators(progress)
    ]


# Ends once its files hold a number of segments: the last of these are base images, which
# maintenance writes after all tasks.
JOB = """
import sys
import time
import urllib.request
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.spark.queries import builder, source
from support.spark.state_files import merged_files, stored_segments
import holdfast


class Counting(holdfast.Operator):
    region_safe = True

    def open(self, ctx):
        self.seen = ctx.metrics.counter("seen")
        self.largest = ctx.metrics.gauge("largest")

    def process(self, batch):
        self.seen.inc(batch.num_rows)
        self.largest.set(max(batch.column("key").to_pylist()))
        return batch


folder = Path({folder!r})
spark = holdfast.configure(
    builder("local[2]", folder / "warehouse")
    .config("spark.metrics.conf.*.sink.csv.class", "org.apache.spark.metrics.sink.CsvSink")
    .config("spark.metrics.conf.*.sink.csv.directory", str(folder / "csv"))
    .config(map={settings!r})
    .config("spark.metrics.namespace", "job")
    .config("spark.ui.enabled", "true")
    .config("spark.ui.port", "0")
).getOrCreate()
counts = source(spark, folder / "input").groupBy("key").count()
query = (
    counts.writeStream.outputMode("update")
    .queryName("counts")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .format("noop")
    .start()
)
(
    holdfast.regional(source(spark, folder / "input"), region_by="site")
    .apply(Counting(), schema="key long, site long", name="count rows")
    .write_parquet(str(folder / "out"))
    .start(str(folder / "regional"), name="metered", trigger={{"availableNow": True}})
    .awaitTermination()
)
deadline = time.monotonic() + 120
while sum(len(stored_segments(file)) for file in merged_files(folder / "checkpoint")) < {segments}:
    assert time.monotonic() < deadline and not query.awaitTermination(0.1)
page = urllib.request.urlopen(spark.sparkContext.uiWebUrl + {path!r}, timeout=60)
(folder / "scraped").write_bytes(page.read())
query.stop()
spark.stop()
"""
# The last batch makes a base image due in every partition, see minDeltasForSnapshot.
JOB_BATCHES = 4
JOB_SEGMENTS = (JOB_BATCHES + 1) * PARTITIONS
JOB_KEYS = 20


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a job left that publishes metrics, which Prometheus scraped while it ran."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("input", "csv"):
        (folder / name).mkdir()
    for number in range(JOB_BATCHES):
        write_batch(
            folder / "input", number, [{"key": key, "site": key % 2} for key in range(JOB_KEYS)]
        )
    job = JOB.format(
        tests=str(TESTS),
        folder=str(folder),
        segments=JOB_SEGMENTS,
        settings=monitoring.settings(),
        path=monitoring.scrape_config()["metrics_path"],
    )
    # In a process of its own: Spark's sinks write when the application ends.
    done = subprocess.run(
        [sys.executable, "-c", job], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_executor_and_driver_publish_totals_to_sparks_metrics_system(published: Path) -> None:
    last = {}
    for path in (published / "csv").glob("*holdfast*.csv"):
        name = path.stem.rsplit(".", 1)[1]
        last[name] = float(path.read_text().splitlines()[-1].split(",")[1])
    (file,) = merged_files(published / "checkpoint")
    stored = stored_segments(file)
    assert len(stored) == JOB_SEGMENTS
    assert last["segments"] == JOB_SEGMENTS, "what maintenance wrote after the last task included"
    assert last["storedBytes"] == sum(stored)
    assert last["filesCreated"] == 1
    names = {"cacheBytes", "cacheHits", "cacheMisses"}
    names |= {"memoryBytes", "filesSealed", "appendMs", "sealMs", "loadMs"}
    assert names | {"closedFileBytes", "pinnedBytes"} <= last.keys()


def test_prometheus_finds_what_the_reference_the_dashboard_and_the_alerts_name(
    published: Path,
) -> None:
    rules = monitoring.scrape_config()["metric_relabel_configs"]
    found: dict[str, list[dict[str, str]]] = {}
    values: dict[str, float] = {}
    for labels, value in samples((published / "scraped").read_text()):
        if series := relabelled(labels, rules):
            found.setdefault(series["__name__"], []).append(series)
            values[series["__name__"]] = value
    ours = {name for name in found if name.startswith("holdfast_")}
    assert ours == monitoring.names_of_the_reference()
    assert not [name for name in found if "HoldfastPlugin" in name], "all have got short names"
    for name, series in found.items():
        if name in ours | {"spark_streaming_latency"}:
            assert len(series) == 1, name
            assert series[0]["application"] == "job", name

    used = [*monitoring.of_the_dashboard(), *monitoring.of_the_alerts()]
    assert len(used) > 25
    for expression, shown in used:
        named = metric_names(expression)
        assert named, expression
        assert named <= found.keys(), expression
        for name in named:
            assert shown <= found[name][0].keys(), (expression, shown)

    rows = JOB_BATCHES * JOB_KEYS
    (counter,) = found["holdfast_operator_counter"]
    assert (counter["pipeline"], counter["operator"]) == ("metered", "count_rows")
    assert counter["counter"] == "seen"
    assert values["holdfast_operator_counter"] == values["holdfast_operator_rowsIn"] == rows
    assert found["holdfast_operator_gauge_max"][0]["gauge"] == "largest"
    assert values["holdfast_operator_gauge_max"] == JOB_KEYS - 1
    assert values["holdfast_regional_checkpointsGlobal"] == JOB_BATCHES + 1
    assert values["holdfast_segments"] == JOB_SEGMENTS
    assert found["spark_streaming_latency"][0]["query"] == "counts"


# In a process of its own: the sessions of the tests have no web UI.
WATCHED = """
import sys
import urllib.request

from pyspark.sql import SparkSession

import holdfast

settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.port": "0",
    "spark.sql.shuffle.partitions": "2",
}
builder = SparkSession.builder.master("local[2]").config(map=settings)
spark = holdfast.configure(builder).getOrCreate()
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    .groupBy("value").count()
    .writeStream.format("noop").outputMode("update")
    .option("checkpointLocation", sys.argv[1]).start()
)
while len(query.recentProgress) < 2:
    query.awaitTermination(0.5)
url = f"{spark.sparkContext.uiWebUrl}/StreamingQuery/statistics/?id={query.runId}"
print(urllib.request.urlopen(url, timeout=60).read().decode())
query.stop()
"""


@pytest.mark.full
def test_the_structured_streaming_page_draws_what_holdfast_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    drawn = set(re.findall(r"Custom Metric (\w+)", done.stdout))
    assert drawn == set(holdfast.spark_conf()[UI_METRICS_KEY].split(","))
