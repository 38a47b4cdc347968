"""Starting a regional pipeline, in this process or in Structured Streaming."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from holdfast._checks import optional_int, require_bool, require_int
from holdfast._sessions import require_classic_session
from holdfast.files import modes
from holdfast.files.paths import any_folder, local_folder, require_nameable
from holdfast.queries.logs import OFFSETS_FOLDER
from holdfast.regions.api.chain import Chain, ChosenOutput
from holdfast.regions.api.options import PipelineOptions
from holdfast.regions.checkpoint.begin_from import Restore, begin_from, finish_claim
from holdfast.regions.checkpoint.claim import held
from holdfast.regions.checkpoint.declared import RunCompare, run_here
from holdfast.regions.checkpoint.history import HistoryLog
from holdfast.regions.checkpoint.layout import Layout
from holdfast.regions.checkpoint.ownership import own_folders
from holdfast.regions.checkpoint.read import choose
from holdfast.regions.checkpoint.skips import skipped_rows
from holdfast.regions.checkpoint.stream_log import settle_stream
from holdfast.regions.coordinator import Topology
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.driver.task_runner import TaskRunner
from holdfast.regions.files.folders import SEGMENTS_FOLDER, CheckpointFolders, output_property
from holdfast.regions.protocol.orders import OutputPlan, PipelinePlan, TaskOptions
from holdfast.regions.runners.local import LocalQuery, LocalRunner
from holdfast.regions.runners.spark.plan import planned_exchanges
from holdfast.regions.runners.spark.preflight import (
    hadoop_umask,
    require_application,
    require_source_of_splits,
    require_trigger,
)
from holdfast.regions.runners.spark.query import RegionalQuery
from holdfast.regions.runners.spark.runner import SparkRunner, run_on_a_worker
from holdfast.regions.sinks import local_delivery, spark_delivery
from holdfast.regions.sinks.destination import Delivery, Destination, Output
from holdfast.regions.sinks.owner import OutputOwner
from holdfast.regions.sinks.published import PublishedRecord
from holdfast.regions.sinks.publisher import Publishers
from holdfast.regions.splits import FileSplits, SplitEnumerator
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.task import array_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Runner = TypeVar("Runner", bound=TaskRunner)


class RegionalWriter:
    """A pipeline with a sink, ready to start: the result of ``write_...`` and ``foreach_batch``."""

    def __init__(self, chain: Chain, output: Destination) -> None:
        self._chain = chain
        schema = chain.operators[-1].schema if chain.operators else pa.schema([])
        self._outputs = (ChosenOutput("", schema, output), *chain.sides)

    def open_local(
        self,
        checkpoint: str | Path,
        *,
        restore: Restore | None = None,
        checkpoint_id: int | None = None,
        tasks: int = 2,
        gpu: bool = False,
        **options: Any,
    ) -> LocalQuery:
        """Run the pipeline in this process, without Spark.

        Parameters
        ----------
        checkpoint : str or Path
            Folder of the checkpoints.
        restore : Restore, optional
            Begin a new checkpoint folder from a savepoint or another folder, see
            `holdfast.restore`.
        checkpoint_id : int, optional
            Go back to this retained checkpoint of the folder. Newer checkpoints are deleted and
            their output is withdrawn; the later batches have to be given again. Leave it out of
            later starts.
        tasks : int, default 2
            Partitions that run at the same time.
        gpu : bool, default False
            Arrays are CuPy's instead of NumPy's. The device keeps room for a tenth of each array
            above 1 MiB. It copies an array of which more changes while its snapshot is written. See
            `holdfast.regions.state.arrays.device_arrays` for a device without the room.
        **options
            See `holdfast.regions.api.options.PipelineOptions`.

        Raises
        ------
        DamagedCheckpointError, FileNotFoundError, FileExistsError, FolderInUseError
            In the same cases as `start`.
        LayoutChangedError, ValueError
            In the same cases as `start`.
        RuntimeError
            With `gpu`, if there is no CuPy, or it finds no CUDA device.
        """
        settings = PipelineOptions.given(options)
        gpu, tasks = require_bool("gpu", gpu), require_int("tasks", tasks, at_least=1)
        checkpoint_id = optional_int("checkpoint_id", checkpoint_id, at_least=0)
        if gpu and (lacking := array_modules.missing_gpu()):
            raise RuntimeError(f"gpu=True: {lacking}")
        if settings.bounded:
            raise ValueError(
                "bounded=True is not allowed without Spark: call end_of_data() on the LocalQuery "
                "when all rows were given"
            )
        root = local_folder(checkpoint)
        folders = CheckpointFolders(root)
        if named := " and ".join(filter(None, (it.destination.spark_only for it in self._outputs))):
            raise ValueError(
                f"{named} is not allowed without Spark, which alone reaches this file system: give "
                "it a pathlib.Path, or use start()"
            )
        enumerator = self._enumerator()
        max_file_bytes = settings.max_file_bytes
        with ExitStack() as opened:
            driver, runner = self._started(
                folders,
                settings,
                opened,
                runner_of=partial(
                    LocalRunner,
                    segments=root / SEGMENTS_FOLDER,
                    tasks=tasks,
                    max_file_bytes=max_file_bytes,
                ),
                compare=run_here,
                delivery=local_delivery,
                enumerator=enumerator,
                restore=restore,
                checkpoint_id=checkpoint_id,
                gpu=gpu,
            )
            return LocalQuery(
                driver, runner, max_file_bytes=max_file_bytes, enumerator=enumerator, opened=opened
            )

    def start(
        self,
        checkpoint: str | Path,
        *,
        restore: Restore | None = None,
        checkpoint_id: int | None = None,
        trigger: Mapping[str, Any] | None = None,
        gpu: bool = False,
        **options: Any,
    ) -> RegionalQuery:
        """Start the pipeline in Structured Streaming.

        Parameters
        ----------
        checkpoint : str or Path
            Folder of the checkpoints. A `Path` is on a file system that is mounted on driver and
            executors. A string is a URI that Spark reaches, such as ``hdfs:`` or ``s3a:``, or a
            path of Spark's default file system (``fs.defaultFS``).
        restore : Restore, optional
            Begin a new checkpoint folder from a savepoint or another folder, see
            `holdfast.restore`.
        checkpoint_id : int, optional
            Go back to this retained checkpoint of the folder. Newer checkpoints are deleted and
            their output is withdrawn; the source reads the later rows again. Leave it out of later
            starts.
        trigger : mapping, optional
            Keyword arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``
            or ``{"processingTime": "10 seconds"}``.
        gpu : bool, default False
            Arrays are CuPy's instead of NumPy's, see `open_local`.
        **options
            See `holdfast.regions.api.options.PipelineOptions`.

        Raises
        ------
        DamagedCheckpointError
            If the checkpoint, or a file that it needs, is damaged; it names an intact older one.
        FileNotFoundError, FileExistsError
            If there is no such checkpoint, or a folder that must be new is in use, or the output
            folder belongs to another pipeline.
        FolderInUseError
            If a pipeline runs in one of the folders.
        LayoutChangedError
            If the checkpoint belongs to a pipeline with another layout or other declared state.
        ValueError
            If the checkpoint belongs to a pipeline with another name, an option has a value that is
            not allowed, or the pipeline was made without a DataFrame.
        TypeError
            If there is no such option.
        NotImplementedError
            If the session is one of Spark Connect.
        RuntimeError
            If the application does not run the Holdfast plugin, see `holdfast.configure`; if Python
            workers cannot import what they need, which with `gpu` is CuPy with a CUDA device; or if
            a query of this name runs.
        """
        settings = PipelineOptions.given(options)
        gpu = require_bool("gpu", gpu)
        checkpoint_id = optional_int("checkpoint_id", checkpoint_id, at_least=0)
        require_trigger(trigger or {})
        if settings.bounded:
            _require_end(trigger)
        with ExitStack() as opened:
            enumerator = self._enumerator()
            source = self._rows(enumerator, opened)
            session = source.sparkSession
            require_application(session, settings.name, gpu=gpu)
            modes.follow(hadoop_umask(session))
            for chosen in self._outputs:
                chosen.destination.require_place()
            if settings.max_consecutive_failures and (found := planned_exchanges(source)):
                warnings.warn(
                    f"rows of different regions meet in {found[0].description}, so the pipeline "
                    "runs with max_consecutive_failures=0: no checkpoint completes without every "
                    "region",
                    stacklevel=2,
                )
                settings = replace(settings, max_consecutive_failures=0)
            folders = CheckpointFolders(any_folder(checkpoint))
            require_nameable(folders.root, session.sparkContext._jvm)
            max_file_bytes = settings.max_file_bytes
            driver, _ = self._started(
                folders,
                settings,
                opened,
                runner_of=partial(
                    SparkRunner, session, folders=folders, max_file_bytes=max_file_bytes
                ),
                compare=partial(run_on_a_worker, session),
                delivery=partial(spark_delivery, session),
                enumerator=enumerator,
                restore=restore,
                checkpoint_id=checkpoint_id,
                gpu=gpu,
            )
            settle_stream(folders.stream, driver.latest.batch_id)
            return RegionalQuery(
                source,
                driver,
                trigger or {},
                regional=settings.max_consecutive_failures > 0,
                bounded=settings.bounded,
                max_file_bytes=max_file_bytes,
                opened=opened,
            )

    def _started(
        self,
        folders: CheckpointFolders,
        settings: PipelineOptions,
        opened: ExitStack,
        *,
        runner_of: Callable[[PipelinePlan], Runner],
        compare: RunCompare,
        delivery: Delivery,
        enumerator: SplitEnumerator | None,
        restore: Restore | None,
        checkpoint_id: int | None,
        gpu: bool,
    ) -> tuple[PipelineDriver, Runner]:
        """Return the driver, with its checkpoint restored; `opened` takes the objects to close."""
        _require_own_folder(folders)
        self._require_apart()
        outputs = [
            chosen.destination.begin(chosen.name, folders, delivery, opened)
            for chosen in self._outputs
        ]
        of_source = {} if enumerator is None else {SOURCE_OPERATOR: enumerator}
        host = CoordinatorHost(
            {**of_source, **self._chain.coordinators},
            timeout_s=settings.region_timeout.total_seconds(),
            operators={one.name: type(one.given) for one in self._chain.operators},
        )
        opened.callback(host.close)
        tasks = settings.tasks(gpu=gpu, gather_ms=folders.gather_ms)
        plan, topology = self._prepared(settings, outputs, host, tasks)
        with ExitStack() as beginning:
            if restore is not None:
                if restore.mode == "claim":
                    beginning.enter_context(held(restore.path))
                begin_from(
                    restore,
                    plan,
                    outputs,
                    folders,
                    max_file_bytes=settings.max_file_bytes,
                    compare=compare,
                )
            if checkpoint_id is not None:
                ids = folders.ids()
                choose(ids, checkpoint_id, folders.root)
                self._warn_of_rows_again(checkpoint_id, [id for id in ids if id > checkpoint_id])
            owner, folders = own_folders(folders, plan.pipeline, outputs, opened)
            if restore is not None:
                finish_claim(restore, folders)
        owned = {output.name: output.ownership for output in outputs if output.ownership}
        marks = {
            "checkpoint": folders.identity.local,
            **{output_property(name): place.mounted_file for name, place in owned.items()},
        }
        plan = replace(
            plan,
            marks={of: at for of, at in marks.items() if at is not None},
            skipped=skipped_rows(folders),
        )
        runner = runner_of(plan)
        opened.callback(runner.close)
        history = HistoryLog(folders, run=plan.run)
        opened.callback(history.close)
        published = PublishedRecord(folders)
        opened.callback(published.close)
        driver = PipelineDriver(
            plan,
            topology,
            settings.coordinator(dropped_together=folders.dropped_together),
            folders,
            runner,
            Publishers({output.name: output.publisher for output in outputs}, published),
            host,
            history=history,
            may_publish=partial(_require_still, outputs, owner),
        )
        driver.start(checkpoint_id=checkpoint_id, verify=settings.verify_state, compare=compare)
        return driver, runner

    def _require_apart(self) -> None:
        """Check that no two outputs of the pipeline write to the same place."""
        places: dict[str, str] = {}
        for chosen in self._outputs:
            of = f"side output {chosen.name!r}" if chosen.name else "the main output"
            if (place := chosen.destination.place) and (
                other := places.setdefault(place, of)
            ) != of:
                raise ValueError(
                    f"{other} and {of} both write to {place}: give each a place of its own"
                )

    def _enumerator(self) -> SplitEnumerator | None:
        """Return the coordinator of the source, if it has one."""
        source = self._chain.source
        return source.enumerator() if isinstance(source, FileSplits) else None

    def _rows(self, enumerator: SplitEnumerator | None, opened: ExitStack) -> DataFrame:
        """Return the rows that Spark reads."""
        source = self._chain.source
        if source is None:
            raise ValueError(
                "the pipeline has no DataFrame: begin it with holdfast.regional(df, ...)"
            )
        if not isinstance(source, FileSplits) or enumerator is None:
            return source
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        try:
            session = SparkSession.active()
        except PySparkException as e:
            raise ValueError(
                "there is no SparkSession to start the pipeline in: create one first"
            ) from e
        require_classic_session(session)
        require_source_of_splits()
        # It imports parts of PySpark that not every version has.
        from holdfast.regions.runners.spark.split_stream import SplitStream

        stream = SplitStream(enumerator)
        opened.callback(stream.close)
        return stream.rows(session, source.region_names)

    def _warn_of_rows_again(self, checkpoint: int, given_up: Sequence[int]) -> None:
        """Warn if output of abandoned checkpoints cannot be withdrawn."""
        stays = " and ".join(filter(None, (chosen.destination.stays for chosen in self._outputs)))
        if given_up and stays:
            warnings.warn(
                f"going back to checkpoint {checkpoint} gives up {len(given_up)} newer ones, and "
                f"{stays} cannot be taken back: rows since then come again",
                stacklevel=4,
            )

    def _prepared(
        self,
        settings: PipelineOptions,
        outputs: Sequence[Output],
        host: CoordinatorHost,
        tasks: TaskOptions,
    ) -> tuple[PipelinePlan, Topology]:
        operators = self._chain.operators
        unsafe = [stage.name for stage in operators if not stage.given.region_safe]
        if settings.max_consecutive_failures and unsafe:
            raise ValueError(
                f"operators {', '.join(unsafe)} do not declare region_safe: set "
                "`region_safe = True` on the class if its state depends on nothing but the rows of "
                "its region, or start with max_consecutive_failures=0, which lets no checkpoint "
                "complete without every region"
            )
        if settings.retire_idle is not None and unsafe:
            raise ValueError(
                f"operators {', '.join(unsafe)} do not declare region_safe, so other regions may "
                "need what a region that is retired has: set `region_safe = True` on the class, or "
                "start without retire_idle"
            )
        if not operators:
            raise ValueError("the pipeline has no operator: call apply(...) first")
        coordinators = host.supports_fallback()
        if settings.quarantine_after is not None and coordinators:
            named = ("FileSplits" if one == SOURCE_OPERATOR else repr(one) for one in coordinators)
            raise ValueError(
                f"quarantine_after={settings.quarantine_after} is not allowed with "
                f"{' and '.join(named)}, which has a coordinator: its events cannot wait for a "
                "region in quarantine"
            )
        for chosen in self._outputs:
            chosen.destination.require_fit(chosen.schema)
        plans = [
            OutputPlan(chosen.name, chosen.schema, output.sink)
            for chosen, output in zip(self._outputs, outputs, strict=True)
        ]
        plan = self._chain.plan(settings.name, plans, tasks)
        layout = Layout.of(plan)
        instances = [name for stage in layout.stages for name in stage.instances]
        topology = Topology(
            pipeline=settings.name,
            operators=tuple(dict.fromkeys((*coordinators, *instances))),
            coordinators=coordinators,
            fingerprint=layout.fingerprint,
            watermark_idle_ms=next(
                (ms for stage in plan.stages if (ms := stage.watermark_idle_ms) is not None), None
            ),
        )
        return plan, topology


def _require_still(outputs: Sequence[Output], owner: OutputOwner) -> None:
    """Check that no other pipeline took over an output."""
    for output in outputs:
        if output.ownership is not None:
            output.ownership.require_still(owner)


def _require_own_folder(folders: CheckpointFolders) -> None:
    """Check that a checkpoint folder is no file, and does not belong to an ordinary query."""
    root = folders.root
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"the checkpoint folder {root} is a file: name a folder")
    if folders.metadata.is_file() or (root / OFFSETS_FOLDER).is_dir():
        raise FileExistsError(
            f"{root} is the checkpoint folder of an ordinary streaming query: give the regional "
            "pipeline a folder of its own"
        )


def _require_end(trigger: Mapping[str, Any] | None) -> None:
    """Check that the query ends by itself after it has read everything."""
    if not (trigger or {}).get("availableNow"):
        found = f"trigger={dict(trigger)!r}" if trigger else "no trigger"
        raise ValueError(
            f"bounded=True is not allowed with {found}: only a query with the trigger "
            "{'availableNow': True} ends when it has read everything"
        )
