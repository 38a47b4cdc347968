"""Tables of a pipeline that are many times larger than the memory that they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import environment, program
from support.spark.commands import with_settings
from support.spark.queries import FIRST_FILE_TIME, STATE
from support.spark.regional_input import TASKS

REGIONS = 4
#: Rows of one batch that brings new keys, and of one that changes old ones.
NEW, CHANGED = 1_000_000, 100_000
ROW_BYTES = 16

#: The heap is resident from the start.
GIVEN = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch",
}


class Input:
    """Files of a pipeline's input, and the values that its tables have behind them."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.folder = folder / "input"
        self.values = np.full(keys, -1)
        self.rows = self.batches = 0

    def write(self, keys: npt.NDArray[np.int64]) -> None:
        """Add a batch that changes these keys, each once."""
        after = keys * 7 + self.batches
        files = self.folder / f"{self.batches:04}"
        files.mkdir(parents=True)
        for task in range(TASKS):
            of_task = keys % TASKS == task
            mine = keys[of_task]
            before = pa.array(self.values[mine], mask=self.values[mine] < 0)
            regions = pa.array([f"r{region}" for region in range(REGIONS)])
            columns = [regions.take(pa.array(mine % REGIONS)), mine, before, after[of_task]]
            rows = pa.table(columns, names=["region", "key", "before", "after"])
            pq.write_table(rows.sort_by("region"), files / f"{task}.parquet")
            # The source takes files by their times.
            os.utime(files / f"{task}.parquet", (FIRST_FILE_TIME + self.batches,) * 2)
        self.values[keys] = after
        self.rows += len(keys)
        self.batches += 1


def resident(folder: Path, target_bytes: int) -> int:
    """The most resident memory of a job that takes all input."""
    more = {STATE + "holdfast.targetMemoryBytes": str(target_bytes)}
    done = subprocess.run(
        [sys.executable, program("spark/large_table_job.py"), str(folder)],
        env=environment(with_settings(GIVEN | more, {})),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return int(done.stdout.splitlines()[-1])


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_tables_larger_than_memory_have_the_rows_of_a_dict(tmp_path: Path) -> None:
    keys = 20 * NEW
    target = keys * ROW_BYTES // 10
    small, large = tmp_path / "small", tmp_path / "large"
    few = Input(small, NEW)
    few.write(np.arange(NEW))
    base = resident(small, target)

    random = np.random.default_rng(1)
    many = Input(large, keys)
    for first in range(0, keys, NEW):
        many.write(np.arange(first, first + NEW))
    for starts in range(2):
        for _ in range(5):
            many.write(np.sort(random.choice(keys, CHANGED, replace=False)))
        most = resident(large, target)
        print(f"start {starts}: {most >> 20} MiB, with {NEW:,} keys {base >> 20} MiB")
        assert most - base < keys * ROW_BYTES // 3
    found = pq.read_table(large / "output")
    assert sum(found["wrong"].to_pylist()) == 0
    assert sum(found["rows"].to_pylist()) == many.rows
    of_region = found.group_by("region").aggregate([("keys", "max")])
    assert of_region["keys_max"].to_pylist() == [keys // REGIONS] * REGIONS
