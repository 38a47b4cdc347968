"""``holdfast adopt``: another state store provider goes on with the checkpoint of a query.

docs/internals/moves.md has the protocol.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from holdfast._options import STORE
from holdfast._spark import spark_conf
from holdfast.cli import documents, folders, local_spark, report, tables
from holdfast.regions.base.printable import printable
from holdfast.regions.checkpoint.query_folder import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    PROVIDER,
    is_query_checkpoint,
    logged_batches,
)
from holdfast.regions.files.paths import AnyPath, absolute

#: Spark's own providers.
_SPARKS: Final = "org.apache.spark.sql.execution.streaming.state."
_ADOPTED: Final = (f"{_SPARKS}RocksDBStateStoreProvider", f"{_SPARKS}HDFSBackedStateStoreProvider")

_PROVIDER_KEY: Final = f"{STORE}.providerClass"
#: The command that planned a batch, in the settings of the batch, where Spark ignores it.
_MOVE_KEY: Final = f"{STORE}.holdfast.move"

#: To read and to write takes about as long as to read so often.
_READS: Final = 3

#: Between lines about the progress.
_TELL_S: Final = 10


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast adopt``."""
    folders.add_argument(command, of=" of the query")
    command.add_argument(
        "--master",
        default="local[*]",
        help="where Spark copies the state (default: on all cores of this machine)",
    )
    command.add_argument(
        "--yes",
        action="store_true",
        help="change the checkpoint (default: only say what would be written)",
    )


@dataclass(frozen=True)
class Plan:
    """A batch without input that is to be published.

    Attributes
    ----------
    batch : int
        The batch. The state is that of the one before.
    provider : str
        The provider that has the state now.
    offsets, commit : str
        The entries of the logs of the batch before.
    planned : str
        The entry of the batch in the offset log.
    begun : bool
        True if the entry is there already.
    """

    folder: AnyPath
    batch: int
    provider: str
    offsets: str
    commit: str
    planned: str
    begun: bool

    def committed(self, ids: dict[str, Any]) -> str:
        """Return the entry of the batch in the commit log, with ids of the new state."""
        version, content = self.commit.split("\n", 1)
        # The first version has no ids.
        version = "v2" if version == "v1" else version
        return f"{version}\n{json.dumps({**json.loads(content), 'stateUniqueIds': ids})}"


def adopt(arguments: argparse.Namespace) -> None:
    """Let Holdfast go on with a checkpoint of Spark's providers, or say what that would take."""
    folder = folders.given(arguments.folder)
    plan = plan_adoption(folder)
    if plan is None:
        print(
            f"holdfast: the state of {folder} is in Holdfast already: there is nothing to do",
            file=sys.stderr,
        )
        return
    settings = spark_conf()
    with local_spark.session("to adopt a checkpoint", settings, master=arguments.master) as spark:
        document = move(spark, plan, yes=arguments.yes)
    report.print_either(document, tables.of_move, json=arguments.json)
    sys.stdout.flush()
    if arguments.yes:
        said = f"batch {plan.batch} of {folder} has the state in Holdfast. Start the query with "
        said += "Holdfast's settings"
    else:
        said = f"nothing was changed. To adopt takes about {document['ms'] / 1000:.0f} s: add --yes"
    print(f"holdfast: {said}", file=sys.stderr)


def plan_adoption(folder: AnyPath) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if Holdfast has the state already.

    Raises
    ------
    OSError
        If it cannot be adopted, with what to do.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    if not is_query_checkpoint(folder):
        raise FileNotFoundError(f"{folder} is not the checkpoint of a streaming query")
    planned, committed = (
        max(logged_batches(folder / log), default=-1) for log in (OFFSETS_FOLDER, COMMITS_FOLDER)
    )
    if committed < 0 or not (folder / "state").is_dir():
        raise OSError(
            f"{folder} has no state of a committed batch, so there is nothing to adopt. Start the "
            "query with Holdfast and a new checkpoint folder"
        )
    batch = committed + 1
    offsets = _entry(folder, OFFSETS_FOLDER, committed)
    lines = offsets.split("\n")
    metadata = json.loads(lines[1])
    provider = metadata["conf"].get(_PROVIDER_KEY)
    own = {**metadata["conf"], _PROVIDER_KEY: PROVIDER, _MOVE_KEY: "adopt"}
    lines[1] = json.dumps({**metadata, "conf": own}, separators=(",", ":"))
    expected = "\n".join(lines)
    begun = planned == batch and _entry(folder, OFFSETS_FOLDER, planned) == expected
    if planned != committed and not begun:
        raise OSError(_unfinished(folder, planned, committed))
    if provider == PROVIDER:
        return None
    if provider not in _ADOPTED:
        raise OSError(
            f"{folder} has its state in {printable(provider)}. Only checkpoints of Spark's own "
            "providers can be adopted"
        )
    commit = _entry(folder, COMMITS_FOLDER, committed)
    return Plan(folder, batch, provider, offsets, commit, expected, begun)


def _entry(folder: AnyPath, log: str, batch: int) -> str:
    return (folder / log / str(batch)).read_text()


def _unfinished(folder: AnyPath, planned: int, committed: int) -> str:
    if planned != committed + 1:
        return (
            f"the newest batch of {folder} is {planned} in {OFFSETS_FOLDER} and {committed} in "
            f"{COMMITS_FOLDER}: entries are missing. Put them back from a copy"
        )
    return (
        f"batch {planned} of {folder} has begun and not ended. If the query runs, stop it. Then "
        "run it once on its provider with trigger(availableNow=True), so that the batch ends"
    )


def move(spark: Any, plan: Plan, *, yes: bool) -> dict[str, Any]:
    """Copy the state and publish the batch, or only read one partition of each operator."""
    from py4j.protocol import Py4JJavaError

    name = absolute(plan.folder).spark_name
    conf = json.dumps(json.loads(plan.offsets.split("\n")[1])["conf"])
    committed = plan.commit.split("\n", 1)[1]
    try:
        copy = spark._jvm.io.holdfast.spark.moves.StateCopy(
            spark._jsparkSession, name, plan.batch - 1, conf, committed, PROVIDER
        )
        begin = time.monotonic()
        if yes:
            operators = json.loads(_watched(spark, copy))
            _publish(copy, plan, {str(one["operator"]): one["ids"] for one in operators})
            ms = round((time.monotonic() - begin) * 1000)
        else:
            operators = json.loads(copy.run(False))
            ms = _extrapolate(operators) // spark.sparkContext.defaultParallelism
    except Py4JJavaError as error:
        raise OSError(local_spark.reason(error)) from None
    return documents.of_move(plan.batch, plan.provider, operators, ms=ms, moved=yes)


def _extrapolate(operators: list[dict[str, Any]]) -> int:
    """Take the partitions of an operator for as large as the one that was read.

    Returns
    -------
    int
        How long one core would copy all, in milliseconds.
    """
    ms = 0
    for one in operators:
        one["rows"] *= one["partitions"]
        one["bytes"] *= one["partitions"]
        ms += one["ms"] * one["partitions"] * _READS
    return ms


def _publish(copy: Any, plan: Plan, ids: dict[str, Any]) -> None:
    """Plan the batch, look again, and commit it."""
    folder, batch = plan.folder, plan.batch
    created = copy.publish(OFFSETS_FOLDER, batch, plan.planned)
    newest = max(logged_batches(folder / OFFSETS_FOLDER), default=-1)
    if newest != batch or (not created and _entry(folder, OFFSETS_FOLDER, batch) != plan.planned):
        raise OSError(
            f"a query has planned batch {newest} of {folder} meanwhile: stop it, and try again. "
            "The checkpoint was not changed"
        )
    if not copy.publish(COMMITS_FOLDER, batch, plan.committed(ids)):
        print(f"holdfast: another command has committed batch {batch}", file=sys.stderr)


def _watched(spark: Any, copy: Any) -> str:
    """Copy all state, and show meanwhile how far it is."""
    total: int = copy.partitions()
    with ThreadPoolExecutor(1) as pool, _progress(total) as show:
        running: Future[str] = pool.submit(copy.run, True)
        try:
            while not wait([running], timeout=0.5).done:
                show(copy.copiedPartitions(), copy.copiedBytes())
        except KeyboardInterrupt:
            spark.sparkContext.cancelAllJobs()
            raise
        return running.result()


@contextmanager
def _progress(partitions: int) -> Iterator[Callable[[int, int], None]]:
    """Show on stderr how many partitions and bytes are copied, until the end of the block."""
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
