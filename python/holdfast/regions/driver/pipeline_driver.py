"""The driver of a pipeline: carries out its caller's requests, batch by batch, until it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from holdfast._core import CheckpointMetadata
from holdfast.files.paths import AnyPath
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import RegionalQueryError, SavepointError, StoppedError
from holdfast.regions.base.turns import Turns
from holdfast.regions.checkpoint.copy import require_free, write_image
from holdfast.regions.checkpoint.declared import RunCompare, run_here
from holdfast.regions.checkpoint.history import HistoryLog
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout
from holdfast.regions.checkpoint.opening import open_folder
from holdfast.regions.coordinator import (
    CheckpointCoordinator,
    CoordinatorOptions,
    HistoryRecord,
    Topology,
)
from holdfast.regions.coordinator.idle import is_retired
from holdfast.regions.driver.attempt_log import AttemptLog
from holdfast.regions.driver.attempts import Attempts, finished_regions
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.driver.metrics import MetricsLog, PipelineMetrics
from holdfast.regions.driver.owned_output import OwnedOutput
from holdfast.regions.driver.task_runner import TaskRunner
from holdfast.regions.files.folders import (
    IDENTITY_PROPERTY,
    PIPELINE_PROPERTY,
    RESTORED_PROPERTIES,
    CheckpointFolders,
    output_property,
)
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks.publisher import Publishes
from holdfast.regions.state.tables.stored_table import first_due


class PipelineDriver:
    """Runs one attempt after the other. Calls from several threads wait for each other."""

    def __init__(
        self,
        plan: PipelinePlan,
        topology: Topology,
        options: CoordinatorOptions,
        folders: CheckpointFolders,
        runner: TaskRunner,
        publisher: Publishes,
        host: CoordinatorHost,
        *,
        history: HistoryLog,
        may_publish: Callable[[], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.plan = plan
        self._topology = topology
        self._options = options
        self.folders = folders
        self._runner = runner
        self._output = OwnedOutput(publisher, may_publish)
        self._host = host
        self._log = AttemptLog(history, MetricsLog([stage.name for stage in plan.stages]), runner)
        self._clock = clock or Clock()
        self._started: Attempts | None = None
        self._properties: dict[str, str] = {
            PIPELINE_PROPERTY: plan.pipeline,
            **{output_property(output.name): output.sink.location for output in plan.outputs},
            LAYOUT_PROPERTY: Layout.of(plan).to_json(),
        }
        #: True if a savepoint ended the pipeline.
        self.saved = False
        #: True if a batch was abandoned between two attempts, because the pipeline stops.
        self.stopped = False
        self.turns = Turns(plan.run)
        # Numbers of batches left out between those of this start.
        self._left_out: deque[range] = deque(maxlen=1000)

    def start(
        self,
        *,
        checkpoint_id: int | None = None,
        verify: bool = True,
        compare: RunCompare = run_here,
    ) -> None:
        """Restore the latest checkpoint, or begin with an empty one (R26).

        It raises the errors of `RegionalWriter.start` that concern the checkpoint.

        - `checkpoint_id`: go back to this retained checkpoint; newer ones and their output are
          dropped.
        - `verify`: first read everything that the checkpoint needs (R75).
        - `compare`: opens operators, to compare their state with the checkpoint's (R78).
        """
        retained, changed = open_folder(
            self.folders, self.plan, checkpoint_id=checkpoint_id, verify=verify, compare=compare
        )
        latest = retained[-1] if retained else None
        if latest is not None:
            before = latest.properties
            self._properties |= {key: before[key] for key in RESTORED_PROPERTIES if key in before}
        if (identity := self.folders.read_identity()) is not None:
            self._properties[IDENTITY_PROPERTY] = identity
        self._runner.restore(retained)
        machine = CheckpointCoordinator(
            self._options,
            self._topology,
            restored=latest,
            retained=retained,
            last_id=max(latest.id if latest is not None else 0, self.folders.read_last_attempt()),
            changed=changed,
            due_of=first_due if any(stage.on_timers for stage in self.plan.stages) else None,
        )
        self._started = Attempts(
            machine,
            run=self.plan.run,
            folders=self.folders,
            runner=self._runner,
            output=self._output,
            host=self._host,
            clock=self._clock,
            log=self._log,
            properties=self._properties,
            on_retire=any(stage.on_retire for stage in self.plan.stages),
        )
        self._started.start()

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        return self._attempts.latest

    def history(self, *, last: int | None = None) -> Sequence[HistoryRecord]:
        """Return the attempts that are kept, of all runs, oldest first."""
        return self._log.history.records(last=last)

    def metrics(self) -> PipelineMetrics:
        """Return the figures of operators since this start of the pipeline."""
        return self._log.metrics.snapshot(self.latest, skipped_splits=self._host.skipped_splits())

    def run_batch(self, batch_id: int | None, source: object, *, global_only: bool = False) -> None:
        """Run one batch to a completed checkpoint, in as many attempts as necessary.

        A completed batch runs no operator (R74): the process may have ended between the checkpoint
        and the source's own log. Without a number it is the next batch. `source` has its rows, in
        the runner's form. With `global_only` no region may fail, because rows of different regions
        met.

        Raises a StoppedError if `interrupt` was called before an attempt completed, a ValueError if
        a later batch overtook this one, which no checkpoint would have, and a RegionalQueryError if
        the coordinator ended the query. Completed checkpoints are kept.
        """
        with self.turn("run_batch()"):
            latest = self.latest.batch_id
            number = latest + 1 if batch_id is None else batch_id
            if number <= latest and any(number in left_out for left_out in self._left_out):
                raise ValueError(
                    f"batch {number} comes behind batch {latest}, and was not run before it: give "
                    "batches in the order of their numbers, or without batch_id"
                )
            try:
                self._attempts.until_done(number, "checkpoint", source, global_only=global_only)
            except StoppedError:
                self.stopped = True
                raise
            if number > latest + 1:
                self._left_out.append(range(latest + 1, number))

    def finish(self) -> None:
        """Replay pending rows until a global checkpoint holds everything (R25)."""
        with self.turns.turn("finish()"):
            # An interrupted batch is run again after a restart.
            self._clock.resume()
            if self._owes:
                self._attempts.until_done(self.latest.batch_id, "final", None)

    def interrupt(self) -> None:
        """End a pause between attempts, and further attempts, but not the one under way."""
        self._clock.interrupt()

    def close(self, opened: ExitStack) -> None:
        """Let the call under way end, refuse others, and close `opened`."""
        self.turns.close(opened, hurry=self.interrupt)

    def end_of_data(self) -> None:
        """Flush every region, and hold all as finished in a global checkpoint (R25, R61).

        Raises a RegionalQueryError if a region keeps failing. Then no region is finished.
        """
        with self.turn("end_of_data()"):
            self._attempts.require_intact()
            machine = self._attempts.machine
            # Regions that put out rows when they were retired are in no later checkpoint.
            last = sum(is_retired(entry) for entry in machine.entries.changed.values())
            running = len(machine.entries) - last - len(machine.resting)
            if len(finished_regions(self.latest)) < running:
                self._attempts.until_done(self.latest.batch_id, "final", None, end_of_data=True)
                self._attempts.close_operators()

    def stop_with_savepoint(self, path: AnyPath, *, max_file_bytes: int) -> None:
        """Write a savepoint, after which no batch runs; see `RegionalQuery.stop_with_savepoint`."""
        self.turns.require("stop_with_savepoint()")
        require_free(path)
        with self.turns.turn("stop_with_savepoint()"):
            self._attempts.require_intact()
            # A final checkpoint drains, too. One of the kind "savepoint" would stay in the
            # pipeline's folder for ever.
            attempts, batch = self._attempts, self.latest.batch_id
            if self._owes and (
                given_up := attempts.until_done(batch, "final", None, optional=True)
            ):
                cause = attempts.machine.history[-1].cause
                raise SavepointError(path, given_up.attempts, cause)
            write_image(
                self.folders,
                self.latest,
                path,
                kind="savepoint",
                pipeline=self.plan.pipeline,
                properties=self._properties,
                max_file_bytes=max_file_bytes,
            )
            self.saved = True

    def replay(self, region: str) -> None:
        """Let the next attempt run a region in quarantine."""
        self._attempts.machine.replay(region)

    @property
    def _owes(self) -> bool:
        """True if there are pending rows outside of quarantine."""
        machine, resting = self._attempts.machine, self._attempts.machine.resting
        return any(
            entry.fallbacks or entry.in_flight_bytes
            for region, entry in machine.entries.notable.items()
            if region not in resting
        )

    @property
    def _attempts(self) -> Attempts:
        if self._started is None:
            raise RuntimeError("the pipeline was not started")
        return self._started

    @contextmanager
    def turn(self, call: str) -> Iterator[None]:
        """Wait until no other call is under way; none may follow a savepoint."""
        self._require_unsaved()  # a better error than that of a closed pipeline
        with self.turns.turn(call):
            self._require_unsaved()
            yield

    def _require_unsaved(self) -> None:
        if self.saved:
            raise RegionalQueryError("the pipeline was stopped with a savepoint")
