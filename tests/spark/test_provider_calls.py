"""Holdfast answers calls of the state store SPI, wrong ones included, as Spark's RocksDB does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from java_side import instance
from pyspark.sql import SparkSession

from support import STATE, select_provider, settings

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
# What RocksDB waits for a store that is in use: a case that forgets one shall not hold up the rest.
SOON = {STATE + "rocksdb.lockAcquireTimeoutMs": "2000"}


class Outcome(NamedTuple):
    """What came of one call: an exception and its condition, or "returned" and what."""

    kind: str
    what: str
    message: str


# By group of calls and name of the call.
Outcomes = dict[tuple[str, str], Outcome]


def outcomes(text: str) -> Outcomes:
    lines = (line.split("\t", 4) for line in text.splitlines())
    return {(group, name): Outcome(*outcome) for group, name, *outcome in lines}


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """What RocksDB and Holdfast make of all calls, by provider."""
    calls: Any = instance(spark, "StoreCalls")
    folder = tmp_path_factory.mktemp("calls")
    found: dict[str, Outcomes] = {}
    for name in ("rocksdb", "holdfast"):
        select_provider(spark, name)
        try:
            with settings(spark, SOON):
                state: Path = folder / name
                found[name] = outcomes(calls.run(spark._jsparkSession, state.as_uri()))
        finally:
            select_provider(spark, "holdfast")
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_a_call_comes_to_what_it_comes_to_with_rocksdb(
    group: str, both: Mapping[str, Outcomes]
) -> None:
    def of_group(provider: str) -> dict[str, tuple[str, str]]:
        found = both[provider].items()
        return {name: (out.kind, out.what) for (where, name), out in found if where == group}

    expected = of_group("rocksdb")
    assert expected
    assert of_group("holdfast") == expected


def test_what_holdfast_knows_of_a_version_that_is_not_there_is_told(
    both: Mapping[str, Outcomes],
) -> None:
    mine = both["holdfast"]
    assert mine["versions", "version -1"].what == "CANNOT_LOAD_STATE_STORE.UNEXPECTED_VERSION"
    absent = mine["versions", "a version without an id"]
    assert absent.what == "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE"
    assert mine["sessions", "metrics before commit"].message.endswith(
        "Cannot get metrics of version 0 of operator 0, partition 12, store default after UPDATING"
    )


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
