"""Batches of ordinary queries as transactions of Kafka."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from holdfast._checks import require_int
from holdfast._sessions import QUERY_ID
from holdfast.files.paths import any_folder, listed
from holdfast.regions.base.schemas import arrow_schema
from holdfast.regions.sinks.kafka import KafkaTopic
from holdfast.regions.sinks.kafka_client import KafkaTransactions
from holdfast.regions.sinks.kafka_options import Unsettled, checked_settings
from holdfast.regions.sinks.kafka_records import RecordColumns
from holdfast.regions.sinks.owner import Candidate, OutputOwner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows of a staged file: the driver holds a file that only the JVM reaches in memory.
_FILE_ROWS: Final = 100_000

#: By brokers, topic and transactional id: the last run and batch, its connections, and its topic.
_OPEN: Final[dict[tuple[str, str, str], tuple[str, int, ExitStack, KafkaTopic | None]]] = {}


def write_kafka_once(
    batch: DataFrame,
    batch_id: int,
    topic: str,
    *,
    bootstrap_servers: str,
    transactional_id: str,
    options: Mapping[str, Any] | None = None,
    unsettled: Unsettled = "fail",
) -> None:
    """Write a batch of ``foreachBatch`` to a topic of Kafka, each row exactly once.

    A batch is one transaction, with a marker that names it. A batch that runs again finds it and
    writes nothing, so consumers with ``isolation.level=read_committed`` see each row once. Needs
    confluent-kafka on the driver (the extra ``kafka``), and any state store.

    Parameters
    ----------
    batch : pyspark.sql.DataFrame
        Its columns are ``value``, and optionally ``key``, ``headers`` and ``partition``.
    batch_id : int
        The number that ``foreachBatch`` gives.
    topic, bootstrap_servers, options
        See `RegionalWriter.write_kafka`. Errors are the same. A run keeps its first options.
    transactional_id : str
        The same after every restart. Another checkpoint, or call in a batch, needs another one.
    unsettled : {"fail", "again", "skip"}, default "fail"
        How to treat a batch without a marker that is not the first, or below the marker's.

    Notes
    -----
    Executors compute the batch, also if it runs again, and stage its rows as Parquet in the folder
    ``kafka`` of the checkpoint. All rows go through the driver, which has the only producer: 8,192
    at a time, and at most 100,000 from HDFS and object stores. Spark Connect is not supported.
    """
    settings = checked_settings(topic, transactional_id, options, bootstrap_servers, unsettled)
    require_int("batch_id", batch_id, at_least=0)
    optional = {name: name for name in ("key", "headers", "partition") if name in batch.columns}
    columns = RecordColumns("value", **optional)
    columns.require_fit(arrow_schema(batch.schema))
    owner, run = _query_of(batch.sparkSession)
    place = (bootstrap_servers, topic, transactional_id)
    last_run, last_batch, opened, writer = _OPEN.pop(place, ("", -1, ExitStack(), None))
    with opened, ExitStack() as staging:
        if (last_run, last_batch) == (run, batch_id):
            raise ValueError(
                f"write_kafka_once was called twice in batch {batch_id} with transactional_id="
                f"{transactional_id!r} and topic {topic!r}: each call needs an id of its own"
            )
        if writer is None or last_run != run:
            opened.close()
            transactions = KafkaTransactions(topic, transactional_id, settings)
            opened.callback(transactions.close)
            # Without a marker, nothing is known of a batch that is not the first one.
            writer = KafkaTopic(transactions, columns, unsettled, batch_id or -1)
            writer.require_free_for(Candidate(owner))
            writer.take(Candidate(owner))
        root = any_folder(owner.checkpoint) / "kafka"
        for older in listed(root):
            if int(older.name.partition("-")[0]) < batch_id:
                older.remove_tree()
        # A folder of this attempt alone: another driver may run the same batch.
        folder = root / f"{batch_id}-{secrets.token_hex(8)}"
        staging.callback(folder.remove_tree)
        batch.write.option("maxRecordsPerFile", _FILE_ROWS).parquet(folder.spark_name)
        files = [file for file in listed(folder) if file.name.endswith(".parquet")]
        writer.publish(owner.id, batch_id, f"batch {batch_id}", files)
        _OPEN[place] = (run, batch_id, opened.pop_all(), writer)


def _query_of(spark: Any) -> tuple[OutputOwner, str]:
    """Return the query that has this thread, and the id of its run."""
    if (found := spark.sparkContext.getLocalProperty(QUERY_ID)) is None:
        raise ValueError("write_kafka_once: expected a call in the thread of foreachBatch")
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = queries.get(spark._jvm.java.util.UUID.fromString(found))
    owner = OutputOwner(found, query.name() or found, query.resolvedCheckpointRoot())
    return owner, str(query.runId())
