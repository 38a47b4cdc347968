"""All that Holdfast makes on local disks follows ``fs.permissions.umask-mode``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import TESTS

JOB = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import holdfast
from support.spark.queries import builder, drain, source, write_batch

class Passing(holdfast.Operator):
    region_safe = True
    def open(self, ctx):
        self.rows = ctx.state.array("rows", shape=(1000,), dtype="int64")
    def process(self, batch):
        self.rows += 1
        yield batch

root = Path({root!r})
session = builder("local-cluster[1,2,1024]" if {cluster} else "local[2]", root / "warehouse")
session = session.config("spark.hadoop.fs.permissions.umask-mode", {umask!r})
spark = holdfast.configure(session).getOrCreate()
folder = root / "input"
folder.mkdir()
for number in range(2):
    write_batch(folder, number, [dict(key=key) for key in range(8)])
made = root / "made"
counts = source(spark, folder).groupBy("key").count()
drain(counts, checkpoint=made / "stores" / "checkpoint", mode="complete", into=dict())
rows = holdfast.regional(source(spark, folder), region_by="key").apply(
    Passing(), schema="key bigint", name="pass"
)
writer = rows.write_parquet(made / "out" / "rows")
query = writer.start(made / "regional" / "checkpoint", trigger=dict(availableNow=True))
query.awaitTermination()
query = writer.start(made / "regional" / "checkpoint", trigger=dict(processingTime="1 second"))
query.stop_with_savepoint(made / "saved" / "one")
spark.stop()
"""


@pytest.mark.parametrize(
    ("umask", "cluster"),
    [
        pytest.param("002", False, marks=pytest.mark.full),
        pytest.param("077", False, marks=pytest.mark.full),
        ("u=rwx,g=rx,o=", True),
    ],
)
def test_files_and_folders_have_the_modes_that_hadoop_gives(
    tmp_path: Path, umask: str, cluster: bool
) -> None:
    script = JOB.format(tests=str(TESTS), root=str(tmp_path), umask=umask, cluster=cluster)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=550,
        check=False,
        umask=0o022,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    taken = {"002": 0o002, "077": 0o077}.get(umask, 0o027)
    made = tmp_path / "made"
    found = [*made.rglob("*")]
    for part in ("stores/checkpoint/state/holdfast", "stores/checkpoint/commits", "out/rows"):
        assert any((made / part).iterdir()), part
    wrong = [
        f"{path.relative_to(made)}: {path.stat().st_mode & 0o777:o}"
        for path in found
        if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~taken
    ]
    assert wrong == []
