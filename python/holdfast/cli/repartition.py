"""``holdfast repartition``: another number of partitions for the state of a query."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast._spark import spark_conf
from holdfast.cli import folders, local_spark, report
from holdfast.cli.java import quick_start
from holdfast.cli.moves import MOVE_KEY
from holdfast.cli.tables import Table
from holdfast.regions.checkpoint.parked import parked_partitions
from holdfast.regions.checkpoint.query_folder import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    PROVIDER,
    logged_batches,
    read_query_checkpoint,
)
from holdfast.regions.checkpoint.query_state import VIEW
from holdfast.regions.files.paths import AnyPath, absolute

T = TypeVar("T")

PARTITIONS: Final = "spark.sql.shuffle.partitions"

#: Old partitions that a new one may have to read.
PARENTS_MAX: Final = 16

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"
_PROGRESS_S: Final = 5


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast repartition``."""
    folders.add_argument(command, of=" of the query")
    command.add_argument(
        "--partitions", type=int, required=True, metavar="M", help="the new number of partitions"
    )
    command.add_argument(
        "--rewrite",
        action="store_true",
        help="read all of the state now, on this machine (default: the first batch on the new "
        "partitions moves the rows)",
    )
    command.add_argument(
        "--yes",
        action="store_true",
        help="change the checkpoint (default: only say what would change)",
    )


@dataclass(frozen=True)
class Logs:
    """Entries of Spark's logs that a repartition begins with.

    Attributes
    ----------
    batch : int
        The newest committed batch.
    plan, commit : str
        Its entries.
    next_plan : str or None
        The entry of the batch behind it in the offset log.
    """

    batch: int
    plan: str
    commit: str
    next_plan: str | None

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the query in this batch."""
        return _settings(self.plan)

    @property
    def partitions(self) -> int:
        """Number of partitions of the query in this batch."""
        return int(self.settings[PARTITIONS])

    def planned(self, partitions: int) -> str:
        """Return the entry of a batch without input that has another number of partitions."""
        version, metadata, *sources = self.plan.split("\n")
        facts = json.loads(metadata)
        facts["conf"][PARTITIONS] = str(partitions)
        facts["conf"][MOVE_KEY] = f"repartition --partitions {partitions}"
        return "\n".join([version, json.dumps(facts, separators=(",", ":")), *sources])

    def committed(self, ids: Mapping[str, Any]) -> str:
        """Return the entry of this batch with other ids of its state."""
        version, content = self.commit.split("\n", 1)
        return f"{version}\n{json.dumps({**json.loads(content), 'stateUniqueIds': ids})}"


def _settings(plan: str) -> Mapping[str, str]:
    settings: Mapping[str, str] = json.loads(plan.split("\n")[1])["conf"]
    return settings


def run(arguments: argparse.Namespace) -> None:
    """Give the state of a query another number of partitions."""
    with nullcontext() if arguments.rewrite else quick_start():
        _run(arguments)


def _run(arguments: argparse.Namespace) -> None:
    folder = folders.query(arguments.folder)
    wanted: int = arguments.partitions
    if wanted < 1:
        raise ValueError(f"--partitions {wanted}: expected a positive number")
    logs = _logs(folder)
    _require_free(folder, logs, wanted)
    with _job(folder, logs, wanted) as job:
        is_there = logs.partitions == wanted
        changed = arguments.yes and not is_there
        if not is_there:
            parents: int = job.parents()
            if parents > PARENTS_MAX and not arguments.rewrite:
                raise ValueError(
                    f"--partitions {wanted}: each new partition would have to read {parents} of "
                    f"the {logs.partitions} old ones, and the most is {PARENTS_MAX}. Choose a "
                    "number with a larger common divisor, or add --rewrite"
                )
            if not arguments.rewrite and f'"{VIEW}' in logs.commit:
                raise OSError(
                    f"{folder} has got {logs.partitions} partitions and no batch since. Start the "
                    "query for one batch first, which moves its rows, or add --rewrite"
                )
            job.check()
        if changed:
            ids = _watched(job.write, job) if arguments.rewrite else job.views()
            _publish(folder, logs, wanted, job, json.loads(ids))
        if arguments.yes:
            # A command that was killed may have left it.
            job.describe(wanted)
        document = {
            "batch": logs.batch + (not is_there),
            "partitions": logs.partitions,
            "new_partitions": wanted,
            "operators": json.loads(job.operators()),
            "rewritten_rows": job.rows() if changed and arguments.rewrite else None,
            "changed": changed,
        }
        report.print_either(document, _table, json=arguments.json)
    sys.stdout.flush()
    if is_there:
        said = f"the state has {wanted} partitions already"
    elif changed:
        said = f"batch {logs.batch + 1} has {wanted} partitions: start the query"
    else:
        said = "nothing was changed; --yes changes the checkpoint"
    print(f"holdfast: {said}", file=sys.stderr)


def _table(document: Mapping[str, Any]) -> Table:
    columns = ["operator", "name", "stores", "partitions", "new_partitions"]
    rows = [[one[column] for column in columns] for one in document["operators"]]
    return Table(columns, rows, frozenset({"name"}))


def _logs(folder: AnyPath) -> Logs:
    query = read_query_checkpoint(folder)
    if query.committed is None or query.provider != PROVIDER or not query.has_state:
        said = query.describe()
        raise OSError(f"{said}. Only state of a committed batch gets other partitions")
    batch = query.committed
    planned = query.planned
    if planned not in (batch, batch + 1):
        raise OSError(
            f"{folder} lacks entries of its logs: the offset log ends at batch {planned}, and the "
            f"commit log at batch {batch}. The start of the query says what to do"
        )
    return Logs(
        batch,
        (folder / OFFSETS_FOLDER / str(batch)).read_text(),
        (folder / COMMITS_FOLDER / str(batch)).read_text(),
        (folder / OFFSETS_FOLDER / str(planned)).read_text() if planned != batch else None,
    )


def _require_free(folder: AnyPath, logs: Logs, wanted: int) -> None:
    """Refuse a query in the middle of a batch, and one with parked partitions."""
    if logs.next_plan not in (None, logs.planned(wanted)):
        begun = _settings(logs.next_plan).get(MOVE_KEY)
        if begun is not None:
            raise OSError(
                f"'holdfast {begun} {folder}' has begun and not ended. Run it again with --yes"
            )
        raise OSError(
            f"batch {logs.batch + 1} of {folder} is planned and not committed: the query runs, or "
            "was killed. Let it end the batch, for instance with the trigger availableNow, and "
            "stop it"
        )
    # Queries that began on an older Spark have none.
    if logs.settings.get(_STRICT) != "true":
        raise OSError(
            f"{folder} was not made with {_STRICT}=true, so Spark may have partitioned its state "
            "by a part of the key. It cannot get another number of partitions"
        )
    if parked_partitions(folder):
        raise OSError(
            f"{folder} has parked partitions, whose input waits. 'holdfast parked {folder}' shows "
            "why. Let the query process it, or skip the rows"
        )


@contextmanager
def _job(folder: AnyPath, logs: Logs, wanted: int) -> Iterator[Any]:
    """Open Spark's part of the command."""
    with local_spark.session("to read state", spark_conf()) as spark:
        from py4j.protocol import Py4JJavaError

        jvm: Any = spark._jvm
        try:
            yield jvm.io.holdfast.spark.moves.Repartition(
                spark._jsparkSession,
                absolute(folder).spark_name,
                logs.batch,
                json.dumps(logs.settings),
                logs.commit.split("\n", 1)[1],
                logs.partitions,
                wanted,
            )
        except Py4JJavaError as error:
            raise OSError(local_spark.reason(error)) from None


def _publish(folder: AnyPath, logs: Logs, wanted: int, job: Any, ids: Mapping[str, Any]) -> None:
    """Publish the batch that has the new state. docs/internals/moves.md says why so."""
    next_batch = logs.batch + 1
    if logs.next_plan is None and not job.publish(OFFSETS_FOLDER, next_batch, logs.planned(wanted)):
        raise OSError(
            f"another program planned batch {next_batch} of {folder}: nothing was changed"
        )
    if max(logged_batches(folder / OFFSETS_FOLDER)) != next_batch:
        raise OSError(f"the query of {folder} runs: nothing was changed. Stop it first")
    job.describeBatch(wanted)
    if not job.publish(COMMITS_FOLDER, next_batch, logs.committed(ids)):
        raise OSError(f"another program committed batch {next_batch} of {folder}")


def _watched(call: Callable[[], T], job: Any) -> T:
    """Run a job of Spark, and say on stderr how far it is."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_PROGRESS_S):
            said = f"{job.rows()} rows read, {job.writtenPartitions()} of {job.partitions()}"
            print(f"holdfast: {said} partitions written", file=sys.stderr)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return call()
    finally:
        over.set()
        watcher.join()
