"""Holdfast answers calls of the state store SPI, wrong ones included, as Spark's RocksDB does.

What RocksDB makes of each is recorded in ``provider_calls.tsv``: group and name of the call,
exception or "returned", condition or value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from support.spark.java_side import instance
from support.spark.queries import PROVIDERS, STATE, settings

RECORDED = Path(__file__).with_name("provider_calls.tsv")
GROUPS = [
    "versions",
    "rows",
    "sessions",
    "readers",
    "families",
    "families of versions",
    "multiGet",
    "tasks",
]
PROVIDER = STATE + "providerClass"
# What RocksDB waits for a store that is in use: a case that forgets one shall not hold up the rest.
SOON = {STATE + "rocksdb.lockAcquireTimeoutMs": "2000"}


class Outcome(NamedTuple):
    """What came of one call: an exception and its condition, or "returned" and what."""

    kind: str
    what: str
    message: str = ""


# By group of calls and name of the call.
Outcomes = dict[tuple[str, str], Outcome]


def outcomes(text: str) -> Outcomes:
    lines = (line.split("\t", 4) for line in text.splitlines())
    return {(group, name): Outcome(*outcome) for group, name, *outcome in lines}


def run(spark: SparkSession, provider: str, folder: Path) -> Outcomes:
    calls: Any = instance(spark, "StoreCalls")
    with settings(spark, {**SOON, PROVIDER: PROVIDERS[provider]}):
        return outcomes(calls.run(spark._jsparkSession, folder.as_uri()))


@pytest.fixture(scope="module", autouse=True)
def named(spark: SparkSession) -> Iterator[None]:
    """Stores without a query: only a query has a default."""
    with settings(spark, {PROVIDER: PROVIDERS["holdfast"]}):
        yield


@pytest.fixture(scope="module")
def mine(named: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What Holdfast makes of all calls."""
    return run(spark, "holdfast", tmp_path_factory.mktemp("calls"))


def of_group(found: Outcomes, group: str) -> dict[str, tuple[str, str]]:
    return {name: (out.kind, out.what) for (where, name), out in found.items() if where == group}


@pytest.mark.parametrize("group", GROUPS)
def test_a_call_comes_to_what_it_comes_to_with_rocksdb(group: str, mine: Outcomes) -> None:
    expected = of_group(outcomes(RECORDED.read_text()), group)
    assert expected
    assert of_group(mine, group) == expected


@pytest.mark.full
def test_what_rocksdb_makes_of_the_calls_is_what_was_recorded(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = run(spark, "rocksdb", tmp_path)
    recorded = outcomes(RECORDED.read_text())
    assert {group for group, _ in recorded} == set(GROUPS)
    for group in GROUPS:
        assert of_group(found, group) == of_group(recorded, group)


def test_what_holdfast_knows_of_a_refused_call_is_told(mine: Outcomes) -> None:
    said = mine["sessions", "metrics before commit"].message
    place = r"version 0 of operator 0, partition \d+, store default"
    assert re.search(f"Cannot get metrics of {place} after UPDATING", said)


def test_a_provider_without_hadoop_configuration_says_what_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: Any = instance(spark, "StoreCalls")
    found = outcomes(calls.withoutConfiguration(spark._jsparkSession, tmp_path.as_uri()))
    for name, said in (
        ("none", "no Hadoop configuration"),
        ("without a run", "a Hadoop configuration without sql.streaming.runId"),
    ):
        outcome = found["configuration", name]
        assert outcome.kind == "java.lang.IllegalArgumentException"
        assert said in outcome.message
        assert "operatorId=0" in outcome.message


def test_a_row_stays_what_it_is_when_another_one_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With a join of state format 1, a row that is evicted is read before another one."""
    calls: Any = instance(spark, "StoreCalls")
    assert calls.twoRows(spark._jsparkSession, tmp_path.as_uri()) == "10,20"
