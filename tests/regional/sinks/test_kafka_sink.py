"""Rows reach a reader of a topic once, whatever happens, with a real broker."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import holdfast as hf
from holdfast.regions.sinks import kafka
from holdfast.regions.sinks.kafka_marker import group_of
from support import run_until_killed
from support.regional.hooks import Hooks
from support.regional.kafka_job import POINTS
from support.regional.kafka_pipeline import (
    BATCHES,
    PARTITIONS,
    in_order,
    new_topic,
    open_pipeline,
    read_committed,
    run,
)
from support.regional.pipelines import expected
from support.spark.java_side import compiled, skipped_without_jars
from support.spark.kafka_broker import KafkaBroker, running_broker

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running_broker(tmp_path_factory.mktemp("kafka"), partitions=PARTITIONS) as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    name = f"out-{next(_NUMBERS)}"
    new_topic(broker.servers, name)
    return name


def check_once(broker: KafkaBroker, topic: str, batches: int) -> None:
    rows = read_committed(broker.servers, topic)
    assert sorted(rows) == expected(BATCHES[:batches])
    assert in_order(rows)


def killed_at(point: str, broker: KafkaBroker, topic: str, checkpoint: Path) -> None:
    run_until_killed("regional/kafka_job.py", broker.servers, topic, checkpoint, point)


def test_each_row_is_read_once_also_after_a_kill_behind_the_commit(
    broker: KafkaBroker, topic: str, tmp_path: Path, hooks: Hooks
) -> None:
    # R74, R80, R81
    killed_at("committed", broker, topic, tmp_path / "ckpt")
    check_once(broker, topic, 2)
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt", hooks=hooks) as query:
        check_once(broker, topic, 2)
        hooks.fail_for("r02", range(2000, 2030))
        run(query, 3, first=2)
        assert query.latest.failed.keys() == {"r02"}
        rows = sorted(read_committed(broker.servers, topic))
        assert [row for row in expected(BATCHES[:3]) if row not in rows] == [
            row for row in expected(BATCHES[:3]) if row[0] == "r02" and row[1] >= 2000
        ]
        hooks.calm()
        run(query, 5, first=3)
    check_once(broker, topic, 5)


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_around_a_commit_writes_each_row_once(
    point: str, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    killed_at(point, broker, topic, tmp_path / "ckpt")
    if point in ("begin", "committed", "noted"):
        check_once(broker, topic, 1 if point == "begin" else 2)
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as query:
        check_once(broker, topic, 2)
        run(query, 5, first=2)
    check_once(broker, topic, 5)


@pytest.mark.full
def test_who_takes_the_pipeline_over_fences_the_one_that_runs(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as zombie:
        run(zombie, 2)
        with open_pipeline(
            broker.servers, topic, tmp_path / "second", restore=hf.restore(tmp_path / "ckpt")
        ) as query:
            with pytest.raises(hf.SinkFencedError, match=f"transactional id 'of-{topic}'"):
                run(zombie, 3, first=2)
            check_once(broker, topic, 2)
            run(query, 4, first=2)
    check_once(broker, topic, 4)
    with pytest.raises(FileExistsError, match=r"belongs to pipeline 'pipeline' .*second.*fenced"):
        open_pipeline(broker.servers, topic, tmp_path / "ckpt")
    check_once(broker, topic, 4)


@pytest.mark.full
def test_a_pipeline_that_was_idle_for_long_takes_its_id_again_but_no_one_elses(
    broker: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "IDLE_S", 0.0)
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as zombie:
        run(zombie, 3)
        check_once(broker, topic, 3)
        with open_pipeline(
            broker.servers, topic, tmp_path / "second", restore=hf.restore(tmp_path / "ckpt")
        ) as query:
            with pytest.raises(hf.SinkFencedError, match="has taken over the transactional id"):
                run(zombie, 4, first=3)
            run(query, 5, first=3)
    check_once(broker, topic, 5)


@pytest.mark.full
def test_what_a_principal_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.regions.sinks.kafka_client.START_S", 15.0)
    settings = [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    ]
    for folder in ("helpers", "kafka"):
        (tmp_path / folder).mkdir()
    with skipped_without_jars():
        helpers = compiled("UntilInputEnds")
        broker = KafkaBroker(tmp_path / "kafka", helpers, partitions=PARTITIONS, settings=settings)
    new_topic(broker.servers, "out")
    refusals = [
        (ResourceType.GROUP, group_of("mine"), ConnectionError, "has no READ on group"),
        (ResourceType.TOPIC, "out", PermissionError, "needs WRITE and DESCRIBE on topic 'out'"),
    ]
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for kind, name, error, message in refusals:
        # What others are allowed, this one is not any more.
        rule = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:another",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([rule])[rule].result(60)
        with pytest.raises(error, match=message):
            open_pipeline(broker.servers, "out", tmp_path / "ckpt", transactional_id="mine")
        assert not (tmp_path / "ckpt").exists()
    broker.close()


@pytest.mark.full
def test_another_pipeline_with_the_same_transactional_id_is_refused_and_fences_nothing(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt", name="first") as query:
        run(query, 1)
        with pytest.raises(FileExistsError, match="belongs to pipeline 'first'") as raised:
            open_pipeline(broker.servers, topic, tmp_path / "other")
        assert str(tmp_path / "ckpt") in str(raised.value)
        assert not (tmp_path / "other").exists()
        run(query, 2, first=1)
    check_once(broker, topic, 2)


@pytest.mark.full
def test_a_broker_that_is_away_ends_the_query_and_what_is_owed_comes_with_the_next_start(
    tmp_path: Path,
) -> None:
    quick = {"transaction.timeout.ms": 6000}
    with skipped_without_jars():
        (tmp_path / "helpers").mkdir()
        (tmp_path / "kafka").mkdir()
        helpers = compiled("UntilInputEnds")
        broker = KafkaBroker(tmp_path / "kafka", helpers, partitions=PARTITIONS)
    new_topic(broker.servers, "out")
    with open_pipeline(broker.servers, "out", tmp_path / "ckpt", kafka=quick) as query:
        run(query, 1)
        broker.stop()
        with pytest.raises(hf.SinkFailedError, match="could not commit checkpoint 3") as raised:
            run(query, 2, first=1)
        assert isinstance(raised.value.__cause__, ConnectionError | TimeoutError)
    broker.start()
    with open_pipeline(broker.servers, "out", tmp_path / "ckpt") as query:
        check_once(broker, "out", 2)
        broker.stop()
        back = threading.Timer(1, broker.start)
        back.start()
        run(query, 4, first=2)
        back.join()
    check_once(broker, "out", 4)
    broker.close()


@pytest.mark.full
def test_going_back_has_rows_again_with_a_warning(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as query:
        run(query, 3)
    with (
        pytest.warns(UserWarning, match=f"to Kafka topic '{topic}' cannot be taken back: rows"),
        open_pipeline(broker.servers, topic, tmp_path / "ckpt", checkpoint_id=3) as query,
    ):
        run(query, 4, first=2)
    once = expected(BATCHES[:4])
    again = [row for row in once if row[1] // 1000 == 2]
    assert sorted(read_committed(broker.servers, topic)) == sorted([*once, *again])


@pytest.mark.full
def test_a_savepoint_goes_on_in_another_folder(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as query:
        run(query, 2)
        query.stop_with_savepoint(tmp_path / "saved")
    with open_pipeline(
        broker.servers, topic, tmp_path / "second", restore=hf.restore(tmp_path / "saved")
    ) as query:
        run(query, 3, first=2)
    with open_pipeline(broker.servers, topic, tmp_path / "second") as query:
        run(query, 4, first=3)
    check_once(broker, topic, 4)


@pytest.mark.full
def test_a_savepoint_that_is_restored_behind_later_output_has_rows_again_with_a_warning(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as query:
        run(query, 2)
        query.stop_with_savepoint(tmp_path / "saved")
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt") as query:
        run(query, 4, first=2)
    # From now on with another id, of which the pipeline knows only what comes.
    with open_pipeline(
        broker.servers, topic, tmp_path / "ckpt", transactional_id=f"later-{topic}"
    ) as query:
        run(query, 5, first=4)
    with (
        pytest.warns(UserWarning, match="checkpoints after 3, up to 6, were committed to Kafka"),
        open_pipeline(
            broker.servers,
            topic,
            tmp_path / "second",
            transactional_id=f"later-{topic}",
            restore=hf.restore(tmp_path / "saved"),
        ) as query,
    ):
        run(query, 5, first=2)
    again = [row for row in expected(BATCHES) if row[1] >= 2000]
    assert sorted(read_committed(broker.servers, topic)) == sorted([*expected(BATCHES), *again])


@pytest.mark.full
@pytest.mark.parametrize("point", ["records", "committed"])
def test_what_a_dead_pipeline_owes_is_settled_by_its_successor(
    point: str, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    killed_at(point, broker, topic, tmp_path / "ckpt")
    with open_pipeline(
        broker.servers, topic, tmp_path / "second", restore=hf.restore(tmp_path / "ckpt")
    ) as query:
        check_once(broker, topic, 2)
        run(query, 4, first=2)
    check_once(broker, topic, 4)


@pytest.mark.full
@pytest.mark.parametrize("unsettled", ["again", "skip"])
def test_without_a_marker_the_user_decides(
    unsettled: str, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    killed_at("committed", broker, topic, tmp_path / "ckpt")
    admin = AdminClient({"bootstrap.servers": broker.servers})
    group = group_of(f"of-{topic}")
    admin.delete_consumer_groups([group])[group].result(60)
    for _ in range(2):
        with pytest.raises(hf.RegionalQueryError, match="nothing says whether checkpoint 3 was"):
            open_pipeline(broker.servers, topic, tmp_path / "ckpt")
    check_once(broker, topic, 2)
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt", unsettled=unsettled) as query:
        run(query, 3, first=2)
    again = [row for row in expected(BATCHES[:2]) if row[1] >= 1000] if unsettled == "again" else []
    assert sorted(read_committed(broker.servers, topic)) == sorted([*expected(BATCHES[:3]), *again])
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt"):
        pass


@pytest.mark.full
def test_what_brokers_refuse_is_said_at_the_start(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="there is no topic 'missing'"):
        open_pipeline(broker.servers, "missing", tmp_path / "ckpt")
    with pytest.raises(ValueError, match=r"transaction\.timeout\.ms=10000000 is not allowed"):
        open_pipeline(
            broker.servers, topic, tmp_path / "ckpt", kafka={"transaction.timeout.ms": 10_000_000}
        )
    with pytest.raises(ValueError, match="No such configuration property"):
        open_pipeline(broker.servers, topic, tmp_path / "ckpt", kafka={"acsk": 1})
    assert read_committed(broker.servers, topic) == []


@pytest.mark.full
def test_a_record_that_is_too_large_is_named_and_nothing_of_its_checkpoint_is_read(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    small = {"message.max.bytes": 1000}

    class Large(hf.Operator):
        region_safe = True

        def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            values = ["x" * 2000 if n == 21 else "x" for n in batch.column("id").to_pylist()]
            return pa.RecordBatch.from_pydict({"value": values})

    writer = (
        hf.regional(region_by="region")
        .apply(Large(), schema=pa.schema([("value", pa.string())]))
        .write_kafka(topic, bootstrap_servers=broker.servers, transactional_id=topic, options=small)
    )
    with (
        writer.open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.SinkFailedError, match="MSG_SIZE_TOO_LARGE"),
    ):
        run(query, 1)
    assert read_committed(broker.servers, topic) == []


@pytest.mark.full
def test_options_with_secrets_stay_in_the_process(
    broker: KafkaBroker,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = "correct-horse-battery"  # noqa: S105
    kafka = {"sasl.password": secret, "sasl.username": "horse", "debug": "all"}
    caplog.set_level("DEBUG")
    with open_pipeline(broker.servers, topic, tmp_path / "ckpt", kafka=kafka) as query:
        run(query, 2)
        plan = query._runner._plan  # what travels to workers
        assert secret.encode() not in pickle.dumps(plan)
    for file in (tmp_path / "ckpt").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file
    written = capfd.readouterr()
    assert secret not in caplog.text + written.out + written.err
    check_once(broker, topic, 2)
