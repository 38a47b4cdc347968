"""``transformWithState`` plans: Holdfast has nodes of its own, other providers keep Spark's."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import holdfast
from support.spark.java_side import instance
from support.spark.operator_cases import Frames
from support.spark.operator_inputs import events
from support.spark.processors import Totals
from support.spark.queries import Batches, drain, run, source, write_batch
from support.spark.transform_with_state_cases import transformed


def totals(frames: Frames) -> DataFrame:
    return transformed(frames["events"], Totals, pandas=False, mode="update")


def counting_job(frames: Frames) -> DataFrame:
    """A query on ``transformWithState`` of the JVM, which Python has no other way to start."""
    keyed = frames["events"].where("key is not null")
    spark = keyed.sparkSession
    return DataFrame(instance(spark, "CountingJob").apply(keyed._jdf), spark)


def plan(spark: SparkSession, query: Callable[[Frames], DataFrame], folder: Path) -> str:
    """Runs one batch; returns what ``explain`` shows."""
    (folder / "input").mkdir(parents=True)
    write_batch(folder / "input", 0, events()[0])
    frame = query({"events": source(spark, folder / "input")})
    rows: Batches = {}
    finished = drain(frame, checkpoint=folder / "checkpoint", mode="update", into=rows)
    assert rows[0]
    executed = finished._jsq.streamingQuery().lastExecution().executedPlan()
    # Spark compares plans in this form, and makes it by calling constructors through reflection.
    canonical: str = executed.canonicalized().toString()
    shown: str = finished._jsq.explainInternal(False)
    assert ("HoldfastTransform" in canonical) == ("HoldfastTransform" in shown)
    return shown


def test_explain_shows_which_node_serves_the_query(
    spark: SparkSession, provider: Callable[[str], None], tmp_path: Path
) -> None:
    assert "HoldfastTransformWithStateInPySpark " in plan(spark, totals, tmp_path / "holdfast")
    provider("rocksdb")
    assert "HoldfastTransformWithState" not in plan(spark, totals, tmp_path / "rocksdb")


def test_the_jvm_api_gives_the_rows_that_rocksdb_gives(
    spark: SparkSession,
    provider: Callable[[str], None],
    tmp_path: Path,
) -> None:
    assert "HoldfastTransformWithState " in plan(spark, counting_job, tmp_path / "plan")
    rows = {}
    for which in ("rocksdb", "holdfast"):
        provider(which)
        rows[which] = run(
            spark,
            inputs={"events": events()},
            query=counting_job,
            mode="update",
            folder=tmp_path / which,
        )
    assert sum(map(len, rows["rocksdb"].values())) > 0
    assert rows["holdfast"] == rows["rocksdb"]


def test_another_provider_that_spark_refuses_stays_refused(
    spark: SparkSession, provider: Callable[[str], None], tmp_path: Path
) -> None:
    provider("hdfs")
    with pytest.raises(StreamingQueryException, match="STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"):
        plan(spark, totals, tmp_path)


def test_the_jar_declares_the_extension_and_brings_no_class_of_spark() -> None:
    with zipfile.ZipFile(holdfast.plugin_jars()[0]) as jar:
        service = jar.read("META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider")
        classes = [name for name in jar.namelist() if name.endswith(".class")]
    assert service.decode().split() == ["io.holdfast.spark.HoldfastSessionExtensions"]
    assert all(name.startswith("io/holdfast/spark/") for name in classes)
