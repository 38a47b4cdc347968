"""Ordinary queries on a standalone cluster, installed by the commands of the documents: the
executors have nothing of Holdfast but what the driver gives them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.spark.queries import require_served_by
from support.spark.readme import Reader, block
from support.spark.standalone import StandaloneCluster
from support.spark.state_files import merged_files

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

DOCS = Path(__file__).resolve().parents[3] / "docs"

#: The session knows of Holdfast by its settings alone.
COUNTS = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 20).getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("input")
seen = {}


def keep(rows, batch):
    seen.update({row.value: row["count"] for row in rows.collect()})


query = lines.groupBy("value").count().writeStream.foreachBatch(keep).outputMode("update")
query = query.option("checkpointLocation", "checkpoints/counts").trigger(availableNow=True)
query.start().awaitTermination()
print(len(seen), sum(seen.values()), spark.sparkContext.master)
"""


def test_a_query_runs_on_executors_that_get_the_jars_from_the_driver(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "reader"
    (folder / "input").mkdir(parents=True)
    for number in range(3):
        words = [f"word {word}" for word in range(100)]
        (folder / "input" / f"{number}.txt").write_text("\n".join(words))
    (folder / "counts.py").write_text(COUNTS)
    address = "spark://master:7077"
    submit = block(DOCS / "installation.md", "spark-submit --master spark://").text
    assert address in submit
    with Reader(folder, Path(sys.prefix)) as reader:
        for command, _ in block(DOCS / "installation.md", "$ mkdir -p cluster/jars").commands():
            reader.shell(command)
        said = reader.shell(submit.replace(address, cluster.url))
        assert f"100 300 {cluster.url}" in said
        checkpoint = folder / "checkpoints" / "counts"
        require_served_by("holdfast", checkpoint)
        verified = reader.shell("holdfast verify checkpoints/counts --json 2> /dev/null")
    batches = json.loads("\n".join(verified))["batches"]
    assert [batch["damaged"] for batch in batches] == [False] * 3
    assert len(cluster.executors()) == 2
    # Each executor has a term of its own, and both wrote.
    assert len({path.name.partition("-")[0] for path in merged_files(checkpoint)}) == 2
