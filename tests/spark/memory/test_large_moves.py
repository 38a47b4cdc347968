"""Commands copy a state that is several times larger than the memory that they have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from support import environment, program
from support.spark.commands import with_settings
from support.spark.queries import PROVIDERS, STATE, drain, settings

TEXT_BYTES = 4096
#: Of the state that memory is compared with, and of the one that would fit.
KEYS, FEW_KEYS = 150_000, 1_000
STATE_BYTES = KEYS * TEXT_BYTES

ROCKSDB = {
    STATE + "providerClass": PROVIDERS["rocksdb"],
    STATE + "checkpointFormatVersion": "1",
    "spark.sql.shuffle.partitions": "4",
}

#: The memory that a command has. The heap is resident from the start.
GIVEN = {
    "spark.master": "local[2]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
    STATE + "holdfast.targetMemoryBytes": str(64 << 20),
    STATE + "rocksdb.writeBufferSizeMB": "16",
}

COMMANDS: Mapping[str, list[str]] = {
    "adopt": [],
    "repartition": ["--partitions", "6", "--rewrite"],
    "leave": ["--to", "rocksdb"],
}


def made(spark: SparkSession, folder: Path, keys: int) -> Path:
    """The checkpoint of a query on RocksDB that has a text for each key."""
    # Digests hardly compress.
    parts = [f"sha2(concat(id, '-{part}'), 512)" for part in range(TEXT_BYTES // 128)]
    rows = spark.range(keys).selectExpr("id AS key", f"concat({', '.join(parts)}) AS text")
    rows.write.parquet(str(folder / "input"))
    query = spark.readStream.schema(rows.schema).parquet(str(folder / "input"))
    texts = query.groupBy("key").agg(sf.max("text").alias("text")).where("text = ''")
    with settings(spark, ROCKSDB):
        drain(texts, checkpoint=folder / "checkpoint", mode="update", into={})
    return folder / "checkpoint"


def peak(command: str, checkpoint: Path) -> int:
    """The most resident memory of a command."""
    arguments = [command, str(checkpoint), *COMMANDS[command], "--yes"]
    done = subprocess.run(
        [sys.executable, program("spark/moves_memory_job.py"), *arguments],
        env=environment(with_settings(GIVEN, {})),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return int(done.stdout.splitlines()[-1])


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_state_larger_than_memory_is_moved(spark: SparkSession, tmp_path: Path) -> None:
    few = made(spark, tmp_path / "few", FEW_KEYS)
    many = made(spark, tmp_path / "many", KEYS)
    for command in COMMANDS:
        base, most = peak(command, few), peak(command, many)
        print(f"{command}: {most >> 20} MiB, of a small state {base >> 20} MiB")
        # The heap, which is smaller than the state, is in both.
        assert most - base < STATE_BYTES // 3
    state = spark.read.format("statestore").load(str(many))
    found = state.agg(sf.count("*"), sf.sum(sf.length("value.max"))).first()
    assert found is not None
    assert tuple(found) == (KEYS, STATE_BYTES)
