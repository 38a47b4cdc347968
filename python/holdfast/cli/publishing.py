"""The batch that a command publishes, through Spark's part of it: io.holdfast.spark.moves.Move."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from holdfast.cli import folders, local_spark
from holdfast.files.paths import AnyPath, absolute
from holdfast.files.printable import printable

T = TypeVar("T")

#: Time between lines about the progress.
_TELL_S: Final = 10


def java_moves(spark: Any) -> Any:
    """Return the package of Spark's part of a command."""
    return spark._jvm.io.holdfast.spark.moves


def read_logs(spark: Any, folder: AnyPath) -> Any:
    """Return the end of Spark's logs, as io.holdfast.spark.sparklog.QueryLog."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    with local_spark.java_errors():
        return spark._jvm.io.holdfast.spark.sparklog.QueryLog.read(
            absolute(folder).spark_name, conf
        )


def plan(spark: Any, folder: AnyPath, name: str, *facts: Any) -> Any:
    """Return the batch that a command publishes, by a method of io.holdfast.spark.moves.Plan.

    None: there is nothing to do. Raises an OSError with advice if the checkpoint is refused.
    """
    logs = read_logs(spark, folder)
    try:
        with local_spark.java_errors():
            return getattr(java_moves(spark).Plan, name)(logs, *facts)
    except OSError as error:
        # The text has names from the checkpoint.
        raise OSError(printable(str(error))) from None


def given_output(arguments: argparse.Namespace) -> AnyPath | None:
    """Return the folder of ``--output``."""
    return None if arguments.output is None else folders.given(arguments.output)


def sink_log(spark: Any, folder: AnyPath, output: AnyPath, newest: int) -> Any:
    """Return the log of Spark's file sink; OSError if the query does not write to the folder."""
    with local_spark.java_errors():
        log = java_moves(spark).SinkLog(
            spark._jsparkSession, absolute(folder).spark_name, absolute(output).spark_name
        )
        log.check(newest)
    return log


def complete(spark: Any, folder: AnyPath, output: AnyPath, newest: int, *, yes: bool) -> int:
    """Add the entries that a sink's log lacks because the output was unknown; only if `yes`.

    Returns their number.
    """
    log = sink_log(spark, folder, output, newest)
    with local_spark.java_errors():
        number: int = log.complete(newest) if yes else log.lacking(newest)
    return number


def say_unknown(number: int, *, by_query: bool, yes: bool) -> None:
    """Print what is unknown without ``--output``; `by_query`: Holdfast sees the sink later."""
    if by_query and yes:
        return
    remedy = (
        f"the query adds batch {number} to their log when it starts"
        if by_query
        else f"their log needs batch {number}: give this command --output FOLDER, now or later"
    )
    print(
        "holdfast: a checkpoint does not name the output. If that is files of Spark's file sink, "
        f"{remedy}. Code of your own that counts batches never gets batch {number}",
        file=sys.stderr,
    )


def publish(move: Any, folder: AnyPath, number: int) -> None:
    """Publish the batch, whose state is written; OSError if another batch was planned."""
    if not move.plan():
        raise OSError(
            f"a query or another command has planned batch {number} of {folder} meanwhile: stop "
            "it, and try again. The checkpoint was not changed"
        )
    if not move.commit():
        print(f"holdfast: another command has committed batch {number}", file=sys.stderr)


def watched(spark: Any, move: Any, make: Callable[[], T]) -> T:
    """Let Spark make the state of the batch, and show the progress."""
    with ThreadPoolExecutor(1) as pool, _progress(move.partitions()) as show:
        running: Future[T] = pool.submit(make)
        try:
            while not wait([running], timeout=0.5).done:
                show(move.donePartitions(), move.doneBytes())
        except KeyboardInterrupt:
            spark.sparkContext.cancelAllJobs()
            raise
        return running.result()


@contextmanager
def _progress(partitions: int) -> Iterator[Callable[[int, int], None]]:
    """Show on stderr the partitions and bytes that are copied in the block."""
    begin = told = time.monotonic()

    def rate(done_bytes: int) -> str:
        return f"{done_bytes / 1e6 / max(time.monotonic() - begin, 1e-3):.1f} MB/s"

    def plain(done: int, done_bytes: int) -> None:
        nonlocal told
        if done and time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            left_s = (told - begin) * (partitions - done) / done
            said = f"{done} of {partitions} partitions, {rate(done_bytes)}, {left_s:.0f} s left"
            print(f"holdfast: {said}", file=sys.stderr)

    if not (sys.stderr.isatty() and find_spec("rich")):
        yield plain
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task("", total=partitions, rate="")
        yield lambda done, size: bars.update(task, completed=done, rate=rate(size))
