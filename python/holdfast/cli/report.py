"""Tables on stdout and progress on stderr.

With rich in a terminal where it is installed, else plain text, which programs can read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentReport
from holdfast.regions.base.folders import (
    RESTORE_MODE_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_FROM_PROPERTY,
)
from holdfast.regions.base.printable import printable
from holdfast.regions.base.tables import aligned
from holdfast.regions.checkpoint.query_folder import QueryCheckpoint
from holdfast.regions.checkpoint.query_state import BatchVerdict, StoredSegment
from holdfast.regions.checkpoint.read import Summary, in_flight_rows
from holdfast.regions.checkpoint.verify import Verdict
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import failed_text

if TYPE_CHECKING:
    from rich.progress import Progress

#: So many failed regions are named in the line of a checkpoint.
_NAMED_REGIONS = 3

#: So much of its random name tells a run of a pipeline from others.
_RUN_LENGTH = 8


def print_checkpoints(summaries: Sequence[Summary]) -> None:
    """Print one line per checkpoint."""
    columns = ["id", "batch", "kind", "completed", "regions", "finished", "in-flight rows"]
    columns += ["in-flight bytes", "staged", "bytes", "failed (origin)"]
    rows = [
        [
            str(summary.metadata.id),
            str(summary.metadata.batch_id),
            summary.metadata.kind,
            "global" if summary.metadata.is_global else "regional",
            str(len(summary.metadata.regions)),
            str(summary.finished_regions),
            str(summary.in_flight_rows),
            str(summary.in_flight_bytes),
            str(summary.staged_files),
            str(summary.stored_bytes),
            _failed(summary.metadata.failed),
        ]
        for summary in summaries
    ]
    _print_table(columns, rows, words={"kind", "completed", "failed (origin)"})


def print_beginning(metadata: CheckpointMetadata) -> None:
    """Say on stderr where a pipeline began, and whether it still needs that."""
    path = metadata.properties.get(RESTORED_FROM_PROPERTY)
    if path is None:
        return
    id = printable(metadata.properties.get(RESTORED_CHECKPOINT_PROPERTY, "?"))
    fate = (
        "which it has claimed and deletes"
        if metadata.properties.get(RESTORE_MODE_PROPERTY) == "claim"
        else "which it copied and does not need: that folder may be deleted"
    )
    print(
        f"holdfast: the pipeline began with checkpoint {id} of {printable(path)}, {fate}",
        file=sys.stderr,
    )


def print_regions(metadata: CheckpointMetadata) -> None:
    """Print one line per region of a checkpoint."""
    columns = ["region", "state", "origin", "fallbacks", "stale since", "in-flight rows"]
    columns += ["in-flight bytes", "operators", "segments", "staged", "cause"]
    rows = [
        [
            printable(entry.region),
            _state(entry),
            str(entry.origin),
            str(entry.fallbacks),
            _time(entry.stale_since_ms),
            str(in_flight_rows(entry)),
            str(entry.in_flight_bytes),
            str(len(entry.operators)),
            str(len(entry.refs())),
            str(len(entry.staged)),
            printable(entry.cause) or "-",
        ]
        for entry in metadata.regions.values()
    ]
    _print_table(columns, rows, words={"region", "state", "stale since", "cause"})


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print one line per checkpoint, then one per thing that cannot be read."""
    _print_verdicts(
        ["id", "verdict", "readable regions", "regions"],
        [(one, one.checkpoint, one.readable_regions, one.regions) for one in verdicts],
        of="checkpoint",
    )


def _print_verdicts(
    columns: Sequence[str],
    rows: Sequence[tuple[Verdict | BatchVerdict, int, int, int]],
    *,
    of: str,
) -> None:
    cells = [
        [
            str(number),
            "damaged" if verdict.damage else "ok",
            *map(str, (readable, parts, verdict.readable_segments, verdict.segments)),
        ]
        for verdict, number, readable, parts in rows
    ]
    _print_table([*columns, "readable segments", "segments"], cells, words={"verdict"})
    for verdict, number, _, _ in rows:
        for damage in verdict.damage:
            print(f"{of} {number}: {printable(damage.message)}")


def print_attempts(records: Sequence[HistoryRecord]) -> None:
    """Print one line per attempt."""
    columns = ["id", "batch", "kind", "outcome", "ended", "time ms", "in-flight rows", "run"]
    columns += ["failed regions"]
    rows = [
        [
            str(record.id),
            str(record.batch_id),
            record.kind,
            record.outcome,
            _time(record.ended_ms),
            str(record.ended_ms - record.started_ms),
            str(record.in_flight_rows),
            printable(record.run[:_RUN_LENGTH]) or "-",
            failed_text(record, max_failed=_NAMED_REGIONS) or "-",
        ]
        for record in records
    ]
    _print_table(columns, rows, words={"kind", "outcome", "ended", "run", "failed regions"})


def print_query(query: QueryCheckpoint) -> None:
    """Print what the checkpoint of an ordinary query says, and on stderr what it is."""
    print(f"holdfast: {printable(query.describe())}", file=sys.stderr)
    columns = ["planned batch", "committed batch", "partitions", "files", "bytes"]
    found = (query.planned, query.committed, query.partitions, query.files, query.file_bytes)
    _print_table(
        columns, [["-" if figure is None else str(figure) for figure in found]], words=set()
    )


def print_segments(segments: Sequence[StoredSegment]) -> None:
    """Print one line per segment of a query's batch."""
    columns = ["operator", "partition", "store", "kind", "version", "entries", "bytes"]
    columns += ["stored bytes", "blocks", "separator bytes", "filters", "filter bytes", "offset"]
    columns += ["file"]
    rows = [
        [
            str(segment.operator),
            str(segment.partition),
            *_cells(segment.report),
            str(segment.ref.length),
            *_index_cells(segment.report),
            str(segment.ref.offset),
            segment.ref.file,
        ]
        for segment in segments
    ]
    _print_table(columns, rows, words={"store", "kind", "file"})


def _cells(found: SegmentReport | str) -> list[str]:
    if isinstance(found, str):
        return ["-", "damaged", "-", "-", "-"]
    store = printable(found.owner.store)
    return [store, found.kind, str(found.created), str(found.entries), str(found.payload_bytes)]


def _index_cells(found: SegmentReport | str) -> list[str]:
    if isinstance(found, str) or found.kind != "run":
        return ["-"] * 4
    figures = (found.blocks, found.separator_bytes, found.filters, found.filter_bytes)
    return [str(figure) for figure in figures]


def print_batch_verdicts(verdicts: Sequence[BatchVerdict]) -> None:
    """Print one line per batch of a query, then one per thing that cannot be read."""
    _print_verdicts(
        ["batch", "verdict", "readable partitions", "partitions"],
        [(one, one.batch, one.readable_partitions, one.partitions) for one in verdicts],
        of="batch",
    )


class Bars(Protocol):
    """Shows how far a verification is."""

    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        """Begin with a checkpoint; the result takes how much of it is done, and of how much."""


def print_findings(findings: Iterable[tuple[str, str, str, str]]) -> None:
    """Print a line per check with its name, outcome and what it found, and what to do below."""
    for check, outcome, found, remedy in findings:
        print(f"{outcome:<8} {check:<18} {printable(found)}")
        if remedy:
            print(f"{'':<27} {printable(remedy)}")


@contextmanager
def progress() -> Iterator[Bars]:
    """Show progress on stderr until the end of the block."""
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _PlainBars()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield _RichBars(bars)


class _PlainBars:
    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        print(f"holdfast: verifying {of} {id}", file=sys.stderr)
        return lambda done, total: None


class _RichBars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        task = self._bars.add_task(f"{of} {id}", total=None)
        return lambda done, total: self._bars.update(task, completed=done, total=total)


def _failed(failed: dict[str, int]) -> str:
    named = [
        f"{printable(region)} ({origin})"
        for region, origin in list(failed.items())[:_NAMED_REGIONS]
    ]
    if len(failed) > _NAMED_REGIONS:
        named.append(f"and {len(failed) - _NAMED_REGIONS} more")
    return ", ".join(named) or "-"


def _state(entry: RegionEntry) -> str:
    if entry.failed:
        return "fell back"
    return "finished" if entry.finished else "healthy"


def _time(ms: int | None) -> str:
    if ms is None:
        return "-"
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        # Past the year 9999: no time, but shown as what is stored.
        return f"{ms} ms"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: set[str]) -> None:
    """Print words to the left and figures to the right."""
    if sys.stdout.isatty() and find_spec("rich"):
        _print_rich(columns, rows, words)
        return
    for line in aligned(columns, rows, words=words):
        print(line)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], words: set[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # Words wrap where the terminal is narrow; a figure is never cut.
        table.add_column(
            column,
            justify="left" if column in words else "right",
            no_wrap=column not in words,
        )
    for row in rows:
        # Names from data are no markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
