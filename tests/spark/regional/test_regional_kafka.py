"""A regional pipeline on Spark that writes to a topic: the driver's process alone knows brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional import kafka_pipeline
from support.regional.kafka_pipeline import (
    BATCHES,
    PARTITIONS,
    RECORDS,
    AsRecords,
    in_order,
    new_topic,
    read_committed,
)
from support.regional.pipelines import expected
from support.spark.java_side import skipped_without_jars
from support.spark.kafka_broker import KafkaBroker
from support.spark.regional_input import regional_source, write_rows

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture(autouse=True)
def records_travel() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(kafka_pipeline)
    yield
    cloudpickle.unregister_pickle_by_value(kafka_pipeline)


def test_rows_of_a_stream_reach_a_topic_once_over_restarts(
    spark: SparkSession, tmp_path: Path, helpers: Path
) -> None:
    with skipped_without_jars():
        broker = KafkaBroker(tmp_path, helpers, partitions=PARTITIONS)
    new_topic(broker.servers, "out")
    for number, rows in enumerate(BATCHES):
        write_rows(tmp_path / "in", number, rows)
        if number % 2 == 0:
            query = (
                holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
                .apply(AsRecords(), schema=RECORDS, name="count")
                .write_kafka(
                    "out",
                    bootstrap_servers=broker.servers,
                    transactional_id="of-spark",
                    key="key",
                )
                .start(tmp_path / "ckpt", trigger={"availableNow": True})
            )
            query.awaitTermination()
    found = read_committed(broker.servers, "out")
    assert sorted(found) == expected(BATCHES)
    assert in_order(found)
    broker.close()
