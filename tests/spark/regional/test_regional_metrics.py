"""What operators count reaches the query and Spark's metrics system."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import COUNTED, RunningCount, rows_of
from support.spark.java_fields import field_of
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.spark

REGIONS = [f"r{number:02}" for number in range(4)]
EACH = 30
DRIVER = "io.holdfast.spark.driver"
METRICS_SYSTEM = "org.apache.spark.metrics.MetricsSystem"
PREFIX = "plugin.io.holdfast.spark.HoldfastPlugin.regional."


class Counting(RunningCount):
    """Counts the rows that it is given; fails once when it meets an id."""

    def __init__(self, mark: Path, fails_at: int) -> None:
        self.mark = str(mark)
        self.fails_at = fails_at

    def open(self, ctx: holdfast.OperatorContext) -> None:
        super().open(ctx)
        self.seen = ctx.metrics.counter("seen")
        self.largest = ctx.metrics.gauge("largest_id")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ids = batch.column("id").to_pylist()
        self.seen.inc(len(ids))
        self.largest.set(max(ids))
        if self.fails_at in ids and not Path(self.mark).exists():
            Path(self.mark).touch()
            raise RuntimeError("in trouble, once")
        yield from super().process(batch)


def run(spark: SparkSession, path: Path, name: str, fails_at: int = -1) -> holdfast.RegionalQuery:
    query = (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(Counting(path / "mark", fails_at), schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", name=name, trigger={"availableNow": True})
    )
    query.awaitTermination()
    return query


def reported(spark: SparkSession, prefix: str) -> dict[str, Any]:
    """What the /metrics/json of the application has under a prefix, without it."""
    # Of the servlet, which needs no web UI for this: it has the registry that all sinks report.
    env = field_of(spark, "org.apache.spark.SparkContext", "_env", spark._jsc.sc())
    system = field_of(spark, "org.apache.spark.SparkEnv", "metricsSystem", env)
    servlet = field_of(spark, METRICS_SYSTEM, "metricsServlet", system)
    document = json.loads(servlet.get().getMetricsSnapshot(None))
    instance = f"{spark.sparkContext.applicationId}.driver."
    return {
        name.removeprefix(instance + prefix): gauge["value"]
        for name, gauge in document["gauges"].items()
        if name.startswith(instance + prefix)
    }


def test_the_query_and_sparks_metrics_system_show_what_operators_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        write_rows(tmp_path / "in", number, rows_of(number, REGIONS, each=EACH))
    query = run(spark, tmp_path, "metered one", fails_at=1002)
    assert [row.outcome for row in query.history()][1:] == ["global", "regional", "global"]
    page = query._repr_html_()
    assert "<b>metered one</b>: it has ended.<br/>Checkpoint 4, batch 2: 4 regions, 0 rows" in page
    assert page.count("<tr>") == 1 + 4
    found = query.metrics()
    count = found.operators["count"]
    # A region counted some rows of the batch in which it failed, and all of them again.
    rows = 3 * EACH * len(REGIONS)
    assert rows < count.counters["seen"] <= rows + EACH
    assert count.rows_in == count.counters["seen"]
    assert count.rows_out == rows
    seen = {region: one.operators["count"].rows_in for region, one in found.regions.items()}
    assert seen.pop("r02") == count.rows_in - 3 * 3 * EACH
    assert set(seen.values()) == {3 * EACH}
    assert found.regions["r02"].failures == found.failures == 1
    assert found.attempts == {"global": 3, "regional": 1, "aborted": 0}
    assert found.in_flight_rows == 0
    assert found.state_bytes["count"] > 0
    assert count.gauges["largest_id"].max == 2000 + 10 * (EACH - 1) + len(REGIONS) - 1

    shown = reported(spark, PREFIX + "metered_one.")
    assert shown["operator.count.counter.seen"] == count.counters["seen"]
    assert shown["operator.count.rowsIn"] == count.rows_in
    assert shown["operator.count.rowsOut"] == rows
    assert shown["operator.count.busyMs"] == int(count.busy_ms)
    assert shown["operator.count.gauge.largest_id.max"] == count.gauges["largest_id"].max
    assert (shown["checkpointsGlobal"], shown["checkpointsRegional"]) == (3, 1)
    assert (shown["attemptsAborted"], shown["failures"], shown["inFlightRows"]) == (0, 1, 0)
    assert shown["attemptMs"] > 0
    assert not [name for name in shown if "r02" in name], "no name of a region"

    # Started again, the pipeline begins at 0, and figures that it does not have any more go.
    write_rows(tmp_path / "in", 3, rows_of(3, REGIONS, each=EACH))
    again = run(spark, tmp_path, "metered one").metrics()
    assert again.operators["count"].counters == {"seen": EACH * len(REGIONS)}
    shown = reported(spark, PREFIX + "metered_one.")
    assert shown["operator.count.counter.seen"] == EACH * len(REGIONS)
    assert (shown["checkpointsGlobal"], shown["checkpointsRegional"]) == (1, 0)


def pipelines(spark: SparkSession) -> Any:
    """The driver's side of regional pipelines."""
    jvm: Any = spark._jvm
    return jvm.io.holdfast.spark.driver.HoldfastDriver.running().regionalPipelines()


def test_the_figures_of_pipelines_that_ended_long_ago_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    bridge = pipelines(spark)
    for number in range(105):
        bridge.open(f"p{number}", str(tmp_path / str(number)))
        bridge.showMetrics(f"p{number}", f"regional.p{number}.failures {number}")
        bridge.showMetrics(f"p{number}", f"regional.p{number}.mean 0.5")
        bridge.close(f"p{number}")
    shown = reported(spark, PREFIX)
    assert [f"p{number}.failures" in shown for number in range(105)] == [False] * 5 + [True] * 100
    assert (shown["p104.failures"], shown["p104.mean"]) == (104, 0.5)


class Watching:
    """Asks each gauge for its number at the moment it is registered, as a sink may."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def onGaugeAdded(self, name: str, gauge: Any) -> None:  # noqa: N802 - Java's name
        self.numbers[name] = gauge.getValue()

    def equals(self, other: object) -> bool:
        return other is self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on"):
            return lambda *_: None
        raise AttributeError(name)

    class Java:
        implements = ("com.codahale.metrics.MetricRegistryListener",)


def test_a_figure_has_a_number_as_soon_as_sinks_see_it(spark: SparkSession, tmp_path: Path) -> None:
    # A null is no number for Prometheus, which gives up the whole scrape then.
    driver = field_of(spark, f"{DRIVER}.HoldfastDriver", "RUNNING", None).get()
    metrics = field_of(spark, f"{DRIVER}.HoldfastDriver", "regionalMetrics", driver)
    registry = field_of(spark, f"{DRIVER}.RegionalMetrics", "registry", metrics)
    ensure_callback_server_started(spark.sparkContext._gateway)
    watching = Watching()
    registry.addListener(watching)
    try:
        bridge = pipelines(spark)
        bridge.open("seen", str(tmp_path))
        bridge.showMetrics("seen", "regional.seen.failures 7\nregional.seen.mean 0.5")
        bridge.close("seen")
    finally:
        registry.removeListener(watching)
    seen = {name: value for name, value in watching.numbers.items() if ".seen." in name}
    assert seen == {"regional.seen.failures": 7, "regional.seen.mean": 0.5}
