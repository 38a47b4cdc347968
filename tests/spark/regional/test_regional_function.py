"""kill -9 around calls of a function of ``foreach_batch``: its Delta table has each row once."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.regional.pipelines import expected, rows_of
from support.spark.function_job import POINTS, REGIONS
from support.spark.regional_input import write_rows
from support.spark.regional_run import log_of, run_job

# Several Spark applications in a row: for when the machine is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.full
def test_a_driver_killed_around_a_call_leaves_each_row_once_in_a_delta_table(
    tmp_path: Path,
) -> None:  # R81
    batches = [rows_of(number, REGIONS, each=40) for number in range(len(POINTS) + 1)]
    for number, rows in enumerate(batches):
        write_rows(tmp_path / "in", number, rows)
    for at, point in enumerate(POINTS):
        code = run_job(tmp_path, "--kill", point, "--at", str(at), job="spark/function_job.py")
        assert code == -signal.SIGKILL, f"{point}: {log_of(tmp_path)}"
    assert run_job(tmp_path, job="spark/function_job.py") == 0, log_of(tmp_path)

    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    repeated = [
        1 if at < len(POINTS) and POINTS[at] != "noted" else 0 for at in range(len(batches))
    ]
    wanted = [batch for batch, more in enumerate(repeated) for _ in range(1 + more)]
    assert [batch for _, batch, _, _ in calls] == wanted
    # A repeated call has the same id and the same rows, and no other has that id.
    known = {id: (batch, pipeline, rows) for id, batch, pipeline, rows in calls}
    assert len(known) == len(batches)
    assert all(known[id] == (batch, pipeline, rows) for id, batch, pipeline, rows in calls)

    table = DeltaTable(tmp_path / "table")
    got = sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())
    assert got == expected(batches)
    assert table.version() + 1 == len(batches), "one commit per checkpoint"
