"""One run of one query, in a process of its own: ``python -m flights.stores_child SPEC FD``."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from flights.queries import QUERIES, Query, stream_of, table_of
from harness.equality import write_batch
from harness.process import Reporter, report_to_parent
from harness.providers import start_session

_POLL_S = 0.1
_WATCH_S = 0.005


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The task of a child process.

    Attributes
    ----------
    data
        Folder that holds ``flights/`` and ``weather/``.
    checkpoint, sink
        Checkpoint root, and the folder that receives one parquet file per batch.
    hang_in_batch
        Batch that never ends: the child reports how far its tasks are, and then its sink
        blocks, so that a kill always comes before the batch is committed.
    expected
        If not empty, the file that receives the result of the batch computation.
    """

    query: str
    provider: str
    partitions: int
    data: str
    checkpoint: str
    sink: str
    hang_in_batch: int | None = None
    expected: str = ""


class Sink:
    """A ``foreachBatch`` function that writes each batch to one file named by the batch id."""

    def __init__(self, spec: RunSpec, report: Reporter, spark: SparkSession) -> None:
        self._spec = spec
        self._report = report
        self._spark = spark

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the batch; in the batch that must hang, report its progress and block."""
        hanging = batch_id == self._spec.hang_in_batch
        if hanging:
            threading.Thread(target=self._watch_tasks, daemon=True).start()
        rows = batch.toArrow()
        if hanging:
            self._in_batch(self._spec.partitions)
            threading.Event().wait()
        write_batch(rows, sink=Path(self._spec.sink), batch_id=batch_id)

    def _watch_tasks(self) -> None:
        # The stage with one task per state store is the one that commits state.
        tracker = self._spark.sparkContext.statusTracker()
        pause = threading.Event()
        while not pause.wait(_WATCH_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is None or stage.numTasks != self._spec.partitions:
                    continue
                if stage.numCompletedTasks * 2 >= stage.numTasks:
                    self._in_batch(stage.numCompletedTasks)
                    return

    def _in_batch(self, tasks_done: int) -> None:
        self._report("in_batch", tasks_done=tasks_done, tasks=self._spec.partitions)


def run(spec: RunSpec, report: Reporter) -> None:
    """Run the query to the end of its input and report every batch."""
    # The watcher needs the progress of stages at once instead of every 100 ms.
    extra = {"spark.ui.liveUpdate.period": "0"} if spec.hang_in_batch is not None else {}
    spark = start_session(provider=spec.provider, partitions=spec.partitions, extra=extra)
    report("started", spark=spark.version)
    query = QUERIES[spec.query]
    data = Path(spec.data)
    flights, weather = (stream_of(spark, data / name) for name in ("flights", "weather"))
    running = (
        query.build(flights, weather)
        .writeStream.queryName(spec.query)
        .outputMode(query.output_mode)
        .option("checkpointLocation", spec.checkpoint)
        .foreachBatch(Sink(spec, report, spark))
        .trigger(availableNow=True)
        .start()
    )
    report.follow(running, poll_s=_POLL_S)
    if spec.expected:
        report("batch_computation")
        _batch_computation(spark, query, data=data, target=Path(spec.expected))
    report("done")
    spark.stop()


def _batch_computation(spark: SparkSession, query: Query, *, data: Path, target: Path) -> None:
    import pyarrow.parquet as pq

    tables = (table_of(spark, data / name) for name in ("flights", "weather"))
    pq.write_table(query.build(*tables).toArrow(), target)


if __name__ == "__main__":
    report_to_parent(run, RunSpec)
