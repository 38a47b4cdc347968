"""A query's batches reach readers of a topic once, whenever it is killed, with a real broker."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast.files.paths import any_folder, listed
from holdfast.regions.sinks.kafka_client import KafkaTransactions
from holdfast.regions.sinks.kafka_marker import Marker
from support.regional.kafka_pipeline import PARTITIONS, new_topic, read_committed
from support.spark.kafka_broker import KafkaBroker, running_broker
from support.spark.kafka_once_job import POINTS, records
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import source, write_batch
from support.spark.regional_run import log_of, run_job

# Several Spark applications in a row: for when the machine is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

KEYS = 7


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running_broker(tmp_path_factory.mktemp("kafka"), partitions=PARTITIONS) as running:
        yield running


def write_input(folder: Path, first: int, count: int) -> None:
    """Batches, each with a few more rows than keys."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        write_batch(folder, number, [{"key": row % KEYS} for row in range(KEYS + number)])


def counted(batches: int) -> list[tuple[str, int]]:
    """All keys of each batch, with their counts so far: the rows that it puts out."""
    counts: Counter[int] = Counter()
    rows = []
    for number in range(batches):
        counts.update(row % KEYS for row in range(KEYS + number))
        rows += [(str(key), counts[key]) for key in range(KEYS)]
    return sorted(rows)


def found(broker: KafkaBroker, topic: str) -> list[tuple[str, int]]:
    return sorted((key, int(count)) for key, count in read_committed(broker.servers, topic))


@pytest.mark.full
def test_a_query_that_is_killed_at_any_point_of_a_batch_writes_each_row_once(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    new_topic(broker.servers, "out")
    write_input(tmp_path / "in", 0, len(POINTS) + 2)
    job, arguments = "spark/kafka_once_job.py", ("--servers", broker.servers)
    for at, point in enumerate(POINTS, start=1):
        code = run_job(tmp_path, *arguments, "--kill", point, "--at", str(at), job=job)
        assert code == -signal.SIGKILL, f"{point}: {log_of(tmp_path)}"
        is_written = point in ("committed", "returned")
        if point != "ending":
            assert found(broker, "out") == counted(at + is_written), point
        assert not (tmp_path / "ckpt" / "commits" / str(at)).exists()
    assert run_job(tmp_path, *arguments, job=job) == 0, log_of(tmp_path)
    assert found(broker, "out") == counted(len(POINTS) + 2)
    calls = Counter(map(int, (tmp_path / "calls").read_text().split()))
    assert calls == {batch: 2 if 1 <= batch <= len(POINTS) else 1 for batch in calls}
    assert list((tmp_path / "ckpt" / "kafka").iterdir()) == []


def run(
    spark: SparkSession,
    folder: Path,
    write: Callable[[DataFrame, int], None],
    checkpoint: str | None = None,
) -> None:
    counts = source(spark, folder / "in").groupBy("key").agg(F.count("*").alias("n"))
    query = (
        records(counts)
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint or str(folder / "ckpt"))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()


def writer(broker: KafkaBroker, topic: str, **options: Any) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, batch_id: int) -> None:
        given = {"bootstrap_servers": broker.servers, "transactional_id": f"of-{topic}"}
        holdfast.write_kafka_once(batch, batch_id, topic, **given | options)

    return write


def test_a_batch_that_runs_again_changes_state_and_writes_nothing(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    new_topic(broker.servers, "repeated")
    write_input(tmp_path / "in", 0, 2)
    write = writer(broker, "repeated")

    def fail_behind(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        if batch_id == 1:
            raise ZeroDivisionError

    with pytest.raises(Exception, match="ZeroDivisionError"):
        run(spark, tmp_path, fail_behind)
    assert found(broker, "repeated") == counted(2)
    write_input(tmp_path / "in", 2, 1)
    run(spark, tmp_path, write)
    assert found(broker, "repeated") == counted(3)


@pytest.mark.full
def test_rows_are_staged_where_the_checkpoint_is(
    spark: SparkSession, broker: KafkaBroker, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    new_topic(broker.servers, "staged")
    checkpoint = f"{hdfs.uri}/{tmp_path.name}/checkpoint"
    for number in range(3):
        write_input(tmp_path / "in", number, 1)
        run(spark, tmp_path, writer(broker, "staged"), checkpoint)
        assert found(broker, "staged") == counted(number + 1)
    assert listed(any_folder(checkpoint) / "kafka") == []


def test_nothing_is_written_or_left_out_in_silence_if_no_marker_says_it(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(broker.servers, "unsettled")
    write_input(tmp_path / "in", 0, 3)
    write = writer(broker, "unsettled")
    run(spark, tmp_path, write)
    # The query goes back by two batches.
    for gone in ("commits/1", "commits/2", "offsets/2"):
        (tmp_path / "ckpt" / gone).unlink()
    with pytest.raises(Exception, match=r"whether checkpoint 1 was .* or it names a later one"):
        run(spark, tmp_path, write)
    assert found(broker, "unsettled") == counted(3)
    run(spark, tmp_path, writer(broker, "unsettled", unsettled="again"))
    twice = [row for row in counted(3) if row not in counted(1)]
    assert found(broker, "unsettled") == sorted([*counted(3), *twice])

    write_input(tmp_path / "in", 3, 1)
    with monkeypatch.context() as forgotten:
        forgotten.setattr(KafkaTransactions, "read_marker", lambda transactions: None)
        with pytest.raises(Exception, match=r"whether checkpoint 3 was .* its marker is gone"):
            run(spark, tmp_path, write)
    with pytest.raises(Exception, match="whether checkpoint 3 was "):
        run(spark, tmp_path, write)
    run(spark, tmp_path, writer(broker, "unsettled", unsettled="skip"))
    assert found(broker, "unsettled") == sorted([*counted(3), *twice])
    # The batch that was left out has changed the state.
    write_input(tmp_path / "in", 4, 1)
    run(spark, tmp_path, write)
    last = [row for row in counted(5) if row not in counted(4)]
    assert found(broker, "unsettled") == sorted([*counted(3), *twice, *last])


def test_a_run_asks_the_brokers_for_the_marker_at_its_begin_only(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(broker.servers, "long")
    write_input(tmp_path / "in", 0, 3)
    read, asked = KafkaTransactions.read_marker, []

    def forget_later(transactions: KafkaTransactions) -> Marker | None:
        asked.append(transactions)
        return read(transactions) if len(asked) <= 2 else None

    monkeypatch.setattr(KafkaTransactions, "read_marker", forget_later)
    run(spark, tmp_path, writer(broker, "long"))
    assert len(asked) == 2
    assert found(broker, "long") == counted(3)


def test_a_second_call_or_a_second_query_with_an_id_is_refused(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    new_topic(broker.servers, "refused")
    write_input(tmp_path / "in", 0, 1)
    write = writer(broker, "refused")

    def twice(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        write(batch, batch_id)

    with pytest.raises(Exception, match=r"called twice in batch 0 .* needs an id of its own"):
        run(spark, tmp_path, twice)
    with pytest.raises(Exception, match=r"'of-refused' belongs to .*/ckpt, which would be fenced"):
        run(spark, tmp_path, write, str(tmp_path / "other"))
    run(spark, tmp_path, write)
    assert found(broker, "refused") == counted(1)


def test_arguments_and_columns_that_cannot_work_are_refused(
    spark: SparkSession, broker: KafkaBroker
) -> None:
    rows = spark.createDataFrame([("a", "b")], "value string, topic string")
    with pytest.raises(ValueError, match="columns topic would not be in any record"):
        writer(broker, "some")(rows, 0)
    with pytest.raises(ValueError, match="without Spark's prefix: 'acks'"):
        writer(broker, "some", options={"kafka.acks": "1"})(rows, 0)
    with pytest.raises(ValueError, match="batch_id=-1 is not allowed"):
        writer(broker, "some")(rows, -1)
    with pytest.raises(ValueError, match="expected a call in the thread of foreachBatch"):
        writer(broker, "some")(rows.drop("topic"), 0)
