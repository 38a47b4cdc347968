"""Queries whose sources and sinks have names: they join and leave, and commands go between."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support import commands
from support.spark.minors import is_older_than
from support.spark.queries import NAMED, canonical, select_provider, settings, unload, write_batch
from support.spark.repartitions import commands_in

pytestmark = [
    pytest.mark.spark,
    pytest.mark.versions,
    pytest.mark.skipif(is_older_than("4.2"), reason="Spark 4.2 has named sources"),
]

SOURCES = {**NAMED, "spark.sql.shuffle.partitions": "3"}
SINKS = {"spark.sql.streaming.queryEvolution.enableSinkEvolution": "true"}
Rows = list[list[tuple[Any, ...]]]


class Query:
    """Counts the rows of its sources by key, over its restarts."""

    def __init__(self, spark: SparkSession, folder: Path, *, names_sink: bool) -> None:
        self.spark, self.folder, self.names_sink = spark, folder, names_sink
        self.checkpoint = folder / "checkpoint"
        self.fed: dict[str, int] = {}

    def _source(self, name: str) -> DataFrame:
        rows = self.spark.readStream.schema("key string, from string")
        return rows.option("maxFilesPerTrigger", 1).name(name).parquet(str(self.folder / name))

    def run(self, sources: str, provider: str = "holdfast", *, to: str = "first") -> Rows:
        """Gives each source a file, and returns the rows of each batch that has some."""
        for name in sources:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            number = self.fed[name] = self.fed.get(name, -1) + 1
            keys = [f"{number % 2}", f"{number % 3}", name]
            write_batch(self.folder / name, number, [{"key": k, "from": name} for k in keys])
        found: Rows = []
        of_sink = SINKS if self.names_sink else {}
        select_provider(self.spark, provider)
        with settings(self.spark, {**SOURCES, **of_sink}):
            rows = reduce(DataFrame.unionByName, map(self._source, sources))
            writer = (
                rows.groupBy("key")
                .agg(F.count("*").alias("n"), F.max("from").alias("last"))
                .writeStream.outputMode("update")
                .option("checkpointLocation", str(self.checkpoint))
                .trigger(availableNow=True)
                .foreachBatch(lambda batch, _: found.append(canonical(batch.collect())))
            )
            if self.names_sink:
                writer._jwrite.name(to)  # PySpark has no method for it
            writer.start().awaitTermination()
        unload(self.spark)
        select_provider(self.spark, "holdfast")
        return [batch for batch in found if batch]

    def newest(self, log: str) -> list[str]:
        """The lines of the newest entry of a log."""
        entries = (self.checkpoint / log).glob("[0-9]*")
        return max(entries, key=lambda file: int(file.name)).read_text().split("\n")


@pytest.mark.parametrize(
    "names_sink",
    [
        pytest.param(False, id="sources", marks=pytest.mark.full),
        pytest.param(True, id="sources-and-sinks"),
    ],
)
def test_sources_join_and_leave_a_query_that_commands_move(
    names_sink: bool, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = Query(spark, tmp_path / "moved", names_sink=names_sink)
    undisturbed = Query(spark, tmp_path / "undisturbed", names_sink=names_sink)

    def run(sources: str, provider: str = "holdfast", *, to: str = "first") -> None:
        found = moved.run(sources, provider, to=to)
        assert found == undisturbed.run(sources, "rocksdb", to=to)
        assert found != []

    def command(name: str, *arguments: str) -> list[str]:
        with commands_in(spark):
            status, out, err = commands.run(capsys, name, moved.checkpoint, *arguments)
        assert status == 0, err
        return out

    run("a", "rocksdb")
    run("ab", "rocksdb")
    command("adopt", "--yes")
    command("undo", "--yes")
    run("cab", "rocksdb")
    command("adopt", "--yes")
    run("cb")
    run("b", to="second")
    command("repartition", "--partitions", "5", "--yes")
    run("bd", to="second")
    run("bda")
    assert moved.newest("offsets")[0] == "v2"
    assert [line[:2] for line in moved.newest("offsets")[2:]] == ["a:", "b:", "d:"]
    commit = json.loads(moved.newest("commits")[1])
    assert moved.newest("commits")[0] == ("v3" if names_sink else "v2")
    assert ("sinkMetadataMap" in commit) == names_sink
    for name in ("show", "cost"):
        assert json.loads("".join(command(name, "--json"))) != {}
    assert {commands.cells(line)[1] for line in command("verify")[1:]} == {"ok"}
    command("leave", "--to", "rocksdb", "--format", "2", "--yes")
    run("ad", "rocksdb")
    if names_sink:
        sinks = json.loads(moved.newest("commits")[1])["sinkMetadataMap"]
        assert {name: sink["isActive"] for name, sink in sinks.items()} == {
            "first": True,
            "second": False,
        }
