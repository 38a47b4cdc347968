"""Queries and regional pipelines on YARN, with HDFS as the default file system.

Executors are containers, with folders, memory and settings of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.regional.pipelines import expected, rows_of
from support.spark.commands import run_commands
from support.spark.java_side import skipped_without_jars
from support.spark.mini_hdfs import MiniHdfs
from support.spark.mini_yarn import MiniYarn
from support.spark.readme import Reader, block
from support.spark.regional_input import write_rows
from support.spark.regional_job import REGIONS
from support.spark.regional_run import log_of, run_job

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

DOCS = Path(__file__).resolve().parents[3] / "docs"
BATCHES = 7

#: The session knows of Holdfast by its settings alone. What is printed stays in a container.
COUNTS = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 20).getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file:{sys.argv[1]}/input")
seen = {}


def keep(rows, batch):
    seen.update({row.value: row["count"] for row in rows.collect()})


query = lines.groupBy("value").count().writeStream.foreachBatch(keep).outputMode("update")
query = query.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True)
query.start().awaitTermination()
with open(f"{sys.argv[1]}/seen", "w") as file:
    print(len(seen), sum(seen.values()), file=file)
"""


@pytest.fixture
def yarn(hdfs: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MiniYarn]:
    (tmp_path / "yarn").mkdir()
    with skipped_without_jars():
        running = MiniYarn(tmp_path / "yarn", default=hdfs.uri, node_managers=2)
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    yield running
    running.close()


def test_a_pipeline_goes_on_where_executors_are_killed(
    yarn: MiniYarn, hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    batches = [rows_of(number, REGIONS, each=60) for number in range(BATCHES)]
    for number, batch in enumerate(batches):
        write_rows(tmp_path / "in", number, batch)
    # Without a scheme: folders of the default file system.
    name = f"/{tmp_path.name}"
    places = ["--checkpoint", f"{name}/checkpoint", "--output", f"{name}/output"]
    settings = [f"--set={key}={value}" for key, value in yarn.settings.items()]
    code = run_job(tmp_path, "--master", "yarn", "--kill-executors", *places, *settings)
    assert code == 0, log_of(tmp_path)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"executor-2", "executor-5"}
    output = spark.read.parquet(f"{hdfs.uri}{name}/output")
    assert sorted(map(tuple, output.collect())) == expected(batches)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_query_is_submitted_as_the_documentation_says(
    yarn: MiniYarn, hdfs: MiniHdfs, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "reader"
    (folder / "input").mkdir(parents=True)
    for number in range(3):
        words = [f"word {word}" for word in range(100)]
        (folder / "input" / f"{number}.txt").write_text("\n".join(words))
    (folder / "counts.py").write_text(COUNTS)
    checkpoint = f"/{tmp_path.name}/checkpoint"
    address = "spark://master:7077"
    submit = block(DOCS / "installation.md", "spark-submit --master spark://").text
    assert address in submit
    more = " ".join(f"--conf {key}={value}" for key, value in yarn.settings.items())
    submit = submit.replace(address, f"yarn --deploy-mode {mode} {more}")
    with Reader(folder, Path(sys.prefix)) as reader:
        for command, _ in block(DOCS / "installation.md", "$ mkdir -p cluster/jars").commands():
            reader.shell(command)
        reader.shell(f"{submit.rstrip()} {folder} {checkpoint}")
    assert (folder / "seen").read_text() == "100 300\n"
    merged = [name for name in hdfs.files(f"{hdfs.uri}{checkpoint}") if name.endswith(".hf")]
    # Each executor has a term of its own, and both wrote.
    assert len({Path(name).name.partition("-")[0] for name in merged}) == 2
    run_commands({}, {}, ["verify", f"{hdfs.uri}{checkpoint}"])
