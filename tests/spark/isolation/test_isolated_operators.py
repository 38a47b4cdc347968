"""Operators of the matrix go on although a key fails, and catch up after the query is repaired.

A cell is a case of the operator matrix, on the installed Spark minor. ``make test`` runs two, and
``make test-versions-quick`` the same on each older minor. ``make test-full`` and ``make
test-versions`` run all. One process runs them all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support import environment, program
from support.spark.gaps import gap_of
from support.spark.isolated_operators_job import ALL_CASES
from support.spark.java_fields import java_class
from support.spark.minors import INSTALLED

#: Rows of the key are in several windows, and all but one may be parked.
PARTITIONS = 8
EVERYDAY = {"join-full-append", "transformWithStateOnJvm-update"}
CHAINS = ("-then-", "-of-")

FIRST_BATCH_ONLY = "it reads its initial state, in the first batch"
#: Why cases are not isolated, by a part of their names.
REFUSED = {
    "-complete": "its output mode is complete",
    "initial-state": FIRST_BATCH_ONLY,
    "limit-": "its state has one partition",
}


def skip_what_spark_lacks(name: str) -> None:
    """Skips a case that fails on this minor with Spark's own RocksDB provider as well."""
    if gap := gap_of(name, PARTITIONS):
        pytest.skip(gap.reason)
    if INSTALLED == "4.0" and name.startswith("transformWithStateInPandas-initial-state"):
        pytest.skip("Spark 4.0 loses the column names of initial state if a projection follows")


def reason_of(name: str) -> str:
    return next((why for part, why in REFUSED.items() if part in name), "")


class Job:
    """The process that runs the cases."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.txt"
        arguments = ("--folder", str(folder), "--partitions", str(PARTITIONS))
        self.process = subprocess.Popen(
            [sys.executable, program("spark/isolated_operators_job.py"), *arguments],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("wb"),
            text=True,
        )

    def run(self, case: str, *, where: str = "above", isolates: bool) -> dict[str, Any]:
        """What the process found, with what it logged meanwhile."""
        begins = self.log.stat().st_size
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(
            json.dumps({"case": case, "where": where, "isolates": isolates}),
            file=self.process.stdin,
            flush=True,
        )
        found: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        found["log"] = self.log.read_bytes()[begins:].decode(errors="replace")
        assert "rows" in found, found.get("error", found["log"][-20_000:])
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    running = Job(tmp_path_factory.mktemp("job"))
    yield running
    running.close()


def cells(*, refused: bool, everyday: set[str]) -> Iterator[object]:
    for name in ALL_CASES:
        reason = reason_of(name)
        if reason if refused else reason in ("", FIRST_BATCH_ONLY):
            marks = [pytest.mark.versions, *([] if name in everyday else [pytest.mark.full])]
            yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", list(cells(refused=False, everyday=EVERYDAY)))
def test_an_operator_catches_up_after_a_key_failed(name: str, job: Job) -> None:
    skip_what_spark_lacks(name)
    is_, whole = job.run(name, isolates=True), job.run(name, isolates=False)
    assert (is_["failure"], whole["failure"]) == ("", "")
    assert is_["parked"]
    assert whole["parked"] == []
    assert is_["rows"] == whole["rows"]
    assert is_["state"] == whole["state"]
    chained = any(part in name for part in CHAINS)
    assert ("isolated in the last of 2 stateful operators" in is_["log"]) == chained


@pytest.mark.parametrize("name", list(cells(refused=True, everyday={"aggregation-complete"})))
def test_an_operator_that_is_not_isolated_fails_and_the_log_says_why(name: str, job: Job) -> None:
    skip_what_spark_lacks(name)
    found = job.run(name, where="from the start", isolates=True)
    assert "CAST_INVALID_INPUT" in found["failure"]
    assert found["parked"] == []
    assert f"): {reason_of(name)}. A task that keeps failing fails the batch." in found["log"]


@pytest.mark.full
@pytest.mark.versions
def test_a_failure_below_the_last_operator_fails_the_batch(job: Job) -> None:
    found = job.run("dropDuplicates-then-windows-append", where="below", isolates=True)
    assert "CAST_INVALID_INPUT" in found["failure"]
    assert found["parked"] == []
    assert "isolated in the last of 2 stateful operators, stateStoreSave" in found["log"]


def test_fields_that_this_spark_lacks_are_named(spark: SparkSession) -> None:
    node = spark.range(1)._jdf.queryExecution().sparkPlan()
    plan = java_class(spark, "org.apache.spark.sql.execution.SparkPlan")
    text = java_class(spark, "java.lang.String")
    fields = java_class(spark, "io.holdfast.spark.isolation.plan.Fields")
    types = spark._sc._gateway.new_array(spark._jvm.java.lang.Class, 2)
    types[0], types[1] = plan, text
    method = fields.getDeclaredMethod("missing", types)
    method.setAccessible(True)
    values = spark._sc._gateway.new_array(spark._jvm.java.lang.Object, 2)
    values[0], values[1] = node, "flatMapGroupsWithState"
    assert list(method.invoke(None, values)) == [
        "eventTimeWatermarkForLateEvents",
        "eventTimeWatermarkForEviction",
        "batchTimestampMs",
    ]
