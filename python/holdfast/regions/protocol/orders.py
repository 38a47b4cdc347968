"""What the driver tells the region tasks of an attempt."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.regions.coordinator import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from holdfast.regions.sinks import TwoPhaseSink
    from holdfast.regions.splits import SplitReader


DEFAULT_CAPACITY_BATCHES: Final = 4
DEFAULT_THREADS: Final = 4
DEFAULT_SLICE_ROWS: Final = 16_384


def code_of(given: object) -> bytes:
    """Encode what a user wrote for its way to workers, which run this very version of everything.

    Raises
    ------
    TypeError
        If it holds something that cannot travel, such as a connection.
    """
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
        The operator, before it was opened, as cloudpickle has it. Every instance is made from it.
    schema : pyarrow.Schema
        What it puts out.
    parallelism : int, default 1
        Instances in each region.
    route_by : tuple of str
        Columns by whose values rows go to one of several instances.
    """

    name: str
    operator: bytes
    schema: pa.Schema
    parallelism: int = 1
    route_by: tuple[str, ...] = ()

    def instance_name(self, instance: int) -> str:
        """Name under which the state of an instance is kept."""
        return instance_name(self.name, self.parallelism, instance)


def instance_name(operator: str, parallelism: int, instance: int) -> str:
    """Return the name under which the state of an operator's instance is kept."""
    return operator if parallelism == 1 else f"{operator}#{instance}"


@dataclass(frozen=True)
class TaskOptions:
    """How region tasks work.

    Parameters
    ----------
    aligned_timeout_ms : int or None
        Milliseconds after the start of an attempt at which its barrier overtakes rows that are
        still queued; None: never (R51).
    region_timeout_ms : int
        Milliseconds after the start of an attempt at which a region that has not answered counts
        as failed.
    task_grace_ms : int
        Milliseconds after that at which a task is ended that did not even decline.
    max_in_flight_bytes : int
        Bound on the in-flight data of a region beyond which its barrier overtakes nothing (R58).
    capacity_batches : int
        Batches that a channel between two operators holds.
    slice_rows : int
        Rows of the largest batch an operator is given: a barrier waits for the batch at hand.
    threads : int
        The most regions of one task that make progress at the same time.
    gather_ms : int
        Milliseconds for which answers of a task's regions are gathered before they are made
        durable, as long as others are to come. On object stores each time makes an object.
    gpu : bool
        Arrays of operators are CuPy's.
    """

    aligned_timeout_ms: int | None = None
    region_timeout_ms: int = 600_000
    task_grace_ms: int = 5_000
    max_in_flight_bytes: int = 256 * 1024 * 1024
    capacity_batches: int = DEFAULT_CAPACITY_BATCHES
    slice_rows: int = DEFAULT_SLICE_ROWS
    threads: int = DEFAULT_THREADS
    gather_ms: int = 0
    gpu: bool = False


@dataclass(frozen=True)
class PipelinePlan:
    """What does not change while a pipeline runs.

    Parameters
    ----------
    pipeline : str
        Its name, part of every owner.
    run : str
        Unique for this start of the pipeline: what a worker cached for another one is not used.
    region_by : tuple of str
        Columns that identify a row's region.
    stages : tuple of StagePlan
        The operators, first to last; at least one.
    sink : TwoPhaseSink
        Where the last operator's rows go.
    options : TaskOptions
        How tasks work.
    splits : SplitReader, optional
        Reads what events hand to regions: the rows that the source itself gives a task only say
        which regions it runs. A region that fails stores no rows then; its splits are handed out
        again.
    marks : mapping of str to Path, optional
        Files that the driver has put into its folders, as far as these are mounted, by what is in
        the folder: where one is not seen, state or output would go to another folder of that name.
    """

    pipeline: str
    run: str
    region_by: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    sink: TwoPhaseSink
    options: TaskOptions = field(default_factory=TaskOptions)
    splits: SplitReader | None = None
    marks: Mapping[str, Path] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Encode the sink, which may be of a class that workers do not find."""
        return {**self.__dict__, "sink": code_of(self.sink)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        sink = pickle.loads(state["sink"])  # noqa: S301
        self.__dict__.update({**state, "sink": sink})

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of what the sink is given."""
        return self.stages[-1].schema


@dataclass(frozen=True)
class EndedAttempt:
    """How an earlier attempt ended, for operators that want to know.

    Parameters
    ----------
    attempt : int
        Its checkpoint id.
    outcome : {"global", "regional", "aborted"}
        How it ended.
    fallbacks : Mapping[str, int]
        Of a regional one: failed region to the origin of its state.
    """

    attempt: int
    outcome: Outcome
    fallbacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptOrder:
    """What a region task does for one attempt.

    Parameters
    ----------
    attempt : int
        Checkpoint id.
    created_ms : int
        When the coordinator created the barrier, milliseconds since the epoch.
    base : bytes
        Metadata of the latest completed checkpoint, encoded.
    drain : bool
        The checkpoint must hold no in-flight data: no barrier overtakes anything (R25).
    end_of_data : bool
        No row will ever follow: behind what the regions replay comes the end of data (R61).
    global_required : bool
        A decline aborts the attempt, and the rows come again with the next one: a region that
        fails stores none.
    restart : frozenset of str
        Regions that must not continue a cached operator.
    answered : frozenset of str
        Regions that have answered already; their rows are skipped.
    lost : frozenset of int, or None
        Partitions whose task was lost: no operator runs in them, and every region without an answer
        stores its rows and declines, with `lost_cause`. None: all partitions.
    lost_cause : str
        Why.
    ended : tuple of EndedAttempt
        Attempts that ended since the last order.
    events : Mapping[str, tuple of bytes]
        What the source's coordinator sent to regions before its snapshot (R31).
    """

    attempt: int
    created_ms: int
    base: bytes
    drain: bool = False
    end_of_data: bool = False
    global_required: bool = False
    restart: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    lost: frozenset[int] | None = frozenset()
    lost_cause: str = ""
    ended: tuple[EndedAttempt, ...] = ()
    events: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    def only_stores(self, partition: int) -> bool:
        """Say whether no operator runs in a partition."""
        return self.lost is None or partition in self.lost


@dataclass(frozen=True)
class ClosingOrder:
    """What a process does with the operators that it keeps once all regions have finished (R61).

    Parameters
    ----------
    run : str
        Start of the pipeline that they belong to.
    base : bytes
        Metadata of the checkpoint that holds the regions as finished, encoded.
    ended : tuple of EndedAttempt
        Attempts that ended since the last order: that checkpoint's, above all.
    """

    run: str
    base: bytes
    ended: tuple[EndedAttempt, ...]
