"""A region task in a Python worker of a Spark executor."""

from __future__ import annotations

import errno
import os
import queue
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

import pyarrow as pa

from holdfast._core import ManagerClient
from holdfast.regions.protocol.answers import Answer, encode
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.sinks.sink import OutputStore
from holdfast.regions.task.partition.cache import OperatorCache
from holdfast.regions.task.partition.region_task import RegionTask

# A worker process serves tasks of several pipelines, one after the other.
_CACHES: dict[str, OperatorCache] = {}

# Addresses of this process's connections to its executor.
_ADDRESSES: set[str] = set()

# By pipeline, the run whose mounted folders this process has seen.
_SEEN: dict[str, str] = {}


def run_region_task(
    broadcast: Any,
    order: AttemptOrder,
    batches: Iterable[pa.RecordBatch],
    *,
    folder: str,
    max_file_bytes: int,
    owed: bool,
) -> Iterator[pa.RecordBatch]:
    """Run a region task in this worker.

    `broadcast` has the `PipelinePlan`. `batches` are the rows of the partition; if they are `owed`,
    one column names regions to replay without new rows. Yields one row: number of the partition,
    and of the regions that answered.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a region task runs in a Spark task only")
    plan: PipelinePlan = broadcast.value
    _require_mounted(plan)
    partition = context.partitionId()
    cache = _CACHES.setdefault(plan.pipeline, OperatorCache())

    def connect() -> ManagerClient:
        client = ManagerClient.of_executor(
            pipeline=plan.pipeline, folder=folder, max_file_bytes=max_file_bytes
        )
        _ADDRESSES.add(str(client.socket))
        return client

    goes_on = False
    try:
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
                shares=context.attemptNumber() == 0,
            )
            if owed:
                names = [name for batch in batches for name in batch.column(0).to_pylist()]
                answered = task.run((), names)
            else:
                answered = task.run(batches)
        goes_on = "SPARK_REUSE_WORKER" in os.environ
    finally:
        if not goes_on:
            # Spark ends a worker whose task failed, or each one after its task.
            for kept in _CACHES.values():
                kept.close_all(plan.options.region_timeout_ms / 1000)
    counts = {"partition": partition, "regions": answered}
    yield pa.record_batch({name: pa.array([n], pa.int32()) for name, n in counts.items()})


class Staging(OutputStore):
    """Stages output through the executor, with a connection for each file that is staged at a time.

    A file mostly waits for its file system, and a connection does one thing after the other.
    """

    def __init__(self, connect: Callable[[], ManagerClient]) -> None:
        self._connect = connect
        self._idle: queue.SimpleQueue[ManagerClient] = queue.SimpleQueue()
        self._opened = ExitStack()

    def stage(self, local_path: str, staged: str, target: str) -> None:
        """See `OutputStore`."""
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = self._opened.enter_context(self._connect())
        try:
            client.stage(local_path, staged, target)
        finally:
            self._idle.put(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()


def _leave_connections() -> None:
    """Close connections in a process that an operator forked: the executor would keep them."""
    for descriptor in map(int, os.listdir("/dev/fd")) if _ADDRESSES else ():
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            continue  # not a socket
        with suppress(OSError):
            peer = found.getpeername()
            # An abstract socket's name begins with a zero; a client shows "@" for it.
            if isinstance(peer, bytes) and os.fsdecode(b"@" + peer[1:]) in _ADDRESSES:
                # Not closed: the client would later close another file with this number.
                os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor, inheritable=False)
        found.detach()


os.register_at_fork(after_in_child=_leave_connections)


def _require_mounted(plan: PipelinePlan) -> None:
    """Check once in a run that this machine sees the driver's folders, so that no data is lost."""
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
    """Notify and close this worker's operators; ignores `batches`: Spark needs rows for a task."""
    deque(batches, maxlen=0)
    if (cache := _CACHES.get(pipeline)) is not None:
        cache.close(order)
    return iter(())
