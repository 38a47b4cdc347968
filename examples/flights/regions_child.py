"""One run of the regional pipeline: ``python -m flights.regions_child SPEC FD``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.regions import RegionalQuery

import holdfast
from flights.rolling import REGION_BY, SCHEMA, RollingDelays, batch_computation
from flights.trouble import HANGING, Trouble, TroubledDelays
from harness.process import Reporter, report_to_parent
from harness.providers import start_session
from holdfast.files.paths import local_folder
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import history_rows
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks.layout import STAGED_FOLDER

_POLL_S = 0.1
#: More attempts than end between two looks.
_NEWEST_ATTEMPTS = 100
#: Small, so that a region has rows in several pieces and a barrier overtakes some.
_ROWS_PER_ARROW_BATCH = 2_048


@dataclass(frozen=True, kw_only=True)
class RegionalSpec:
    """The task of a child process.

    Attributes
    ----------
    data
        Folder of the files that `flights.regional_data` wrote.
    files_per_batch, carriers
        Properties of the files.
    checkpoint, sink
        Checkpoint folder and output folder of the pipeline.
    aligned_timeout_s
        Time after which the barrier of a batch overtakes rows, in seconds; None: never.
    trouble
        Fields of a `Trouble`; None: nothing goes wrong.
    expected
        If not empty, the file that receives the result of the batch computation.
    """

    data: str
    files_per_batch: int
    carriers: tuple[str, ...]
    checkpoint: str
    sink: str
    aligned_timeout_s: float | None = None
    trouble: dict[str, Any] | None = None
    expected: str = ""


def run(spec: RegionalSpec, report: Reporter) -> None:
    """Run the pipeline to the end of its input and report every attempt at a checkpoint."""
    extra = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_PER_ARROW_BATCH)}
    spark = start_session(provider="holdfast", partitions=2, extra=extra)
    report("started", spark=spark.version)
    # The history of the folder begins with the attempts of earlier runs.
    before = CheckpointFolders(local_folder(spec.checkpoint)).read_last_attempt()
    query = _started(spec, spark)
    follower = _Follower(spec, query, report, before=before)
    while not query.awaitTermination(_POLL_S):
        follower.look()
    follower.look()
    if spec.expected:
        report("batch_computation")
        _batch_computation(spark, Path(spec.data), Path(spec.expected))
    report("done")
    spark.stop()


def _started(spec: RegionalSpec, spark: SparkSession) -> RegionalQuery:
    operator: holdfast.Operator = RollingDelays(spec.carriers)
    if spec.trouble is not None:
        operator = TroubledDelays(spec.carriers, Trouble(**spec.trouble))
    flights = (
        spark.readStream.schema(spark.read.parquet(spec.data).schema)
        .option("maxFilesPerTrigger", spec.files_per_batch)
        .parquet(spec.data)
    )
    timeout = spec.aligned_timeout_s
    return (
        holdfast.regional(flights, region_by=REGION_BY)
        .apply(operator, schema=SCHEMA, name="delays")
        .write_parquet(spec.sink)
        .start(
            spec.checkpoint,
            trigger={"availableNow": True},
            aligned_timeout=None if timeout is None else timedelta(seconds=timeout),
        )
    )


class _Follower:
    """Reports attempts that ended, and when the failing region hangs."""

    def __init__(
        self, spec: RegionalSpec, query: RegionalQuery, report: Reporter, *, before: int
    ) -> None:
        self._spec = spec
        self._query = query
        self._report = report
        self._last = before
        self._hangs = False

    def look(self) -> None:
        """Report the events since the last look."""
        for record in self._query.history(last=_NEWEST_ATTEMPTS):
            if record.id > self._last:
                self._last = record.id
                self._report("attempt", row=self._row(record), in_flight=self._in_flight(record))
        trouble = self._spec.trouble
        if trouble is None or trouble["hangs_after"] is None or self._hangs:
            return
        # Others must be done at the kill, so that it is in the middle.
        staged = len(list(Path(self._spec.sink, STAGED_FOLDER).glob("*/*")))
        if Path(trouble["folder"], HANGING).exists() and staged:
            self._hangs = True
            self._report("in_batch", files_staged=staged)

    def _row(self, record: HistoryRecord) -> dict[str, Any]:
        (row,) = history_rows([record], checkpoint=local_folder(self._spec.checkpoint))
        return asdict(row)

    def _in_flight(self, record: HistoryRecord) -> dict[str, int]:
        """Return the number of pending rows of regions after a checkpoint."""
        if not record.in_flight_rows:
            return {}
        metadata = CheckpointFolders(local_folder(self._spec.checkpoint)).read(record.id)
        owed = {region: in_flight_rows(entry) for region, entry in metadata.regions.items()}
        return {region: rows for region, rows in owed.items() if rows}


def _batch_computation(spark: SparkSession, data: Path, target: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(batch_computation(spark.read.parquet(str(data))).toArrow(), target)


if __name__ == "__main__":
    report_to_parent(run, RegionalSpec)
