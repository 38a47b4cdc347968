"""What commands know of checkpoints, as tables: a terminal shows them as text, a page as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentReport
from holdfast.regions.base.folders import (
    RESTORE_MODE_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_FROM_PROPERTY,
)
from holdfast.regions.base.printable import printable
from holdfast.regions.checkpoint.query_folder import QueryCheckpoint
from holdfast.regions.checkpoint.query_state import StoredSegment
from holdfast.regions.checkpoint.read import Summary, in_flight_rows
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import failed_text

#: A word, a figure, or what is not known or not there.
Cell = str | int | None

#: So many failed regions are named in the line of a checkpoint.
NAMED_REGIONS: Final = 3

#: So much of its random name tells a run of a pipeline from others.
RUN_LENGTH: Final = 8


@dataclass(frozen=True)
class Table:
    """Lines of cells.

    Attributes
    ----------
    columns : sequence of str
        What the head says.
    rows : sequence of sequence of Cell
        A cell for each column. Text of the data is printable, but not escaped.
    words : frozenset of str
        Columns of words; the others have figures.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[str]


def of_checkpoints(summaries: Sequence[Summary]) -> Table:
    """Return one line per checkpoint of a regional pipeline."""
    columns = ["id", "batch", "kind", "completed", "regions", "finished", "in-flight rows"]
    columns += ["in-flight bytes", "staged", "bytes", "failed (origin)"]
    rows: list[list[Cell]] = [
        [
            summary.metadata.id,
            summary.metadata.batch_id,
            summary.metadata.kind,
            "global" if summary.metadata.is_global else "regional",
            len(summary.metadata.regions),
            summary.finished_regions,
            summary.in_flight_rows,
            summary.in_flight_bytes,
            summary.staged_files,
            summary.stored_bytes,
            _failed(summary.metadata.failed),
        ]
        for summary in summaries
    ]
    return Table(columns, rows, frozenset({"kind", "completed", "failed (origin)"}))


def of_regions(regions: Sequence[RegionEntry]) -> Table:
    """Return one line per region of a checkpoint."""
    columns = ["region", "state", "origin", "fallbacks", "stale since", "in-flight rows"]
    columns += ["in-flight bytes", "operators", "segments", "staged", "cause"]
    rows: list[list[Cell]] = [
        [
            printable(entry.region),
            state_of(entry),
            entry.origin,
            entry.fallbacks,
            None if entry.stale_since_ms is None else time_text(entry.stale_since_ms),
            in_flight_rows(entry),
            entry.in_flight_bytes,
            len(entry.operators),
            len(entry.refs()),
            len(entry.staged),
            printable(entry.cause) or None,
        ]
        for entry in regions
    ]
    return Table(columns, rows, frozenset({"region", "state", "stale since", "cause"}))


def of_attempts(records: Sequence[HistoryRecord]) -> Table:
    """Return one line per attempt."""
    columns = ["id", "batch", "kind", "outcome", "ended", "time ms", "in-flight rows", "run"]
    columns += ["failed regions"]
    rows: list[list[Cell]] = [
        [
            record.id,
            record.batch_id,
            record.kind,
            record.outcome,
            time_text(record.ended_ms),
            record.ended_ms - record.started_ms,
            record.in_flight_rows,
            printable(record.run[:RUN_LENGTH]) or None,
            failed_text(record, max_failed=NAMED_REGIONS) or None,
        ]
        for record in records
    ]
    return Table(columns, rows, frozenset({"kind", "outcome", "ended", "run", "failed regions"}))


def of_query(query: QueryCheckpoint) -> Table:
    """Return one line for the checkpoint of an ordinary query."""
    columns = ["planned batch", "committed batch", "partitions", "files", "bytes"]
    row = [query.planned, query.committed, query.partitions, query.files, query.file_bytes]
    return Table(columns, [row], frozenset())


def of_segments(segments: Sequence[StoredSegment]) -> Table:
    """Return one line per segment of a query's batch."""
    columns = ["operator", "partition", "store", "kind", "version", "entries", "bytes"]
    columns += ["stored bytes", "blocks", "separator bytes", "filters", "filter bytes", "offset"]
    columns += ["file"]
    rows: list[list[Cell]] = [
        [
            segment.operator,
            segment.partition,
            *_cells(segment.report),
            segment.ref.length,
            *_index_cells(segment.report),
            segment.ref.offset,
            segment.ref.file,
        ]
        for segment in segments
    ]
    return Table(columns, rows, frozenset({"store", "kind", "file"}))


def _cells(found: SegmentReport | str) -> list[Cell]:
    if isinstance(found, str):
        return [None, "damaged", None, None, None]
    store = printable(found.owner.store)
    return [store, found.kind, found.created, found.entries, found.payload_bytes]


def _index_cells(found: SegmentReport | str) -> list[Cell]:
    if isinstance(found, str) or found.kind != "run":
        return [None] * 4
    return [found.blocks, found.separator_bytes, found.filters, found.filter_bytes]


def _failed(failed: dict[str, int]) -> str | None:
    named = [
        f"{printable(region)} ({origin})" for region, origin in list(failed.items())[:NAMED_REGIONS]
    ]
    if len(failed) > NAMED_REGIONS:
        named.append(f"and {len(failed) - NAMED_REGIONS} more")
    return ", ".join(named) or None


def state_of(entry: RegionEntry) -> str:
    """Say in a word how a region is."""
    if entry.failed:
        return "fell back"
    return "finished" if entry.finished else "healthy"


def time_text(ms: int) -> str:
    """Return a time in milliseconds since 1970 as text."""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        # Past the year 9999: no time, but shown as what is stored.
        return f"{ms} ms"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def beginning(metadata: CheckpointMetadata) -> str | None:
    """Say where a pipeline began, and whether it still needs that; None if it was empty then."""
    path = metadata.properties.get(RESTORED_FROM_PROPERTY)
    if path is None:
        return None
    id = printable(metadata.properties.get(RESTORED_CHECKPOINT_PROPERTY, "?"))
    fate = (
        "which it has claimed and deletes"
        if metadata.properties.get(RESTORE_MODE_PROPERTY) == "claim"
        else "which it copied and does not need: that folder may be deleted"
    )
    return f"the pipeline began with checkpoint {id} of {printable(path)}, {fate}"
