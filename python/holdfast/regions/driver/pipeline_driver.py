"""The driver of a pipeline: what its caller asks for, batch by batch, until it ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import RegionalQueryError, SavepointError, StoppedError
from holdfast.regions.base.folders import (
    IDENTITY_PROPERTY,
    OUTPUT_PROPERTY,
    PIPELINE_PROPERTY,
    RESTORED_PROPERTIES,
    CheckpointFolders,
)
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.checkpoint.copy import require_free, write_image
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout
from holdfast.regions.checkpoint.opening import open_folder
from holdfast.regions.coordinator import (
    CheckpointCoordinator,
    CoordinatorOptions,
    HistoryRecord,
    Topology,
)
from holdfast.regions.driver.attempts import Attempts, finished_regions
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.driver.history_log import HistoryLog
from holdfast.regions.driver.metrics import MetricsLog, PipelineMetrics
from holdfast.regions.driver.task_runner import TaskRunner
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks import Publisher


class PipelineDriver:
    """Runs one attempt after the other, from one thread at a time.

    Parameters
    ----------
    plan : PipelinePlan
        The pipeline.
    topology : Topology
        What the coordinator knows of it.
    options : CoordinatorOptions
        Limits of the coordinator.
    folders : CheckpointFolders
        Where the checkpoint lies.
    runner : TaskRunner
        Where tasks run.
    publisher : Publisher
        The driver's half of the sink.
    host : CoordinatorHost
        Coordinators of operators; `topology` names the same ones.
    history : HistoryLog
        Keeps what became of attempts.
    clock : Clock, optional
        What time it is, and how long a pause takes.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        topology: Topology,
        options: CoordinatorOptions,
        folders: CheckpointFolders,
        runner: TaskRunner,
        publisher: Publisher,
        host: CoordinatorHost,
        *,
        history: HistoryLog,
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._options = options
        self._folders = folders
        self._runner = runner
        self._publisher = publisher
        self._host = host
        self._history = history
        self._metrics = MetricsLog([stage.name for stage in plan.stages])
        self._clock = clock or Clock()
        self._started: Attempts | None = None
        self._properties: dict[str, str] = {
            PIPELINE_PROPERTY: plan.pipeline,
            OUTPUT_PROPERTY: plan.sink.location,
            LAYOUT_PROPERTY: Layout.of(plan).to_json(),
        }
        self._saved = False
        self._stopped = False
        self._lock = threading.Lock()

    # --- life -----------------------------------------------------------------------------------

    def start(self, *, checkpoint_id: int | None = None, verify: bool = True) -> None:
        """Restore the latest checkpoint, or begin with an empty one (R26).

        Parameters
        ----------
        checkpoint_id : int, optional
            Go back to this retained checkpoint: newer ones and their output are given up.
        verify : bool, default True
            Read everything that the checkpoint needs before anything else.

        Raises
        ------
        DamagedCheckpointError
            If the checkpoint, or a segment it needs, is damaged (R75).
        FileNotFoundError
            If there is no checkpoint `checkpoint_id`.
        RegionalQueryError
            If the empty one cannot be published.
        ValueError
            If the checkpoint is that of a pipeline with another name or layout.
        """
        retained = open_folder(
            self._folders, self._plan, checkpoint_id=checkpoint_id, verify=verify
        )
        latest = retained[-1] if retained else None
        if latest is not None:
            kept = {key: latest.properties.get(key) for key in RESTORED_PROPERTIES}
            self._properties |= {key: value for key, value in kept.items() if value is not None}
        identity = self._folders.read_identity()
        if identity is not None:
            self._properties[IDENTITY_PROPERTY] = identity
        self._history.begin()
        self._runner.restore(retained)
        machine = CheckpointCoordinator(
            self._options,
            self._topology,
            restored=latest,
            retained=retained,
            last_id=max(latest.id if latest is not None else 0, self._folders.read_last_attempt()),
        )
        self._started = Attempts(
            machine,
            run=self._plan.run,
            folders=self._folders,
            runner=self._runner,
            publisher=self._publisher,
            host=self._host,
            clock=self._clock,
            history=self._history,
            metrics=self._metrics,
            properties=self._properties,
        )
        self._started.start()

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self._plan.pipeline

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        return self._attempts.latest

    def history(self, *, last: int | None = None) -> Sequence[HistoryRecord]:
        """Return the attempts that are kept, of all runs, oldest first.

        Parameters
        ----------
        last : int, optional
            Return so many at most, the newest.
        """
        return self._history.records(last=last)

    def metrics(self) -> PipelineMetrics:
        """Return what operators did since this start of the pipeline."""
        return self._metrics.snapshot(self.latest)

    def run_batch(self, batch_id: int, source: object, *, global_only: bool = False) -> None:
        """Run one batch to a completed checkpoint, in as many attempts as it takes.

        A batch that is done already, because the process ended between the checkpoint and the
        source's own log, runs no operator (R74).

        Parameters
        ----------
        batch_id : int
            Number of the batch; that of the latest checkpoint or the next one.
        source : object
            Its rows, in the runner's form.
        global_only : bool, default False
            No region may fail: in this batch, rows of different regions met.

        Raises
        ------
        StoppedError
            If `interrupt` was called before an attempt completed.
        RegionalQueryError
            If the coordinator gave up; nothing that was completed before is touched.
        """
        with self._lock:
            self._require_unsaved()
            try:
                self._attempts.until_done(batch_id, "checkpoint", source, global_only=global_only)
            except StoppedError:
                self._stopped = True
                raise

    def finish(self) -> None:
        """Replay what regions still owe, until a global checkpoint holds everything (R25).

        Raises
        ------
        RegionalQueryError
            If some region keeps failing.
        """
        # What was interrupted was a batch, which is run again after a restart.
        self._clock.resume()
        with self._lock:
            if self._owes:
                self._attempts.until_done(self.latest.batch_id, "final", None)

    def interrupt(self) -> None:
        """End a pause between attempts, and the attempts: the pipeline is to stop.

        Without effect on an attempt that is under way.
        """
        self._clock.interrupt()

    def end_of_data(self) -> None:
        """Let every region flush, and hold all as finished in a global checkpoint (R25, R61).

        Raises
        ------
        RegionalQueryError
            If some region keeps failing. No region is finished then.
        """
        with self._lock:
            self._require_unsaved()
            self._attempts.require_intact()
            if len(finished_regions(self.latest)) < len(self.latest.regions):
                self._attempts.until_done(self.latest.batch_id, "final", None, end_of_data=True)
                self._attempts.close_operators()

    def stop_with_savepoint(self, path: AnyPath, *, max_file_bytes: int) -> None:
        """Write a savepoint between two batches, after which no batch runs any more (R25).

        Parameters
        ----------
        path : Path or HadoopPath
            Folder to create.
        max_file_bytes : int
            Size in bytes at which a merged file is sealed.

        Raises
        ------
        SavepointError
            If some region keeps failing. The pipeline goes on.
        RegionalQueryError
            If the coordinator gave up.
        OSError
            If the savepoint cannot be written. The pipeline goes on.
        """
        require_free(path)
        with self._lock:
            self._attempts.require_intact()
            # Of the kind that drains: in the pipeline's own folder, a checkpoint of the kind
            # "savepoint" would stay for ever.
            given_up = None
            if self._owes:
                given_up = self._attempts.until_done(
                    self.latest.batch_id, "final", None, optional=True
                )
            if given_up is not None:
                cause = self._attempts.machine.history[-1].cause
                raise SavepointError(path, given_up.attempts, cause)
            write_image(
                self._folders,
                self.latest,
                path,
                kind="savepoint",
                pipeline=self._plan.pipeline,
                properties=self._properties,
                max_file_bytes=max_file_bytes,
            )
            self._saved = True

    @property
    def saved(self) -> bool:
        """Whether a savepoint ended the pipeline."""
        return self._saved

    @property
    def stopped(self) -> bool:
        """Whether a batch was given up between two attempts, because the pipeline stops."""
        return self._stopped

    @property
    def _owes(self) -> bool:
        """Whether rows of the stream are in no state yet."""
        return any(entry.failed or entry.in_flight_bytes for entry in self.latest.regions.values())

    @property
    def _attempts(self) -> Attempts:
        if self._started is None:
            raise RuntimeError("the pipeline was not started")
        return self._started

    def _require_unsaved(self) -> None:
        if self._saved:
            raise RegionalQueryError("the pipeline was stopped with a savepoint")
