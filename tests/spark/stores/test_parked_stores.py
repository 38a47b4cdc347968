"""A store whose version is parked, through the calls of Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast._core import CommitId
from support.spark.java_side import instance

#: More than one piece of 16 MiB.
LARGE = (20 << 20) + 7


@pytest.fixture
def stores(spark: SparkSession) -> Any:
    return instance(spark, "ParkedStores")


def test_a_parked_version_keeps_its_input_until_a_commit_has_replayed_it(
    spark: SparkSession, tmp_path: Path, stores: Any
) -> None:
    base = stores.open(spark._jsparkSession, (tmp_path / "state").as_uri())
    first = stores.park(1, base, LARGE)
    parked = stores.park(2, first, 0)
    assert [version for version, _ in CommitId.parse(parked).pending] == [2, 3]
    assert stores.pending(base) == "[]"
    entries = (
        f"Pending[version=2, rows={LARGE // 100}, bytes={LARGE}], "
        "Pending[version=3, rows=0, bytes=0]"
    )
    assert stores.pending(parked) == f"[{entries}]"
    assert stores.isRead(parked, 2, LARGE)
    assert stores.isRead(parked, 3, 0)
    assert stores.values(3, parked) == "10,null"

    said = stores.change(3, parked, False)
    assert "the input of batch 1 waits to be replayed" in said
    after = stores.change(3, parked, True)
    assert CommitId.parse(after).pending == []
    assert stores.values(4, after) == "10,3"
    # The batch runs again.
    again = stores.change(3, parked, True)
    assert stores.values(4, again) == "10,3"


def test_the_driver_makes_pending_input_durable_with_the_state(
    spark: SparkSession, tmp_path: Path, stores: Any
) -> None:
    base = stores.open(spark._jsparkSession, (tmp_path / "state").as_uri())
    parked = stores.park(1, base, LARGE)
    parked = stores.park(2, parked, LARGE)
    id = CommitId.parse(parked)
    assert id.ref is not None
    named = {id.ref.file, *(ref.file for _, ref in id.pending)}
    assert len(named) > 1
    assert stores.isInCommitLog(parked)
    assert set(stores.files(parked)) == named


def test_wrong_calls_are_refused(spark: SparkSession, tmp_path: Path, stores: Any) -> None:
    base = stores.open(spark._jsparkSession, (tmp_path / "state").as_uri())
    said = stores.wrongCalls(base).splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "IllegalArgumentException",
        "UnsupportedStateException",
        "IllegalStateException",
        "IllegalArgumentException",
        "IllegalArgumentException",
        "IllegalArgumentException",
    ]
    assert "version 2 was asked for with the id of version 1" in said[0]
    assert "does not wait for the input of version 1" in said[4]
    assert "no session is open" in said[5]
