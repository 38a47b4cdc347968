"""A region task in a Python worker of a Spark executor."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast._core import ManagerClient, executor_socket
from holdfast.regions.protocol.answers import Answer, encode
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.runners.spark.staging import Staging
from holdfast.regions.task.region_task import OperatorCache, RegionTask

if TYPE_CHECKING:
    import pyarrow as pa

# A worker process serves one task after the other, also of several pipelines.
_CACHES: dict[str, OperatorCache] = {}

# By pipeline, the run whose mounted folders this process has seen.
_SEEN: dict[str, str] = {}


def run_region_task(
    plan: PipelinePlan,
    order: AttemptOrder,
    batches: Iterable[pa.RecordBatch],
    *,
    folder: str,
    max_file_bytes: int,
    owed: bool,
) -> Iterator[pa.RecordBatch]:
    """Run a region task in this worker.

    Parameters
    ----------
    plan : PipelinePlan
        The pipeline.
    order : AttemptOrder
        The attempt.
    batches : iterable of pyarrow.RecordBatch
        Rows of the partition; with `owed`, one column with names of regions.
    folder : str
        Folder of the merged files.
    max_file_bytes : int
        Size in bytes at which a merged file is sealed.
    owed : bool
        `batches` names regions that replay what they owe, without new rows.

    Yields
    ------
    pyarrow.RecordBatch
        One row: number of the partition, and of the regions that answered.
    """
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a region task runs in a Spark task only")
    _require_mounted(plan)
    partition = context.partitionId()
    cache = _CACHES.setdefault(plan.pipeline, OperatorCache())

    def connect() -> ManagerClient:
        return ManagerClient(
            executor_socket(), pipeline=plan.pipeline, folder=folder, max_file_bytes=max_file_bytes
        )

    with connect() as client, Staging(connect) as staging:

        def tell(answers: Sequence[Answer]) -> None:
            for message in encode(plan.run, answers):
                client.send(message)

        task = RegionTask(
            plan,
            order,
            partition=partition,
            store=client,
            tell=tell,
            cache=cache,
            output=staging,
        )
        if owed:
            names = [name for batch in batches for name in batch.column(0).to_pylist()]
            answered = task.run((), names)
        else:
            answered = task.run(batches)
    yield pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition], pa.int32()),
            "regions": pa.array([answered], pa.int32()),
        }
    )


def _require_mounted(plan: PipelinePlan) -> None:
    """Check once in a run that this machine sees the driver's folders.

    Raises
    ------
    FileNotFoundError
        If it does not: state or rows would be missing from a checkpoint that has them.
    """
    if _SEEN.get(plan.pipeline) == plan.run:
        return
    for of, mark in plan.marks.items():
        if not mark.exists():
            raise FileNotFoundError(
                errno.ENOENT,
                f"this executor does not see the driver's {of} folder {mark.parent}. Use a folder "
                "that is mounted on the driver and on all executors, or one on a file system that "
                "Spark reaches, such as hdfs: or s3a:. It has no",
                str(mark),
            )
    _SEEN[plan.pipeline] = plan.run


def close_kept_operators(
    pipeline: str, order: ClosingOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Notify and close the operators that this worker keeps.

    Parameters
    ----------
    pipeline : str
        Name of the pipeline.
    order : ClosingOrder
        What the operators are to hear.
    batches : iterable of pyarrow.RecordBatch
        Ignored. The driver sends them because Spark starts no task without rows.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Empty.
    """
    for _ in batches:
        pass
    cache = _CACHES.get(pipeline)
    if cache is not None:
        cache.close(order)
    return iter(())
