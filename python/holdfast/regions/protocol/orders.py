"""Orders of the driver to the region tasks of an attempt."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.regions.coordinator import MAX_IN_FLIGHT_BYTES, Outcome
from holdfast.regions.protocol.template import OperatorTemplate

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from holdfast._core import CheckpointMetadata
    from holdfast.regions.sinks import TwoPhaseSink
    from holdfast.regions.splits import SplitReader


DEFAULT_THREADS: Final = 4
DEFAULT_SLICE_ROWS: Final = 16_384
OWN_THREADS: Final = 32
SHARE_RATIO: Final = 2
SHARE_WAIT_MS: Final = 1000
SHARE_REGIONS: Final = 1024
SHARE_ROWS_BYTES: Final = 32 << 20


def code_of(given: object) -> bytes:
    """Encode a user's object for workers of this version; TypeError if it cannot be pickled."""
    try:
        from pyspark.cloudpickle import dumps
    except ImportError:
        from pickle import dumps
    try:
        code: bytes = dumps(given)
    except Exception as error:
        raise TypeError(
            f"{type(given).__name__} cannot be pickled, as it has to be for its way to workers: "
            f"{error}"
        ) from error
    return code


@dataclass(frozen=True)
class StagePlan:
    """One operator of the pipeline.

    Parameters
    ----------
    name : str
        Unique in the pipeline; state is found by it.
    operator : bytes
        The operator before it was opened, by cloudpickle. Every instance is made from it.
    route_by : tuple of str
        Columns by whose values rows go to one of several instances.
    given : Operator, optional
        The operator itself, in the process of the user.
    coordinated : bool
        The operator has a coordinator, and may send it events.
    on_retire, on_timers : bool
        The operator may put out rows when its region is retired, or have timers.
    has_watermark : bool
        A watermark precedes the operator.
    watermark_idle_ms : int, optional
        The operator is the watermark, which moves in regions without rows for this time.
    """

    name: str
    operator: bytes
    schema: pa.Schema
    parallelism: int = 1
    route_by: tuple[str, ...] = ()
    given: Any = None
    coordinated: bool = False
    on_retire: bool = False
    on_timers: bool = False
    has_watermark: bool = False
    watermark_idle_ms: int | None = None

    def new_operator(self) -> Any:
        """Make an operator that shares nothing mutable with others."""
        if (template := self.template) is not None:
            return template.operator()
        return pickle.loads(self.operator)  # noqa: S301

    @cached_property
    def template(self) -> OperatorTemplate | None:
        """Template that operators are made from; None if only cloudpickle can copy this one."""
        # In the user's process, cloudpickle would give the methods of the class other globals, so
        # the operator itself is copied there.
        given = self.given
        if given is None:
            # The pipeline's own code: from the driver, never from a checkpoint.
            given = pickle.loads(self.operator)  # noqa: S301
        try:
            return OperatorTemplate(given)
        except Exception:
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the objects of this process."""
        return {k: v for k, v in self.__dict__.items() if k != "template"} | {"given": None}

    def instance_name(self, instance: int) -> str:
        """Name under which the state of an instance is kept."""
        return instance_name(self.name, self.parallelism, instance)


def instance_name(operator: str, parallelism: int, instance: int) -> str:
    """Return the name under which the state of an operator's instance is kept."""
    return operator if parallelism == 1 else f"{operator}#{instance}"


@dataclass(frozen=True)
class TaskOptions:
    """Settings of region tasks; `PipelineOptions` explains those that users give.

    Parameters
    ----------
    aligned_timeout_ms, region_timeout_ms : int
        Milliseconds after the start of a task (R51).
    task_grace_ms : int
        Further time for a task that is silent because an operator stopped its whole process. An
        answer is under way for less. Then another task stores the rows of its regions.
    max_in_flight_bytes : int
        In-flight data of a region above which its barrier overtakes nothing (R58).
    capacity_batches : int
        Batches that wait between two operators of a region. More only hold memory: one thread
        computes a region.
    slice_rows : int
        Rows of the largest batch for an operator: a barrier waits for the current batch.
    gather_ms : int
        Time for which a task gathers answers of its regions before it makes them durable, if others
        are expected. On object stores each time makes an object.
    restart_finished : bool
        Rows of a region whose data has ended begin it again (R64).
    umask : int or None
        Umask of files that tasks make on local disks; None: that of their processes.
    own_threads : int
        More regions of a process share threads. Arrow keeps some MiB for each thread that writes.
    share_ratio, share_wait_ms : int
        An acknowledgement waits for others for the task's time so far divided by `share_ratio`, and
        at least `share_wait_ms`: regions with very different times have few files, and a process
        that hangs may die without answers of long ago.
    share_regions : int
        Regions in a file: the driver takes in some while others still run.
    share_rows_bytes : int
        Rows of a region in memory with which it has output of its own.
    bad_row_runs : int
        Runs of a region that may fail while bad rows are searched (R9). A row among 16,384 takes 15
        of them: each one halves the rows in question.
    quarantine_pieces : int
        Small pieces of pending rows in quarantine before some of them are merged (R28).
    """

    aligned_timeout_ms: int | None = None
    region_timeout_ms: int = 600_000
    task_grace_ms: int = 5_000
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES
    capacity_batches: int = 4
    slice_rows: int = DEFAULT_SLICE_ROWS
    threads: int = DEFAULT_THREADS
    gather_ms: int = 0
    gpu: bool = False
    drop_undeclared_state: bool = False
    restart_finished: bool = False
    umask: int | None = None
    own_threads: int = OWN_THREADS
    share_ratio: int = SHARE_RATIO
    share_wait_ms: int = SHARE_WAIT_MS
    share_regions: int = SHARE_REGIONS
    share_rows_bytes: int = SHARE_ROWS_BYTES
    bad_row_runs: int = 48
    quarantine_pieces: int = 32


@dataclass(frozen=True)
class OutputPlan:
    """An output of a pipeline: a side output, or with an empty name the main one."""

    name: str
    schema: pa.Schema
    sink: TwoPhaseSink

    def __getstate__(self) -> dict[str, Any]:
        """Encode the sink, whose class workers may not find."""
        return {**self.__dict__, "sink": code_of(self.sink)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        sink = pickle.loads(state["sink"])  # noqa: S301
        self.__dict__.update({**state, "sink": sink})


@dataclass(frozen=True)
class PipelinePlan:
    """The part of a pipeline that does not change while it runs.

    Parameters
    ----------
    run : str
        Unique for this start of the pipeline: workers use no cached objects of another one.
    outputs : tuple of OutputPlan
        The main one first.
    bad_rows : str
        The side output for rows that operators reject; empty: such rows are errors.
    splits : SplitReader, optional
        Reads the splits that events hand to regions. Then the source's rows only name the regions
        of a task, and a region that fails stores no rows: its splits are handed out again.
    marks : mapping of str to Path, optional
        A file in each mounted folder of the driver, by the use of the folder. A worker that does
        not see the file has another folder of that name, and would write state or output there.
    finds_bad_rows : bool
        A region that fails is repeated without the failing rows, which `bad_rows` takes.
    skipped : mapping, optional
        Ranges of pending rows in dead letters, by region and the checkpoint that stored the rows.
    """

    pipeline: str
    run: str
    region_by: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    outputs: tuple[OutputPlan, ...]
    bad_rows: str = ""
    options: TaskOptions = field(default_factory=TaskOptions)
    splits: SplitReader | None = None
    marks: Mapping[str, Path] = field(default_factory=dict)
    finds_bad_rows: bool = False
    skipped: Mapping[str, Mapping[int, Sequence[tuple[int, int]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class EndedAttempt:
    """End of an earlier attempt, for operators; `fallbacks` are origins of its failed regions."""

    attempt: int
    outcome: Outcome
    fallbacks: Mapping[str, int] = field(default_factory=dict)


class RegionEvent(NamedTuple):
    """An event of the coordinator of `operator` or the source, before the rows of a batch."""

    attempt: int
    operator: str
    event: bytes


@dataclass(frozen=True)
class AttemptOrder:
    """Order to a region task for one attempt.

    Parameters
    ----------
    created_ms : int
        Time at which the coordinator created the barrier, in milliseconds since the epoch by the
        driver's clock. Tasks measure from their own beginning, since their clock may differ.
    base : CheckpointMetadata or bytes
        Metadata of the latest completed checkpoint; encoded for another process.
    drain : bool
        The checkpoint must hold no in-flight data: no barrier overtakes anything (R25).
    end_of_data : bool
        The end of data follows the rows that regions replay (R61).
    global_required : bool
        A decline aborts the attempt. A region that fails stores no rows, since they are replayed.
    restart : frozenset of str
        Regions that must not continue a cached operator.
    retire : frozenset of str
        Regions without rows that are to be retired: their operators put out the last rows (R66).
    rested_ms : mapping of str to int
        Milliseconds by which the watermarks of regions without rows move (R69).
    quarantined : frozenset of str
        Regions that store their rows, and run no operator (R27).
    excused : frozenset of str
        Regions whose decline aborts nothing, so they store their rows in any case.
    answered : frozenset of str
        Regions that have answered already; their rows are skipped.
    lost : frozenset of int, or None
        Partitions whose task was lost; None: all. No operator runs in them, and every region
        without an answer stores its rows and declines, with `lost_cause`.
    events : Mapping[str, tuple of RegionEvent]
        Events of coordinators from before their snapshots that no state of the region reflects, in
        the order of their attempts (R31).
    """

    attempt: int
    created_ms: int
    base: CheckpointMetadata | bytes
    drain: bool = False
    end_of_data: bool = False
    global_required: bool = False
    restart: frozenset[str] = frozenset()
    retire: frozenset[str] = frozenset()
    rested_ms: Mapping[str, int] = field(default_factory=dict)
    quarantined: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    lost: frozenset[int] | None = frozenset()
    lost_cause: str = ""
    ended: tuple[EndedAttempt, ...] = ()
    events: Mapping[str, tuple[RegionEvent, ...]] = field(default_factory=dict)

    def encoded(self) -> AttemptOrder:
        """Return the order for another process, which decodes its base once for all tasks."""
        return replace(self, base=_encoded(self.base))

    def only_stores(self, partition: int) -> bool:
        """Return whether no operator runs in a partition."""
        return self.lost is None or partition in self.lost


@dataclass(frozen=True)
class ClosingOrder:
    """Order to close operators: all regions finished in `base` (R61); `ended` are not told yet."""

    run: str
    base: CheckpointMetadata | bytes
    ended: tuple[EndedAttempt, ...]

    def encoded(self) -> ClosingOrder:
        """Return the order for another process."""
        return replace(self, base=_encoded(self.base))


def _encoded(base: CheckpointMetadata | bytes) -> bytes:
    return base if isinstance(base, bytes) else base.to_bytes()
