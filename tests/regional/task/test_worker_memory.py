"""Addresses that a Python worker reserves, as spark.executor.pyspark.memory bounds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.regions.runners.spark.runner import KEEP_FREED_MEMORY
from support import environment

# As pyspark/worker_util.py does it.
PROGRAM = """
import resource
import sys

resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))

import holdfast as hf
import pyarrow as pa

SCHEMA = pa.schema([("region", pa.string())])


class Large(hf.Operator):
    region_safe = True

    def open(self, ctx):
        self.array = ctx.state.array("array", shape=(8 << 20,), dtype="int64")

    def process(self, batch):
        self.array[:] += 1
        return batch


rows = [[pa.record_batch({"region": [name]}, schema=SCHEMA)] for name in ("a", "b")]
chain = hf.regional(region_by="region").apply(Large(), schema=SCHEMA)
with chain.write_parquet(sys.argv[1] + "/out").open_local(sys.argv[1] + "/ckpt", tasks=1) as query:
    for _ in range(3):
        query.run_batch([[rows[0][0], rows[1][0]]])
        assert not query.latest.failed, query.latest
"""


def test_two_regions_of_64_mib_fit_in_700_mib_of_addresses(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [sys.executable, program, tmp_path],
        env=environment() | KEEP_FREED_MEMORY,
        check=True,
        timeout=120,
    )
