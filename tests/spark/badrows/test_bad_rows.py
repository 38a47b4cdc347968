"""Queries go on without the rows that they cannot process, and nothing else changes.

``make test`` has some of the queries, ``make test-full`` all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.spark.bad_rows import BAD, QUERIES, ROWS, ZERO, bad_ids, feed
from support.spark.bad_rows_application import Application
from support.spark.class_archive import on_class_path
from support.spark.java_side import jars, skipped_without_jars
from support.spark.kafka_broker import KafkaBroker
from support.spark.minors import INSTALLED

pytestmark = [pytest.mark.timeout(600), pytest.mark.versions]

BATCHES = range(3)
#: Batches of the longer runs, with 200 bad rows.
MANY = range(20)
EVERYDAY = {"observed", "windows", "join", "counts"}
#: Queries that read the column with the numbers of rows.
READ_IDS = {
    "cast",
    "observed",
    "division",
    "index",
    "filter",
    "explode",
    "broadcast",
    "python",
    "pandas",
    "avro",
}
#: Bad rows of these queries cost a Python worker in each trial.
SLOW = {"python", "pandas"}
DELTA = (
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions=2",
)
#: They read the input on two ways.
TWICE = {"join": 2 * len(BAD)}


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with Application(tmp_path_factory.mktemp("bad-rows")) as running:
        yield running


def ran(
    application: Application,
    folder: Path,
    query: str,
    *,
    bad: bool,
    batches: range = BATCHES,
    **more: Any,
) -> Any:
    """A run on input with bad rows, or on the same input without them."""
    own = folder / ("bad" if bad else "good")
    own.mkdir()
    feed(own / "in", batches, bad=bad)
    found = application.run(own, query, aside=bad, **more)
    assert found["error"] is None, found["log"][-10_000:]
    return found


def rows(found: Any) -> list[str]:
    return sorted(map(repr, found["rows"]))


def watermarks(found: Any) -> list[Any]:
    return [one.get("eventTime", {}).get("watermark") for one in found["progress"]]


def observed(found: Any, *, own: bool = False) -> list[dict[str, Any]]:
    """The observed metrics of each batch: those of the query, or Holdfast's own."""
    return [
        {
            name: metric
            for name, metric in one.get("observedMetrics", {}).items()
            if name.startswith("holdfast_bad_rows_") == own
        }
        for one in found["progress"]
    ]


#: Queries with a test of their own.
OTHERS = {"avro", "union", "named", "tried", "values", "values joined", "several rows"}


@pytest.mark.parametrize(
    ("query", "batches"),
    [
        *((name, BATCHES) for name in sorted(EVERYDAY)),
        *(
            pytest.param(name, BATCHES if name in SLOW else MANY, marks=pytest.mark.full)
            for name in QUERIES
            if name not in OTHERS
        ),
    ],
)
def test_a_query_has_the_rows_of_a_run_without_bad_rows(
    application: Application, tmp_path: Path, query: str, batches: range
) -> None:
    found = ran(application, tmp_path, query, bad=True, batches=batches)
    without = ran(application, tmp_path, query, bad=False, batches=batches)
    assert rows(found) == rows(without)
    assert watermarks(found) == watermarks(without)
    assert observed(found) == observed(without)
    sources = TWICE.get(query, len(BAD)) // len(BAD)
    shown = {f"holdfast_bad_rows_{source}": {"rows": len(BAD)} for source in range(sources)}
    assert observed(found, own=True)[: len(batches)] == [shown] * len(batches)
    assert len(found["letters"]) == TWICE.get(query, len(BAD)) * len(batches)
    if query in READ_IDS:
        assert [letter["row"]["id"] for letter in found["letters"]] == bad_ids(batches)
    for letter in found["letters"]:
        assert letter["error_class"] in {QUERIES[query][2], "DIVIDE_BY_ZERO"}
        assert letter["position"]["file"].endswith(f"{letter['batch']:03}.parquet")
        assert letter["position"]["row"] in BAD
    assert [batch["numInputRows"] for batch in found["progress"]][: len(batches)] == [
        (2 if query == "join" else 1) * 200
    ] * len(batches)


@pytest.mark.full
@pytest.mark.skipif(INSTALLED in ("4.0", "4.1"), reason="spark-avro is built for Spark 4.2")
def test_a_record_of_avro_that_cannot_be_parsed(tmp_path: Path) -> None:
    with skipped_without_jars():
        (avro,) = (jar for jar in jars("spark-formats") if jar.name.startswith("spark-avro"))
    path = on_class_path(avro)
    with Application(tmp_path / "application", variables=path) as application:
        test_a_query_has_the_rows_of_a_run_without_bad_rows(application, tmp_path, "avro", MANY)


@pytest.mark.full
@pytest.mark.parametrize("sink", ["delta", "foreach", "foreach batch", "kafka"])
def test_each_sink_has_the_rows_that_are_good(helpers: Path, tmp_path: Path, sink: str) -> None:
    if sink == "delta" and INSTALLED != "4.2":
        pytest.skip("Delta Lake is built for Spark 4.2")
    with skipped_without_jars():
        broker = KafkaBroker(tmp_path, helpers, partitions=2)
        path = on_class_path(*jars("spark-formats" if sink == "delta" else "spark-kafka"))
    settings = [f"--conf={setting}" for setting in DELTA] if sink == "delta" else []
    with closing(broker), Application(tmp_path / "app", *settings, variables=path) as application:
        more = {"sink": sink, "servers": broker.servers}
        found = ran(application, tmp_path, "cast", bad=True, batches=MANY, **more)
    good = [row for row in range(ROWS) if row not in BAD]
    assert sorted((row["id"], row["x"]) for row in found["rows"]) == [
        (1000 * batch + row, row) for batch in MANY for row in good
    ]
    assert [letter["row"]["id"] for letter in found["letters"]] == bad_ids(MANY)


@pytest.mark.full
@pytest.mark.parametrize("query", ["values", "values joined"])
def test_rows_of_kafka_are_named_by_topic_partition_and_offset(
    helpers: Path, tmp_path: Path, query: str
) -> None:
    with skipped_without_jars():
        broker = KafkaBroker(tmp_path, helpers, partitions=2)
    values = ["bad" if i in BAD else str(i) for i in range(200)]
    with closing(broker), Application(tmp_path / "app", variables=broker.environment) as running:
        found = running.run(
            tmp_path / "world", query, source="kafka", servers=broker.servers, send=values
        )
    assert found["error"] is None
    assert sorted(row["x"] for row in found["rows"]) == sorted(set(range(200)) - set(BAD))
    for letter in found["letters"]:
        row, position = letter["row"], letter["position"]
        assert row["value"] == "b'bad'"
        assert [position[part] for part in ("topic", "partition", "offset")] == [
            row[part] for part in ("topic", "partition", "offset")
        ]
    # Spark reads equal sides of a join once.
    assert len(found["letters"]) == len(BAD)


def test_rows_of_several_files_keep_their_names(application: Application, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in range(3):
        lines = [
            json.dumps({"id": 1000 * file + i, "v": "bad" if i in BAD else str(i)})
            for i in range(200)
        ]
        (tmp_path / f"in/{file}.json").write_text("\n".join(lines))
    # Small files are one partition of Spark.
    found = application.run(tmp_path, "named", source="json", files_per_batch=3)
    assert found["error"] is None, found["log"][-10_000:]
    assert all(row["f"] == f"{row['id'] // 1000}.json" for row in found["rows"])
    assert len(found["rows"]) == 3 * (200 - len(BAD))
    for letter in found["letters"]:
        position, id_ = letter["position"], letter["row"]["id"]
        assert position["file"].endswith(f"/{id_ // 1000}.json")
        assert position["row"] == id_ % 1000
    assert len(found["letters"]) == 3 * len(BAD)


def test_both_actions_of_a_function_have_the_same_rows(
    application: Application, tmp_path: Path
) -> None:
    found = ran(application, tmp_path, "cast", bad=True, sink="foreach batch")
    assert len(found["rows"]) == (200 - len(BAD)) * len(BATCHES)
    assert sorted(found["again"], key=repr) == sorted(found["rows"], key=repr)
    assert [letter["row"]["id"] for letter in found["letters"]] == bad_ids(BATCHES)


def test_isolation_behind_the_shuffle_has_its_own_rows(
    application: Application, tmp_path: Path
) -> None:
    settings = {"isolateFailures": "true"}
    found = ran(application, tmp_path, "distinct", bad=True, settings=settings)
    without = ran(application, tmp_path, "distinct", bad=False)
    assert rows(found) == rows(without)
    assert len(found["letters"]) == len(BAD) * len(BATCHES)
    assert "are not isolated" not in found["log"]


def test_too_many_bad_rows_fail_the_batch_and_stay(
    application: Application, tmp_path: Path
) -> None:
    feed(tmp_path / "in", range(1), bad=True)
    settings = {"badRowsMax": "2"}
    found = application.run(tmp_path, "cast", settings=settings)
    assert "bad_rows_max" in found["error"]
    assert "The value 'bad' of the type" in found["error"]
    assert (found["rows"], found["letters"]) == ([], [])
    assert not (tmp_path / "checkpoint/bad-rows/0/0").exists()
    # The repaired program has all rows of the batch.
    found = application.run(tmp_path, "cast", settings=settings, change="repaired")
    assert found["error"] is None
    assert (len(found["rows"]), found["letters"]) == (200, [])


def test_a_batch_that_set_rows_aside_ends_before_that_is_switched_off(
    application: Application, tmp_path: Path
) -> None:
    feed(tmp_path / "in", range(2), bad=True)
    assert application.run(tmp_path, "cast")["error"] is None
    for entry in (tmp_path / "checkpoint/commits").glob("*1*"):
        entry.unlink()
    found = application.run(tmp_path, "cast", aside=False, change="repaired")
    assert "Batch 1 of " in found["error"]
    assert "start the query with that once" in found["error"]
    for aside in (True, False):
        found = application.run(tmp_path, "cast", aside=aside, change="repaired")
        assert found["error"] is None
        assert len(found["rows"]) == 2 * (ROWS - len(BAD))
        assert [letter["row"]["id"] for letter in found["letters"]] == bad_ids(range(2))


def test_a_stage_with_a_function_of_several_rows_is_named(
    application: Application, tmp_path: Path
) -> None:
    feed(tmp_path / "in", range(1), bad=True)
    found = application.run(tmp_path, "several rows")
    assert "CAST_INVALID_INPUT" in found["error"]
    assert "MapInArrow does not treat each row by itself" in found["log"]
    assert found["letters"] == []


def test_a_program_is_known_by_its_expressions_and_functions(tmp_path: Path) -> None:
    programs: dict[str, list[str]] = {"cast": [], "python": []}
    for life in range(2):
        with Application(tmp_path / f"application-{life}") as application:
            for folder, found in programs.items():
                world = tmp_path / folder
                world.mkdir(exist_ok=True)
                for query in (folder, "tried") if life else (folder,):
                    feed(world / "in", range(len(found), len(found) + 1), bad=False)
                    assert application.run(world, query)["error"] is None
                    found.append((world / "checkpoint/bad-rows/program").read_text())
    for first, again, tried in programs.values():
        assert first == again != tried


def test_queries_without_state_are_planned_before_they_run(tmp_path: Path) -> None:
    adaptive = ("--conf", "spark.sql.adaptive.enabled=true")
    with Application(tmp_path / "application", *adaptive) as application:
        without = ran(application, tmp_path, "broadcast", bad=False)
        assert rows(ran(application, tmp_path, "broadcast", bad=True)) == rows(without)
        later = {"spark.sql.adaptive.streaming.stateless.enabled": "true"}
        feed(tmp_path / "later/in", range(1), bad=True)
        found = application.run(tmp_path / "later", "broadcast", settings=later)
    if INSTALLED == "4.0":
        assert (found["error"], len(found["letters"])) == (None, len(BAD))
    else:
        assert ZERO in found["error"]
        assert "switch spark.sql.adaptive.streaming.stateless.enabled off" in found["log"]


def test_a_task_needs_a_second_attempt(tmp_path: Path) -> None:
    feed(tmp_path / "in", range(1), bad=True)
    with Application(tmp_path / "application", "--master", "local[2]") as application:
        found = application.run(tmp_path, "cast")
    assert "CAST_INVALID_INPUT" in found["error"]
    assert "a task has one attempt; set spark.task.maxFailures" in found["log"]
