"""A source of file splits in Structured Streaming, on real Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from holdfast.cli.main import main
from support.regional.split_files import (
    PLACED,
    Placed,
    check_places,
    output_of,
    splits_of,
    write_ids,
)
from support.spark.minors import is_older_than

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.skipif(
        is_older_than("4.2"),
        reason="`FileSplits` needs the Data Source API of PySpark 4.2",
    ),
]


class FailingOnce(Placed):
    """Fails when it meets `value` for the first time; `marks` is a folder of what it did."""

    def __init__(self, marks: Path, value: int) -> None:
        super().__init__()
        self.marks, self.value = marks, value

    def process(self, batch: Any) -> Any:
        if self.value in batch.column("id").to_pylist():
            try:
                (self.marks / str(self.value)).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                raise RuntimeError(f"{self.value} for the first time")
        return super().process(batch)


def start(
    path: Path, source: dict[str, Any] | None = None, **options: Any
) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(splits_of(path, **(source or {})))
        .apply(FailingOnce(path, 1015), schema=PLACED, name="placed")
        .write_parquet(path / "out")
        .start(path / "ckpt", **options)
    )


def test_splits_of_a_failed_region_are_read_again_and_a_restart_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    query = start(tmp_path, trigger={"availableNow": True})
    query.awaitTermination()
    assert [record.outcome for record in query.history()][1:3] == ["regional", "global"]
    check_places(tmp_path, query.latest, ids)
    ids += write_ids(tmp_path / "in", 3)
    query = start(tmp_path)
    query.processAllAvailable()
    ids += write_ids(tmp_path / "in", 4)
    query.processAllAvailable()
    query.stop()
    check_places(tmp_path, query.latest, ids)
    assert sorted(row["id"] for row in output_of(tmp_path)) == ids


def test_what_cannot_be_read_is_skipped_and_listed_until_it_is_repaired(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = list(write_ids(tmp_path / "in", 2))
    bad = tmp_path / "in" / "0001\udcff.parquet"
    bad.write_text("no Parquet")
    os.utime(bad, (1_700_000_001, 1_700_000_001))
    query = start(tmp_path, {"on_bad_split": "skip"})
    query.processAllAvailable()
    assert query.metrics().skipped_splits == 1
    main(["show", str(tmp_path / "ckpt")])
    assert "0001\\udcff.parquet" in capsys.readouterr().out
    ids = [*write_ids(tmp_path / "new", 1), *ids]
    (tmp_path / "new" / "0001.parquet").replace(bad)
    query.processAllAvailable()
    assert query.metrics().skipped_splits == 0
    query.stop()
    assert sorted(row["id"] for row in output_of(tmp_path)) == ids
    assert {record.outcome for record in query.history()} <= {"global", "regional"}


def test_a_folder_that_is_gone_ends_the_query_with_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_ids(tmp_path / "in", 1)
    query = start(tmp_path)
    query.processAllAvailable()
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    with pytest.raises(holdfast.RegionalQueryError, match=r"FileNotFoundError.*/in"):
        query.awaitTermination(60)
