"""Functions of ``foreach_batch`` and other code on the driver that is killed, or ends by itself."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast
from holdfast.regions.sinks import ParquetSink
from support.regional.pipelines import COUNTED, RunningCount, expected, output_of, rows_of
from support.spark.function_job import POINTS, REGIONS
from support.spark.regional_input import regional_source, write_rows
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


ENDS: dict[str, type[BaseException]] = {
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
}


class Ending(holdfast.OperatorCoordinator):
    """Ends the thread that it is called on, if it is told how."""

    def __init__(self, raised: type[BaseException] | None) -> None:
        self.raised = raised

    def checkpoint(self, checkpoint: int) -> bytes:
        if checkpoint > 1 and self.raised is not None:
            raise self.raised
        return b""

    def reset(self, snapshot: bytes | None) -> None:
        pass


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("where", ["function", "sink", "coordinator"])
def test_code_on_the_driver_that_ends_its_thread_ends_the_query_with_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    raised, rows = ENDS[how], rows_of(0, REGIONS)
    write_rows(tmp_path / "in", 0, rows)
    got: list[Any] = []

    def ends(*_: Any) -> None:
        raise raised

    def start(raised: type[BaseException] | None) -> holdfast.RegionalQuery:
        pipeline = holdfast.regional(
            regional_source(spark, tmp_path / "in"), region_by="region"
        ).apply(
            RunningCount(),
            schema=COUNTED,
            name="count",
            coordinator=Ending(raised if where == "coordinator" else None),
        )
        writer = (
            pipeline.write_parquet(tmp_path / "out")
            if where == "sink"
            else pipeline.foreach_batch(
                ends
                if where == "function" and raised
                else lambda rows, _: got.extend(rows.collect())
            )
        )
        return writer.start(
            tmp_path / "ckpt", trigger={"availableNow": True}, tolerable_failed_checkpoints=0
        )

    with monkeypatch.context() as patch:
        if where == "sink":
            patch.setattr(ParquetSink, "commit", ends)
        query = start(raised)
        with pytest.raises(holdfast.RegionalQueryError, match=raised.__name__):
            assert query.awaitTermination(120), "the query stands still"
    assert not query.stream.isActive
    start(None).awaitTermination()
    found = output_of(tmp_path / "out") if where == "sink" else sorted(map(tuple, got))
    assert found == expected([rows])
