"""Regional pipelines in Structured Streaming, on real Spark."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast.regions.runners.spark.runner import KEEP_FREED_MEMORY
from support import environment
from support.regional.pipelines import (
    COUNTED,
    Reminded,
    Row,
    RunningCount,
    expected,
    output_of,
    reminders,
    rows_of,
)
from support.spark.queries import settings
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.versions]

REGIONS = [f"r{number:02}" for number in range(6)]


class FailingOnce(RunningCount):
    """Does `what` when it meets an id for the first time; `marks` is a folder of what it did."""

    def __init__(self, marks: Path, ids: Sequence[int], what: str) -> None:
        self.marks = str(marks)
        self.ids = frozenset(ids)
        self.what = what

    def process(self, batch: pa.RecordBatch) -> Any:
        for row_id in self.ids.intersection(batch.column("id").to_pylist()):
            mark = Path(self.marks) / str(row_id)
            if not mark.exists():
                mark.touch()
                if self.what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError(f"in trouble at {row_id}")
        return super().process(batch)


def start(
    spark: SparkSession, path: Path, operator: holdfast.Operator, **options: Any
) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger={"availableNow": True}, **options)
    )


def written(path: Path, count: int, *, first: int = 0, each: int = 60) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=each) for number in range(first, first + count)]
    for number, rows in enumerate(batches, start=first):
        write_rows(path / "in", number, rows)
    return batches


def test_every_row_reaches_the_output_once_also_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    start(spark, tmp_path, RunningCount()).awaitTermination()
    batches += written(tmp_path, 2, first=2)
    query = start(spark, tmp_path, RunningCount())
    query.awaitTermination()
    assert query.latest.batch_id == 3
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.parametrize("ended", ["clean", "killed"])
def test_a_query_goes_on_when_published_files_were_taken_away(
    spark: SparkSession, tmp_path: Path, ended: str
) -> None:  # R81
    rows = written(tmp_path, 2)
    start(spark, tmp_path, RunningCount()).awaitTermination()
    assert output_of(tmp_path / "out") == expected(rows)
    shutil.rmtree(tmp_path / "out")
    if ended == "killed":
        # Checkpoints of older builds have none, too. Spark's commit of the batch says the same.
        (tmp_path / "ckpt" / "published").unlink()
    start(spark, tmp_path, RunningCount()).awaitTermination()
    rows += written(tmp_path, 1, first=2)
    start(spark, tmp_path, RunningCount()).awaitTermination()
    found = output_of(tmp_path / "out")
    assert found == [row for row in expected(rows) if row[1] >= 2000]


def test_a_failing_region_falls_back_and_catches_up(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = written(tmp_path, 3, each=90)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = start(spark, tmp_path, FailingOnce(marks, [1002], "raise"))
    query.awaitTermination()
    outcomes = [(row.batch_id, row.outcome) for row in query.history()]
    assert outcomes == [(-1, "global"), (0, "global"), (1, "regional"), (2, "global")]
    assert [failed.region for failed in query.history()[2].failed] == ["r02"]
    query.print_history()
    assert "regional  r02 at 2: RuntimeError: in trouble at 1002 " in capsys.readouterr().out
    assert output_of(tmp_path / "out") == expected(batches)


class Farewell(RunningCount):
    """Puts out the number of its rows when its region is retired."""

    def on_retire(self, ctx: holdfast.OperatorContext) -> pa.RecordBatch:
        row = {"region": [ctx.region], "id": [-1], "seen": [self.rows.value], "of_key": [-1]}
        return pa.RecordBatch.from_pydict(row, schema=COUNTED)


@pytest.mark.full
def test_a_region_without_rows_is_retired_by_another_task_and_begins_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write(numbers: range, regions: Sequence[str]) -> list[list[Row]]:
        batches = [rows_of(number, regions, each=2) for number in numbers]
        for number, rows in zip(numbers, batches, strict=True):
            write_rows(tmp_path / "in", number, rows)
        return batches

    def run() -> list[str]:
        query = start(spark, tmp_path, Farewell(), retire_idle=timedelta(milliseconds=8))
        query.awaitTermination()
        return sorted(query.latest.regions)

    batches = [*write(range(1), REGIONS), *write(range(1, 10), REGIONS[1:])]
    assert run() == REGIONS[1:]
    again = write(range(10, 11), REGIONS)
    assert run() == REGIONS
    rows = expected([*batches, [row for row in again[0] if row[0] != "r00"]])
    last_rows = [("r00", -1, 2, -1)]
    back = expected([[row for row in again[0] if row[0] == "r00"]])
    assert output_of(tmp_path / "out") == sorted(rows + last_rows + back)


@pytest.mark.full
def test_timers_of_a_region_without_rows_fire_in_a_task_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [rows_of(0, REGIONS, each=2), rows_of(1, REGIONS[1:], each=2)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    start(spark, tmp_path, Reminded("r00")).awaitTermination()
    again = reminders(batches[0], "r00")
    assert output_of(tmp_path / "out") == sorted(expected(batches) + again)


class Failing(RunningCount):
    """Fails at an id as long as a file is missing."""

    def __init__(self, repaired: Path, row_id: int) -> None:
        self.repaired = str(repaired)
        self.row_id = row_id

    def process(self, batch: pa.RecordBatch) -> Any:
        if self.row_id in batch.column("id").to_pylist() and not Path(self.repaired).exists():
            raise RuntimeError(f"in trouble at {self.row_id}")
        return super().process(batch)


def test_a_region_in_quarantine_owes_its_rows_until_it_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 3)

    def run() -> holdfast.RegionalQuery:
        operator = Failing(tmp_path / "repaired", 2)
        query = start(spark, tmp_path, operator, quarantine_after=1)
        query.awaitTermination()
        return query

    query = run()
    assert [row.outcome for row in query.history()] == ["global"] * 4
    assert query.status()["quarantined"] == ["r02"]
    (held,) = query.quarantine().regions
    assert (held.region, held.fallbacks, held.rows) == ("r02", 1, 180)
    assert query.quarantine().rows("r02").num_rows == 180
    assert output_of(tmp_path / "out") == expected(
        [[row for row in rows if row[0] != "r02"] for rows in batches]
    )
    (tmp_path / "repaired").touch()
    batches += written(tmp_path, 1, first=3)
    assert run().status()["quarantined"] == []
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.full
def test_rows_of_an_expression_go_to_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    batches = written(tmp_path, 2)
    operator = Failing(tmp_path / "repaired", 2)
    start(spark, tmp_path, operator, quarantine_after=1).awaitTermination()
    command = ["quarantine", str(tmp_path / "ckpt"), "skip", "--region", "r02"]
    command += ["--dead-letter", str(tmp_path / "letters"), "--yes"]
    for where, status in (("id = 2", 0), ("nothing = 2", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *command, "--where", where],
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr
    assert "nothing" in done.stderr
    (letters,) = (tmp_path / "letters").iterdir()
    assert pq.read_table(letters)["id"].to_pylist() == [2]
    start(spark, tmp_path, operator, quarantine_after=3).awaitTermination()
    assert output_of(tmp_path / "out") == expected(
        [[row for row in rows if row[1] != 2] for rows in batches]
    )


class Calling(RunningCount):
    """Runs a command that fails."""

    def process(self, batch: pa.RecordBatch) -> Any:
        subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)


def test_a_mistake_prints_one_trace_and_says_what_failed_where_in_every_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path, 1)
    query = start(spark, tmp_path, Calling())
    with pytest.raises(holdfast.RegionalQueryError) as raised:
        query.awaitTermination()
    cause = raised.value.__cause__
    assert isinstance(cause, subprocess.CalledProcessError)
    assert (cause.returncode, cause.cmd[1:]) == (3, ["-c", "raise SystemExit(3)"])
    failed = "operator 'count' failed in region 'r00' for checkpoint 2 at "
    for error in (raised.value, cause):
        for text in (str(error), repr(error), "".join(traceback.format_exception(error))):
            assert failed in text
            assert "returned non-zero exit status 3" in text
    ended = query.exception()
    assert ended is not None
    ended.__traceback__ = None
    lines = "".join(traceback.format_exception(ended)).splitlines()
    assert failed in lines[0]
    assert failed in lines[-1]
    frames = [line for line in lines if line.startswith("  File ")]
    assert len([line for line in frames if line.endswith("in process")]) == 1
    assert len(lines) < 20


def test_a_killed_worker_costs_its_regions_one_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 3)
    marks = tmp_path / "marks"
    marks.mkdir()
    # All three regions of one of the two tasks may be open when it dies: that is one failure.
    query = start(spark, tmp_path, FailingOnce(marks, [1002], "kill"))
    query.awaitTermination()
    regional = query.history()[2]
    assert (regional.batch_id, regional.outcome) == (1, "regional")
    assert "r02" in {failed.region for failed in regional.failed}
    assert {failed.region for failed in regional.failed} <= {"r00", "r02", "r04"}
    assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_what_regions_owe_is_replayed_before_the_query_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = start(spark, tmp_path, FailingOnce(marks, [1003], "raise"))
    query.awaitTermination()
    assert [row.kind for row in query.history()][-1] == "final"
    assert query.status()["failed"] == {}
    assert query.status()["in_flight_rows"] == 0
    assert output_of(tmp_path / "out") == expected(batches)


class NotingEnvironment(RunningCount):
    """Writes down what the allocators of its worker were told to keep."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def process(self, batch: pa.RecordBatch) -> Any:
        told = {name: os.environ.get(name) for name in KEEP_FREED_MEMORY}
        self.note.write_text(json.dumps(told))
        return super().process(batch)


@pytest.mark.parametrize(
    "setting", [{}, {"MALLOC_ARENA_MAX": "7"}, {"MALLOC_TRIM_THRESHOLD_": "7000000"}]
)
def test_workers_keep_freed_memory_for_the_next_batch_unless_the_user_said_how_much(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, str],
) -> None:
    # As Spark has it of spark.executorEnv.
    monkeypatch.setattr(spark.sparkContext, "environment", dict(setting))
    batches = written(tmp_path, 1)
    start(spark, tmp_path, NotingEnvironment(tmp_path / "note")).awaitTermination()
    assert json.loads((tmp_path / "note").read_text()) == {**KEEP_FREED_MEMORY, **setting}
    assert output_of(tmp_path / "out") == expected(batches)


class Long(FailingOnce):
    """Computes for longer than a worker may be idle."""

    def process(self, batch: pa.RecordBatch) -> Any:
        time.sleep(3)
        return super().process(batch)


def test_a_worker_that_computes_for_long_is_not_killed_for_being_idle(
    spark: SparkSession, tmp_path: Path
) -> None:
    kills = {
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
        "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "1",
    }
    batches = written(tmp_path, 1)
    # A region fails, too, and replays its rows without those of a batch.
    with settings(spark, kills):
        query = start(spark, tmp_path, Long(tmp_path, [3], "raise"))
        query.awaitTermination()
        assert all(spark.conf.get(name) == value for name, value in kills.items())
    failed = [
        (record.kind, failed.region) for record in query.history() for failed in record.failed
    ]
    assert failed == [("checkpoint", "r03")]
    assert query.history()[-1].kind == "final"
    assert output_of(tmp_path / "out") == expected(batches)


def unix_peers(note: Path | None = None) -> list[str]:
    """Return, and write down, whom this process has connections to within the machine."""
    found = []
    for descriptor in map(int, os.listdir("/dev/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family == socket.AF_UNIX:
                found.append(os.fsdecode(one.getpeername()))
    if note is not None:
        note.write_text(json.dumps(found))
    return found


def by_os_fork(note: Path) -> None:
    pid = os.fork()
    if pid == 0:
        unix_peers(note)
        os._exit(0)
    os.waitpid(pid, 0)


def by_a_process(note: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=unix_peers, args=(note,))
    process.start()
    process.join()


def by_a_pool(note: Path) -> None:
    with multiprocessing.get_context("fork").Pool(1, unix_peers, (note,)) as pool:
        pool.apply(os.getpid)


def by_a_program(note: Path) -> None:
    listed = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    )
    note.write_text(json.dumps([line for line in listed.stdout.splitlines() if "socket:" in line]))


class Forking(RunningCount):
    """Begins other processes, which write down what connections of their worker they have."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def process(self, batch: pa.RecordBatch) -> Any:
        if self.region == "r00":
            before = unix_peers()
            assert before
            for way in (by_os_fork, by_a_process, by_a_pool, by_a_program):
                way(self.notes / f"{way.__name__}.json")
            # The worker itself goes on with its connections.
            assert unix_peers() == before
        return super().process(batch)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_that_an_operator_forks_have_no_connection_to_the_executor(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    query = start(spark, tmp_path, Forking(tmp_path))
    query.awaitTermination()
    assert [record.outcome for record in query.history()] == ["global"] * 3
    notes = {note.stem: json.loads(note.read_text()) for note in tmp_path.glob("by_*.json")}
    ways = ("by_os_fork", "by_a_process", "by_a_pool", "by_a_program")
    assert notes == {way: [] for way in ways}
    assert output_of(tmp_path / "out") == expected(batches)


class Through(holdfast.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def test_timestamps_and_literals_pass_in_any_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    (batch,) = written(tmp_path, 1)
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = regional_source(spark, tmp_path / "in").select(
            "region", "id", F.timestamp_seconds("id").alias("at"), F.lit(1).alias("one")
        )
        (
            holdfast.regional(frame, region_by="region")
            .apply(Through(), schema="region string, id long, at timestamp, one int", name="all")
            .write_parquet(tmp_path / "out")
            .start(tmp_path / "ckpt", trigger={"availableNow": True})
            .awaitTermination()
        )
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in rows_in(path)]
    assert sorted((row["region"], row["id"]) for row in rows) == sorted(row[:2] for row in batch)
    assert all(row["at"].timestamp() == row["id"] and row["one"] == 1 for row in rows)


def test_a_watermark_takes_the_schema_of_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("bern", 100), ("bern", 90), ("bern", 89)], "site string, s long")
    timed = rows.select("site", F.timestamp_seconds("s").alias("time"), "s").coalesce(1)
    timed.write.parquet(str(tmp_path / "in"))
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Kathmandu"}):
        stream = spark.readStream.schema(timed.schema).parquet(str(tmp_path / "in"))
        pipeline = holdfast.regional(stream, region_by="site").with_watermark("time", "10 seconds")
        writer = pipeline.write_parquet(tmp_path / "out")
        writer.start(tmp_path / "ckpt", trigger={"availableNow": True}).awaitTermination()
    assert [row["s"] for row in rows_in(tmp_path / "out")] == [100, 90]


def rows_in(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def test_a_region_in_two_tasks_ends_the_query_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in", 0, rows_of(0, REGIONS), split=True)
    query = start(spark, tmp_path, RunningCount())
    # While it ends, and once it has.
    for wait in (query.processAllAvailable, query.awaitTermination, query.processAllAvailable):
        with pytest.raises(holdfast.RegionalQueryError, match="arrived in two tasks"):
            wait()
    assert output_of(tmp_path / "out") == []


def test_an_exchange_switches_regional_mode_off_and_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    marks = tmp_path / "marks"
    marks.mkdir()
    frame = regional_source(spark, tmp_path / "in").repartition(2, "region")
    pipeline = (
        holdfast.regional(frame, region_by="region")
        .apply(FailingOnce(marks, [1002], "raise"), schema=COUNTED, name="count")
        .write_parquet(tmp_path / "out")
    )
    with pytest.warns(UserWarning, match="Exchange hashpartitioning"):
        query = pipeline.start(
            tmp_path / "ckpt", trigger={"availableNow": True}, tolerable_failed_checkpoints=1
        )
    query.awaitTermination()
    outcomes = [row.outcome for row in query.history()]
    assert outcomes == ["global", "global", "aborted", "global"]
    assert output_of(tmp_path / "out") == expected(batches)


class Named(RunningCount):
    """Puts out the name of the region in the place of its value."""

    def process(self, batch: pa.RecordBatch) -> Any:
        names = pa.array([self.region] * batch.num_rows)
        return super().process(batch.set_column(0, "region", names))


def test_strings_that_are_not_utf8_or_are_long_are_regions(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [rows_of(number, REGIONS[:3]) for number in range(2)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    source = regional_source(spark, tmp_path / "in").withColumn(
        "region",
        F.expr(
            "CASE region WHEN 'r00' THEN CAST(unhex('61FF') AS STRING)"
            " WHEN 'r01' THEN repeat('x', 5000) ELSE concat('a', chr(0)) END"
        ),
    )
    pipeline = (
        holdfast.regional(source, region_by="region")
        .apply(Named(), schema=COUNTED, name="count", parallelism=2, route_by=["region", "key"])
        .write_parquet(tmp_path / "out")
    )
    query = pipeline.start(tmp_path / "ckpt", trigger={"availableNow": True})
    query.awaitTermination()
    digest = hashlib.sha256(b"x" * 5000).hexdigest()
    names = [r'"a\xff"', f'"{"x" * 64}... sha256:{digest}', "a\0"]
    assert sorted(query.metrics().regions) == sorted(names)
    found = [(region, id) for region, id, _, _ in output_of(tmp_path / "out")]
    assert found == sorted(
        (names[REGIONS.index(region)], id) for rows in batches for region, id, _ in rows
    )


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("CAST(id AS DOUBLE)", "double"),
        ("CAST('a' AS BINARY)", "binary"),
        ("array(id)", "list<element: int64>"),
        ("INTERVAL '1' DAY", r"duration\[us\]"),
        ("INTERVAL '1' YEAR", "interval year"),
    ],
)
def test_columns_that_name_no_region_are_refused_before_there_are_rows(
    spark: SparkSession, tmp_path: Path, column: str, kind: str
) -> None:
    (tmp_path / "in").mkdir()
    source = regional_source(spark, tmp_path / "in").withColumn("of", F.expr(column))
    with pytest.raises(TypeError, match=f"^region_by: the column 'of' has type {kind}, which"):
        holdfast.regional(source, region_by=["region", "of"])
    pipeline = holdfast.regional(source, region_by="region")
    with pytest.raises(TypeError, match=f"^route_by of operator 'count': .*'of' has type {kind}"):
        pipeline.apply(RunningCount(), schema=COUNTED, name="count", parallelism=2, route_by="of")
    twice = source.select(F.col("region").alias("of"), F.lit(1).alias("of"))
    with pytest.raises(ValueError, match=r"^region_by: the column 'of' is there 2 times"):
        holdfast.regional(twice, region_by="of")


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import holdfast as hf

class Same(hf.Operator):
    region_safe = True

    def process(self, batch):
        return batch

spark = hf.configure(SparkSession.builder.master("local[1]")).getOrCreate()
source = spark.readStream.schema("region string").json(sys.argv[1])
pipeline = hf.regional(source, region_by="region").apply(Same(), schema="region string")
pipeline.write_parquet(sys.argv[2]).start(sys.argv[3], trigger={"availableNow": True}).stop()
"""


def test_a_folder_that_the_locale_of_java_cannot_name_is_refused_and_not_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "in").mkdir()
    folder = tmp_path / "z\u00e4hler"

    def run(locale: str) -> subprocess.CompletedProcess[str]:
        names = ["program.py", "in", "out", folder.name]
        return subprocess.run(
            [sys.executable, *(str(tmp_path / name) for name in names)],
            env=environment() | {"LC_ALL": locale},
            capture_output=True,
            text=True,
            timeout=300,
        )

    refused = run("C")
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(
        f"ValueError: the JVM of Spark cannot name '{folder}': it runs in a locale"
    )
    assert "Start the application with LC_ALL=C.UTF-8 in the environment" in last
    assert not folder.exists()
    assert run("C.UTF-8").returncode == 0
    assert folder.exists()
