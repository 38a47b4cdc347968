"""Queries in Real-Time Mode keep their state in Holdfast, in the sessions of all other queries."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from harness.process import kill_session
from support.spark import processes
from support.spark.bad_rows_application import Application
from support.spark.kafka_broker import KafkaBroker, running_broker
from support.spark.minors import is_older_than
from support.spark.moved_queries import FILE_MANAGER
from support.spark.queries import PROVIDERS, STATE, require_served_by, settings, write_batch
from support.spark.real_time import QUERIES, expected, new_topics, received, send

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(is_older_than("4.3"), reason="Spark 4.3 has state in Real-Time Mode"),
]

JOB = "spark/real_time_job.py"
PROVIDER = STATE + "providerClass"
DEADLINE_SECONDS = 120
#: Spark's list of operators has no node of Holdfast.
UNLISTED = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running_broker(tmp_path_factory.mktemp("kafka"), partitions=2) as running:
        yield running


def application(broker: KafkaBroker, folder: Path, *arguments: str, **more: str) -> Application:
    given = ("--servers", broker.servers, *arguments)
    return Application(folder, *given, variables={**broker.environment, **more}, name=JOB)


@pytest.fixture(scope="module")
def running(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application that isolates failures and sets bad rows aside where it can.

    Its builder replaces the provider in ``spark-defaults.conf``.
    """
    folder = tmp_path_factory.mktemp("real-time")
    (folder / "spark-defaults.conf").write_text(f"{PROVIDER} {PROVIDERS['rocksdb']}\n")
    options = {
        "isolate_failures": True,
        "bad_rows": "dead-letter",
        "dead_letters": str(folder / "dead"),
    }
    master = ("--master", "local[12,4]")
    given = (*master, "--options", json.dumps(options))
    with application(broker, folder, *given, SPARK_CONF_DIR=str(folder)) as started:
        yield started


class Query:
    """A query with topics and a checkpoint of its own."""

    def __init__(
        self, broker: KafkaBroker, folder: Path, name: str, checkpoint: str | None = None
    ) -> None:
        self.name, self.folder = name, folder
        self.servers = broker.servers
        self.read, self.write = new_topics(broker.servers, f"{folder.name}-{name}")
        self.checkpoint = checkpoint or str(folder / f"{name}-checkpoint")

    def run(self, trigger: str, until: int | None, **more: Any) -> dict[str, Any]:
        return {
            "query": self.name,
            "trigger": trigger,
            "until": until,
            "folder": str(self.folder),
            "read": self.read,
            "write": self.write,
            "checkpoint": self.checkpoint,
            **more,
        }

    def send(self, numbers: range) -> None:
        send(self.servers, self.read, numbers)

    def received(self) -> list[tuple[Any, ...]]:
        return sorted(received(self.servers, self.write))

    def commits(self) -> int:
        return len(list(Path(self.checkpoint, "commits").glob("[0-9]*")))

    def provider(self) -> str:
        """The provider in the newest plan."""
        plans = Path(self.checkpoint, "offsets").glob("[0-9]*")
        newest = max(plans, key=lambda plan: int(plan.name))
        facts = json.loads(newest.read_text().split("\n")[1])
        return str(facts["conf"][PROVIDER])


def ran(application: Application, *queries: dict[str, Any], **settings: str) -> dict[str, Any]:
    found = application.answer({"queries": queries, "settings": settings})
    assert [one["error"] for one in found["queries"]] == [None] * len(queries), found["log"][-9000:]
    return found


def test_queries_of_both_modes_run_in_one_session_and_change_their_mode(
    broker: KafkaBroker, running: Application, tmp_path: Path
) -> None:
    counts, distinct = (Query(broker, tmp_path, name) for name in ("counts", "distinct"))
    for query in (counts, distinct):
        query.send(range(60))
    found = ran(running, counts.run("realTime", 60), distinct.run("processingTime", 60))
    assert counts.received() == expected("counts", range(60))
    assert distinct.received() == expected("distinct", range(60))
    # Neither guard is in this mode, and the query says so.
    log = found["log"]
    assert "Failures of partitions are not isolated in this query" in log
    assert "it runs in Real-Time Mode. A task that keeps failing fails the batch" in log
    assert "it runs in Real-Time Mode. A row that throws" in log
    for query in (counts, distinct):
        query.send(range(60, 120))
    ran(running, counts.run("availableNow", 120), distinct.run("realTime", 120))
    # A micro-batch puts out each key once.
    of_batch = [row for row in expected("counts", range(120)) if last_of(row, 120)]
    assert counts.received() == sorted(expected("counts", range(60)) + of_batch)
    assert distinct.received() == expected("distinct", range(120))
    counts.send(range(120, 180))
    ran(running, counts.run("realTime", 180))
    later = set(expected("counts", range(180))) - set(expected("counts", range(120)))
    assert counts.received() == sorted([*expected("counts", range(60)), *of_batch, *later])
    for query in (counts, distinct):
        assert query.provider() == PROVIDERS["holdfast"]


def last_of(row: tuple[Any, ...], numbers: int) -> bool:
    """True for the last row of a key."""
    rows = expected("counts", range(numbers))
    return int(row[1]) == max(int(other[1]) for other in rows if other[0] == row[0])


def test_a_session_that_sets_a_provider_has_it(
    broker: KafkaBroker, running: Application, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path, "counts")
    query.send(range(30))
    own = {PROVIDER: PROVIDERS["holdfast"]}
    refused = running.answer({"queries": [query.run("realTime", 30)], "settings": own})
    (failed,) = refused["queries"]
    assert "STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED" in failed["error"]
    ran(running, query.run("realTime", 30), **{PROVIDER: PROVIDERS["rocksdb"]})
    assert query.received() == expected("counts", range(30))
    assert query.provider() == PROVIDERS["rocksdb"]
    # Holdfast does not go on with it.
    (failed,) = running.answer({"queries": [query.run("realTime", 30)]})["queries"]
    assert f"was made with state store provider {PROVIDERS['rocksdb']}" in failed["error"]


@pytest.fixture
def without_provider(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(PROVIDER, None)
    spark.conf.unset(PROVIDER)
    yield spark
    if before is not None:
        spark.conf.set(PROVIDER, before)


def start(spark: SparkSession, folder: Path, *, counts: bool) -> StreamingQuery:
    (folder / "in").mkdir(exist_ok=True)
    rows = spark.readStream.schema("key string").parquet(str(folder / "in"))
    writer = (rows.groupBy("key").count() if counts else rows).writeStream.format("noop")
    place = str(folder / "checkpoint")
    return writer.outputMode("update").option("checkpointLocation", place).start()


def test_a_query_without_the_file_manager_is_refused_before_its_batch(
    without_provider: SparkSession, tmp_path: Path
) -> None:
    own = "org.apache.spark.sql.execution.streaming.checkpointing"
    manager = f"{own}.FileContextBasedCheckpointFileManager"
    with settings(without_provider, {FILE_MANAGER: manager}):
        query = start(without_provider, tmp_path, counts=True)
        write_batch(tmp_path / "in", 0, [{"key": "a"}])
        with pytest.raises(StreamingQueryException, match=f"{FILE_MANAGER} must be "):
            query.processAllAvailable()
    # Spark's default provider has written nothing.
    assert list((tmp_path / "checkpoint" / "state").rglob("*.delta")) == []


def test_a_query_that_got_another_provider_is_refused_before_its_batch(
    without_provider: SparkSession, tmp_path: Path
) -> None:
    # The first plan names the provider, and no state says so.
    with settings(without_provider, {PROVIDER: PROVIDERS["rocksdb"]}):
        start(without_provider, tmp_path, counts=False).stop()
        write_batch(tmp_path / "in", 0, [{"key": "a"}])
        start(without_provider, tmp_path, counts=False).processAllAvailable()
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    query = start(without_provider, tmp_path, counts=True)
    with pytest.raises(StreamingQueryException, match=r"Nothing was committed to .*checkpoint: "):
        query.processAllAvailable()
    assert list((tmp_path / "checkpoint" / "state").rglob("*.zip")) == []
    # This is the advice.
    shutil.rmtree(tmp_path / "checkpoint")
    query = start(without_provider, tmp_path, counts=True)
    query.processAllAvailable()
    query.stop()
    require_served_by("holdfast", tmp_path / "checkpoint")


def test_a_query_keeps_the_provider_that_it_was_started_with(
    without_provider: SparkSession, tmp_path: Path
) -> None:
    with settings(without_provider, {PROVIDER: PROVIDERS["rocksdb"]}):
        query = start(without_provider, tmp_path, counts=True)
    write_batch(tmp_path / "in", 0, [{"key": "a"}])
    query.processAllAvailable()
    query.stop()
    require_served_by("rocksdb", tmp_path / "checkpoint")


@pytest.mark.full
@pytest.mark.parametrize("provider", ["holdfast", "rocksdb"])
@pytest.mark.parametrize("name", QUERIES)
def test_each_operator_has_all_its_rows_through_restarts(
    broker: KafkaBroker, plain: Application, tmp_path: Path, name: str, provider: str
) -> None:
    query = Query(broker, tmp_path, name)
    settings = UNLISTED if name == "totals" else {}
    if provider == "rocksdb":
        settings = settings | {PROVIDER: PROVIDERS[provider]}
    for number in range(1, 4):
        query.send(range(number * 100 - 100, number * 100))
        found = ran(plain, query.run("realTime", number * 100), **settings)
        assert query.received() == expected(name, range(number * 100))
        if name == "totals":
            node = "HoldfastTransformWithState" if provider == "holdfast" else "TransformWithState"
            assert f"{node} " in found["queries"][0]["plan"]
    assert query.provider() == PROVIDERS[provider]


@pytest.fixture(scope="module")
def plain(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with application(broker, tmp_path_factory.mktemp("plain")) as started:
        yield started


@pytest.mark.full
def test_transform_with_state_names_the_setting_that_it_needs(
    broker: KafkaBroker, plain: Application, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path, "totals")
    query.send(range(10))
    (failed,) = plain.answer({"queries": [query.run("realTime", 10)]})["queries"]
    assert "set spark.sql.streaming.realTimeMode.allowlistCheck to false" in failed["error"]


@pytest.mark.full
@pytest.mark.parametrize("sink", ["console", "foreach"])
def test_a_sink_gets_all_rows(
    broker: KafkaBroker, plain: Application, tmp_path: Path, sink: str
) -> None:
    query = Query(broker, tmp_path, "counts")
    query.send(range(20))
    found = ran(plain, query.run("realTime", 20, sink=sink))
    assert query.provider() == PROVIDERS["holdfast"]
    if sink == "foreach":
        rows = (tmp_path / "rows").read_text().splitlines()
    else:
        cells = [line.strip("| \n") for line in found["printed"]]
        rows = [cell for cell in cells if cell.startswith("[")]
    assert sorted(tuple(json.loads(row)) for row in rows) == expected("counts", range(20))


def wait_for(condition: Callable[[], bool], application: Application) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        log = application.log.read_text(errors="replace")[-9000:]
        assert application.process.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize("name", ["counts", "distinct"])
def test_no_row_is_lost_and_none_counted_twice_if_drivers_are_killed(
    broker: KafkaBroker, tmp_path: Path, name: str
) -> None:
    query = Query(broker, tmp_path, name)
    for number in range(4):
        sent = number * 120
        with application(broker, tmp_path / f"life-{number}") as life:
            life.ask({"queries": [query.run("realTime", None)]})
            newer = query.commits() + 2
            query.send(range(sent, sent + 60))
            wait_for(lambda newer=newer: query.commits() >= newer, life)
            query.send(range(sent + 60, sent + 120))
            # Rows of a batch that is not committed are out.
            out = len(expected(name, range(sent + 60)))
            wait_for(lambda out=out: len({*query.received()}) > out, life)
            kill_session(life.process.pid)
    with application(broker, tmp_path / "last") as life:
        ran(life, query.run("realTime", 480))
    assert sorted(set(query.received())) == expected(name, range(480))
    assert query.provider() == PROVIDERS["holdfast"]


@pytest.mark.full
def test_a_query_goes_on_behind_an_executor_that_was_killed(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path, "counts")
    cluster = ("--master", "local-cluster[2,6,1024]")
    with application(broker, tmp_path / "application", *cluster) as running:
        query.send(range(100))
        ran(running, query.run("realTime", 100))
        query.send(range(100, 200))
        running.ask({"queries": [query.run("realTime", 300)]})
        wait_for(lambda: len(query.received()) > 100, running)
        os.kill(processes.executors(running.process.pid)[0], signal.SIGKILL)
        query.send(range(200, 300))
        assert running.process.stdout is not None
        # Tasks have one attempt in this mode, so the query fails.
        (failed,) = json.loads(running.process.stdout.readline())["queries"]
        assert failed["error"] is not None
        ran(running, query.run("realTime", 300))
    assert sorted(set(query.received())) == expected("counts", range(300))


@pytest.mark.full
@pytest.mark.parametrize("place", ["hdfs", "s3"])
def test_checkpoints_may_be_on_hdfs_and_s3(
    broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    if place == "hdfs":
        uri, settings, environment = (
            f"{request.getfixturevalue('hdfs').uri}/{tmp_path.name}",
            {},
            {},
        )
    else:
        store = request.getfixturevalue("s3").store(tmp_path.name.replace("_", "-").lower())
        uri, settings, environment = store.uri, store.settings, store.environment
    query = Query(broker, tmp_path, "counts", f"{uri}/checkpoint")
    conf = [f"--conf={key}={value}" for key, value in settings.items()]
    path = ":".join(one["SPARK_DIST_CLASSPATH"] for one in (broker.environment, environment) if one)
    for number in range(1, 3):
        query.send(range(number * 100 - 100, number * 100))
        life = application(broker, tmp_path / f"{number}", *conf, SPARK_DIST_CLASSPATH=path)
        with life:
            ran(life, query.run("realTime", number * 100))
        assert query.received() == expected("counts", range(number * 100))
