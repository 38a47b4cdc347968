"""``holdfast adopt``, ``undo``, ``leave``: another provider goes on with the state of a query.

docs/internals/moves.md has the protocol.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from holdfast._options import STORE
from holdfast._spark import spark_conf
from holdfast.cli import documents, folders, local_spark, report, tables
from holdfast.regions.base.printable import printable
from holdfast.regions.checkpoint.parked import parked_partitions
from holdfast.regions.checkpoint.query_folder import (
    COMMITS_FOLDER,
    OFFSETS_FOLDER,
    PROVIDER,
    is_query_checkpoint,
    logged_batches,
)
from holdfast.regions.checkpoint.query_state import VIEW
from holdfast.regions.files.paths import AnyPath, absolute

_PACKAGE: Final = "org.apache.spark.sql.execution.streaming.state"
#: Spark's own providers.
_SPARKS: Final = {
    "rocksdb": f"{_PACKAGE}.RocksDBStateStoreProvider",
    "hdfs": f"{_PACKAGE}.HDFSBackedStateStoreProvider",
}

_PROVIDER_KEY: Final = f"{STORE}.providerClass"
#: The command that planned a batch, in the settings of the batch, where Spark ignores it.
MOVE_KEY: Final = f"{STORE}.holdfast.move"
#: Names files from before an adoption.
_RECORDS_FOLDER: Final = "moves"

_IDS: Final = "stateUniqueIds"

#: To read and to write takes about as long as to read so often.
_READS: Final = 3

#: Between lines about the progress.
_TELL_S: Final = 10


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of all commands that move a checkpoint."""
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


def add_adopt_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast adopt``."""
    add_arguments(command)
    command.add_argument(
        "--purge",
        action="store_true",
        help="delete the files of the old provider, after which the adoption cannot be undone; "
        "only once another batch has run",
    )


def add_leave_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast leave``."""
    add_arguments(command)
    command.add_argument(
        "--to", choices=_SPARKS, required=True, help="the provider that gets the state"
    )
    command.add_argument(
        "--format",
        choices=("1", "2"),
        default="1",
        help="checkpoint format of the query's session, which is 1 unless it sets another",
    )


@dataclass(frozen=True)
class Batch:
    """The entries that Spark's logs have of a committed batch."""

    number: int
    offsets: str
    commit: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The offset log's facts about the whole batch."""
        found: dict[str, Any] = json.loads(self.offsets.split("\n")[1])
        return found

    @property
    def conf(self) -> dict[str, str]:
        """Settings of the batch."""
        found: dict[str, str] = self.metadata["conf"]
        return found

    @property
    def provider(self) -> str:
        """The class that has the state; empty if a very old Spark noted none."""
        return self.conf.get(_PROVIDER_KEY, "")

    @property
    def committed(self) -> dict[str, Any]:
        """The entry of the commit log."""
        found: dict[str, Any] = json.loads(self.commit.split("\n", 1)[1])
        return found

    @property
    def format(self) -> str:
        """The checkpoint format: 2 has ids of the state."""
        return "1" if self.committed.get(_IDS) is None else "2"


@dataclass(frozen=True)
class Plan:
    """A batch without input that is to be published.

    Attributes
    ----------
    command : str
        The command that publishes it.
    newest : Batch
        The batch before it.
    base : Batch
        The batch whose state it gets.
    provider, format : str
        The class that gets the state, and its checkpoint format.
    """

    folder: AnyPath
    command: str
    newest: Batch
    base: Batch
    provider: str
    format: str

    @property
    def number(self) -> int:
        """The number of the batch."""
        return self.newest.number + 1

    @property
    def planned(self) -> str:
        """Its entry in the offset log."""
        lines = self.newest.offsets.split("\n")
        conf = {**self.newest.conf, _PROVIDER_KEY: self.provider, MOVE_KEY: self.command}
        lines[1] = json.dumps({**self.newest.metadata, "conf": conf}, separators=(",", ":"))
        return "\n".join(lines)

    def committed(self, ids: dict[str, Any]) -> str:
        """Return its entry in the commit log, with ids of the new state."""
        version = self.newest.commit.split("\n", 1)[0]
        content = {key: value for key, value in self.newest.committed.items() if key != _IDS}
        if self.format == "2":
            content[_IDS] = ids
        # Later versions have ids, or none.
        if version in ("v1", "v2"):
            version = f"v{self.format}"
        return f"{version}\n{json.dumps(content)}"


def adopt(arguments: argparse.Namespace) -> None:
    """Let Holdfast go on with a checkpoint of Spark's providers, or say what that would take."""
    folder = folders.given(arguments.folder)
    if arguments.purge:
        _purge(folder, arguments)
    else:
        _do(plan_adoption(folder), folder, "Holdfast", arguments)


def leave(arguments: argparse.Namespace) -> None:
    """Let one of Spark's providers go on with a checkpoint of Holdfast."""
    folder = folders.given(arguments.folder)
    _do(plan_leave(folder, arguments.to, arguments.format), folder, arguments.to, arguments)


def undo(arguments: argparse.Namespace) -> None:
    """Go back from an adoption to the state from before it."""
    folder = folders.given(arguments.folder)
    _do(plan_undo(folder), folder, "its old provider", arguments)


def _do(plan: Plan | None, folder: AnyPath, to: str, arguments: argparse.Namespace) -> None:
    if plan is None:
        said = f"the state of {folder} is in {to} already: there is nothing to do"
        print(f"holdfast: {said}", file=sys.stderr)
        return
    settings = spark_conf()
    with local_spark.session("to move a checkpoint", settings, master=arguments.master) as spark:
        document = move(spark, plan, yes=arguments.yes)
    report.print_either(document, tables.of_move, json=arguments.json)
    sys.stdout.flush()
    if arguments.yes:
        said = f"batch {plan.number} of {folder} has the state in {plan.provider}. Start the query "
        said += f"with this provider and checkpoint format {plan.format}"
    else:
        said = f"nothing was changed. It would take about {document['ms'] / 1000:.0f} s: add --yes"
    print(f"holdfast: {said}", file=sys.stderr)


def _purge(folder: AnyPath, arguments: argparse.Namespace) -> None:
    batches = purgeable(folder)
    if not batches:
        print(f"holdfast: {folder} has no files of an adoption to delete", file=sys.stderr)
        return
    with local_spark.session("to purge files", spark_conf(), master=arguments.master) as spark:
        document = purge(spark, folder, batches, yes=arguments.yes)
    report.print_either(document, tables.of_purge, json=arguments.json)
    sys.stdout.flush()
    if not arguments.yes:
        print("holdfast: nothing was deleted; --yes deletes the files", file=sys.stderr)


def purgeable(folder: AnyPath) -> list[int]:
    """Return the batches of adoptions whose old files are still there and of no use.

    Raises
    ------
    OSError
        If the files may be needed to undo an adoption, or by the provider of the query.
    """
    newest, _ = _newest(folder)
    _require_holdfast(folder, newest)
    if newest.conf.get(MOVE_KEY) == "adopt":
        raise OSError(
            f"no batch of {folder} has run since the adoption, so its old files are the way back: "
            "start the query with Holdfast first"
        )
    return logged_batches(folder / _RECORDS_FOLDER)


def purge(spark: Any, folder: AnyPath, batches: Sequence[int], *, yes: bool) -> dict[str, Any]:
    """Delete the files that adoptions recorded, or only count them."""
    from py4j.protocol import Py4JJavaError

    conf = spark._jsparkSession.sessionState().newHadoopConf()
    found = []
    try:
        for batch in batches:
            name = absolute(folder).spark_name
            files = spark._jvm.io.holdfast.spark.moves.OldFiles(name, batch, conf)
            files.purge(yes)
            found.append({"batch": batch, "files": files.count(), "bytes": files.bytes()})
    except Py4JJavaError as error:
        raise OSError(local_spark.reason(error)) from None
    return {"purged": yes, "adoptions": found}


def plan_adoption(folder: AnyPath) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if Holdfast has the state already.

    Raises
    ------
    OSError
        If it cannot be adopted, with what to do.
    """
    newest, planned = _newest(folder)
    if newest.provider == PROVIDER:
        _require_ended(folder, newest, planned)
        return None
    if newest.provider not in _SPARKS.values():
        raise OSError(
            f"{folder} has its state in {printable(newest.provider)}. Only checkpoints of "
            "Spark's own providers can be adopted"
        )
    return _planned(Plan(folder, "adopt", newest, newest, PROVIDER, "2"), planned)


def plan_leave(folder: AnyPath, to: str, format: str) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if the provider has the state already.

    Parameters
    ----------
    to : {"rocksdb", "hdfs"}
    format : {"1", "2"}
        The checkpoint format.

    Raises
    ------
    OSError, ValueError
        If the provider cannot go on with it, with what to do.
    """
    if to == "hdfs" and format == "2":
        raise ValueError("the HDFS-backed provider has checkpoint format 1 alone")
    newest, planned = _newest(folder)
    if newest.provider == _SPARKS[to]:
        _require_ended(folder, newest, planned)
        return None
    _require_holdfast(folder, newest)
    if VIEW in newest.commit:
        raise OSError(
            f"the rows of {folder} have not been moved since 'holdfast repartition': start the "
            "query for one batch first"
        )
    if parked_partitions(folder):
        raise OSError(
            f"{folder} has parked partitions, whose rows would be lost: 'holdfast parked {folder}' "
            "shows them. Let the query process them, or skip the rows, and try again"
        )
    return _planned(Plan(folder, "leave", newest, newest, _SPARKS[to], format), planned)


def plan_undo(folder: AnyPath) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if the adoption is undone already.

    Raises
    ------
    OSError
        If the newest batch is no adoption.
    """
    newest, planned = _newest(folder)
    command = newest.conf.get(MOVE_KEY)
    if command == "undo":
        _require_ended(folder, newest, planned)
        return None
    _require_holdfast(folder, newest)
    if command != "adopt":
        raise OSError(
            f"the newest batch of {folder} is no adoption. What came after it would be lost: use "
            "'holdfast leave'"
        )
    base = _batch(folder, newest.number - 1)
    return _planned(Plan(folder, "undo", newest, base, base.provider, base.format), planned)


def _newest(folder: AnyPath) -> tuple[Batch, int]:
    """Return the newest committed batch, and the number of the newest that is planned."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    if not is_query_checkpoint(folder):
        raise FileNotFoundError(f"{folder} is not the checkpoint of a streaming query")
    planned, committed = (
        max(logged_batches(folder / log), default=-1) for log in (OFFSETS_FOLDER, COMMITS_FOLDER)
    )
    if committed < 0 or not (folder / "state").is_dir():
        raise OSError(
            f"{folder} has no state of a committed batch, so there is nothing to move. Start the "
            "query with a new checkpoint folder"
        )
    return _batch(folder, committed), planned


def _batch(folder: AnyPath, number: int) -> Batch:
    offsets, commit = (_entry(folder, log, number) for log in (OFFSETS_FOLDER, COMMITS_FOLDER))
    batch = Batch(number, offsets, commit)
    log = OFFSETS_FOLDER
    try:
        dict(batch.conf)
        log = COMMITS_FOLDER
        dict(batch.committed)
    except (LookupError, TypeError, ValueError):
        damaged = folder / log / str(number)
        raise OSError(f"{damaged} is damaged: put it back from a copy") from None
    return batch


def _entry(folder: AnyPath, log: str, batch: int) -> str:
    return (folder / log / str(batch)).read_text()


def _planned(plan: Plan, planned: int) -> Plan:
    """Return a plan unless a batch has begun that is not its own."""
    if planned != plan.number or _entry(plan.folder, OFFSETS_FOLDER, planned) != plan.planned:
        _require_ended(plan.folder, plan.newest, planned)
    return plan


def _require_holdfast(folder: AnyPath, newest: Batch) -> None:
    if newest.provider != PROVIDER:
        raise OSError(f"the state of {folder} is in {printable(newest.provider)}, not in Holdfast")


def _require_ended(folder: AnyPath, newest: Batch, planned: int) -> None:
    if planned == newest.number:
        return
    if planned != newest.number + 1:
        raise OSError(
            f"the newest batch of {folder} is {planned} in {OFFSETS_FOLDER} and {newest.number} in "
            f"{COMMITS_FOLDER}: entries are missing. Put them back from a copy"
        )
    pending = json.loads(_entry(folder, OFFSETS_FOLDER, planned).split("\n")[1])["conf"]
    if command := pending.get(MOVE_KEY):
        raise OSError(
            f"'holdfast {printable(command)}' of {folder} has begun and not ended: run that "
            "command again first"
        )
    raise OSError(
        f"batch {planned} of {folder} has begun and not ended. If the query runs, stop it. Then "
        "run it once on its provider with trigger(availableNow=True), so that the batch ends"
    )


def move(spark: Any, plan: Plan, *, yes: bool) -> dict[str, Any]:
    """Copy the state and publish the batch, or only read one partition of each operator.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session with Holdfast's settings.
    yes : bool
        False to change nothing.

    Returns
    -------
    dict
        The document that ``--json`` prints.
    """
    from py4j.protocol import Py4JJavaError

    base = plan.base
    try:
        copy = spark._jvm.io.holdfast.spark.moves.StateCopy(
            spark._jsparkSession,
            absolute(plan.folder).spark_name,
            base.number,
            json.dumps(base.conf),
            json.dumps(base.committed),
            plan.provider,
            plan.format,
            plan.number,
        )
        begin = time.monotonic()
        if yes:
            operators = _publish(spark, copy, plan)
            ms = round((time.monotonic() - begin) * 1000)
        else:
            operators = json.loads(copy.run(False))
            ms = _extrapolate(operators) // spark.sparkContext.defaultParallelism
    except Py4JJavaError as error:
        raise OSError(local_spark.reason(error)) from None
    return documents.of_move(plan.number, base.provider, plan.provider, operators, ms=ms, moved=yes)


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


def _publish(spark: Any, copy: Any, plan: Plan) -> list[dict[str, Any]]:
    """Copy the state, plan the batch, look again, and commit it."""
    # Nothing reads the copy until then, so a command that is killed here has changed nothing.
    operators: list[dict[str, Any]] = json.loads(_watched(spark, copy))
    folder, number = plan.folder, plan.number
    created = copy.publish(OFFSETS_FOLDER, number, plan.planned)
    newest = max(logged_batches(folder / OFFSETS_FOLDER), default=-1)
    if newest != number or (not created and _entry(folder, OFFSETS_FOLDER, number) != plan.planned):
        copy.clean()
        raise OSError(
            f"a query has planned batch {newest} of {folder} meanwhile: stop it, and try again. "
            "The checkpoint was not changed"
        )
    if plan.command == "adopt":
        copy.recordOldFiles()
    if plan.provider != PROVIDER:
        copy.place()
    ids = {str(one["operator"]): one["ids"] for one in operators}
    if not copy.publish(COMMITS_FOLDER, number, plan.committed(ids)):
        print(f"holdfast: another command has committed batch {number}", file=sys.stderr)
    copy.clean()
    return operators


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
