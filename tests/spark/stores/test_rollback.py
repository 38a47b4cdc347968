"""``holdfast rollback``: a query goes on from an earlier batch, whose segments stay."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.cli import publishing
from holdfast.cli.rollback import roll_back
from holdfast.queries import leases
from support.spark.branch_job import Running
from support.spark.commands import run_commands
from support.spark.queries import source


def rows(checkpoint: Path, **chosen: Any) -> list[dict[str, Any]]:
    with holdfast.open_state(checkpoint, **chosen) as state:
        return sorted(state.to_arrow().to_pylist(), key=repr)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Running:
    running = Running(spark, "aggregation-update", tmp_path)
    running.go_on(3)
    return running


@pytest.mark.versions
def test_a_query_goes_back_and_forth(spark: SparkSession, query: Running) -> None:
    checkpoint, early = query.local, rows(query.local)
    leases.tag(checkpoint, "early", None)
    query.go_on(5)
    late = rows(checkpoint)
    assert not roll_back(spark, checkpoint, "early", yes=False)["changed"]
    assert rows(checkpoint) == late
    with holdfast.open_state(checkpoint) as state:
        assert roll_back(spark, checkpoint, "early", yes=True)["batch"] == 9
        changes = [*state.watch(until=lambda: True)]
        seen = {row["key"]: row for row in late}
        for row in changes[0].rows.to_pylist():
            seen.pop(row["key"], None)
            if row["after"] is not None:
                seen[row["key"]] = {"key": row["key"], **row["after"]}
    assert [len(one.rows) > 0 for one in changes] == [True, False]
    assert sorted(seen.values(), key=repr) == early == rows(checkpoint)
    assert not roll_back(spark, checkpoint, "early", yes=True)["changed"]
    # The way back.
    assert roll_back(spark, checkpoint, "7", yes=True)["batch"] == 11
    assert rows(checkpoint) == late
    roll_back(spark, checkpoint, "early", yes=True)
    leases.drop(checkpoint, "early")
    # It reads all files since again.
    made = query.run()
    assert min(made) == 14
    assert rows(checkpoint) == late
    # Each batch is followed by a clean-up.
    query.go_on(5)
    assert rows(checkpoint)
    assert not [one for one in leases.find_leases(checkpoint) if one.name != "rollback-12"]


class Killed(BaseException):
    """The death of the command."""


def test_a_command_that_was_killed_is_finished_by_the_same_command(
    spark: SparkSession, query: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, expected = query.local, rows(query.local, batch=1)

    def dying(job: Any, *_: Any, commits: bool) -> None:
        assert job.plan()
        if commits:
            job.commit()
        raise Killed

    for commits in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(publishing, "publish", partial(dying, commits=commits))
            with pytest.raises(Killed):
                roll_back(spark, checkpoint, "1", yes=True)
        with pytest.raises(Exception, match=r"rollback --to 1 .*commits/(3|4) is missing"):
            query.run()
    query.write(1)
    assert roll_back(spark, checkpoint, "1", yes=True)["batch"] == 4
    assert rows(checkpoint) == expected
    assert min(query.run()) == 5


def test_the_file_sink_gets_the_rows_once_more(
    spark: SparkSession, query: Running, tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "passing", tmp_path / "output"

    def run() -> None:
        frame = source(spark, query.folder / "events").withWatermark("time", "1 minute")
        counted = frame.groupBy("key", "time").count()
        written = counted.writeStream.format("parquet").option("path", str(output))
        written.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    query.write(2)
    run()
    before = spark.read.parquet(str(output)).count()
    run_commands(
        {}, {}, ["rollback", str(checkpoint), "--to", "1", "--output", str(output), "--yes"]
    )
    query.write(2)
    run()
    assert spark.read.parquet(str(output)).count() > before


@pytest.mark.parametrize(
    ("to", "said"),
    [("77", "expected batch 77 in the commit log"), ("none", "expected a tag 'none', found none")],
)
def test_an_unknown_batch_changes_nothing(
    to: str, said: str, spark: SparkSession, query: Running
) -> None:
    before = sorted(query.local.rglob("*"))
    with pytest.raises(FileNotFoundError, match=said):
        roll_back(spark, query.local, to, yes=True)
    assert sorted(query.local.rglob("*")) == before
