"""Queries whose state gets another number of partitions between their batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, SparkSession

from holdfast.cli import local_spark
from holdfast.cli.main import main
from support.spark.queries import Batches, drain, settings, source, write_batch

PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def commands_in(spark: SparkSession) -> Iterator[None]:
    """Lets commands of this process run in the session of the test."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    with mock.patch.object(local_spark, "session", session):
        yield


def repartition(spark: SparkSession, checkpoint: Path, partitions: int, *arguments: str) -> int:
    """Runs the command in this process, in the session of the test."""
    command = ["repartition", str(checkpoint), "--partitions", str(partitions), *arguments]
    with commands_in(spark):
        return main(command)


def described(checkpoint: Path) -> set[int]:
    """The numbers of partitions in Spark's descriptions of operators, which readers use."""
    found = set()
    for folder in (checkpoint / "state").glob("[0-9]*/_metadata"):
        versions = sorted((folder / "v2").glob("[0-9]*"), key=lambda file: int(file.name))
        file = versions[-1] if versions else folder / "metadata"
        stores = json.loads(file.read_text().split("\n")[1])["stateStoreInfo"]
        found |= {store["numPartitions"] for store in stores}
    return found


def run_on(
    spark: SparkSession,
    *,
    inputs: Mapping[str, Sequence[Sequence[dict[str, Any]]]],
    query: Callable[[dict[str, DataFrame]], DataFrame],
    mode: str,
    folder: Path,
    partitions: Sequence[int],
) -> Batches:
    """Feeds the batches of every stream in equal parts, each on another number of partitions.

    The batches without input between them are left out of the numbers.
    """
    rows: Batches = {}
    count = max(len(batches) for batches in inputs.values())
    folders = {name: folder / name for name in inputs}
    for path in folders.values():
        path.mkdir(parents=True)
    checkpoint = folder / "checkpoint"
    with settings(spark, {PARTITIONS: str(partitions[0])}):
        for part, number in enumerate(partitions):
            if part:
                assert repartition(spark, checkpoint, number, "--yes") == 0
                assert described(checkpoint) <= {number}
            for name, batches in inputs.items():
                for batch in range(
                    count * part // len(partitions), count * (part + 1) // len(partitions)
                ):
                    if batch < len(batches):
                        write_batch(folders[name], batch, batches[batch])
            frames = {name: source(spark, path) for name, path in folders.items()}
            found: Batches = {}
            drain(query(frames), checkpoint=checkpoint, mode=mode, into=found)
            rows |= {batch - part: of_batch for batch, of_batch in found.items()}
    return rows
