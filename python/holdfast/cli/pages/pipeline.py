"""The page of a regional pipeline's checkpoint folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.cli.pages import tables
from holdfast.cli.pages.elements import Element, element
from holdfast.cli.pages.fallbacks import Troubled, of_troubled, troubled_regions
from holdfast.cli.pages.files import files_section, live_share
from holdfast.cli.pages.parts import facts, legend, size_text, table, wrong
from holdfast.cli.pages.timeline import KINDS, MAX_LINES, attempts_per_column, timeline
from holdfast.regions.base.folders import PIPELINE_PROPERTY
from holdfast.regions.checkpoint.history_pages import MAX_FAILED
from holdfast.regions.checkpoint.physical_files import PhysicalFile
from holdfast.regions.checkpoint.read import Summary, in_flight_rows
from holdfast.regions.coordinator import HistoryRecord

#: Attempts of the history that a page tells of, the newest.
MAX_ATTEMPTS: Final = 5_000

#: Lines of a table of regions, of attempts, and of retained checkpoints.
MAX_REGIONS: Final = 500
MAX_LISTED: Final = 500


@dataclass(frozen=True)
class PipelineFacts:
    """What a page is made from.

    Attributes
    ----------
    folder : str
        The checkpoint folder.
    summaries : sequence of Summary
        Checkpoints that can be read, oldest first.
    shown : CheckpointMetadata or None
        The checkpoint whose regions are listed; None if there is none.
    records : sequence of HistoryRecord
        Attempts, oldest first.
    older : bool
        Whether there are older attempts than these.
    files : sequence of PhysicalFile
        Files of segments.
    wrong : sequence of str
        What cannot be read, a line each.
    """

    folder: str
    summaries: Sequence[Summary]
    shown: CheckpointMetadata | None
    records: Sequence[HistoryRecord]
    older: bool
    files: Sequence[PhysicalFile]
    wrong: Sequence[str]


def title_of(found: PipelineFacts) -> str:
    """Return what the page is called."""
    name = found.shown.properties.get(PIPELINE_PROPERTY) if found.shown else None
    return "Regional pipeline" + (f": {name}" if name else "")


def body_of(found: PipelineFacts) -> Iterator[Element]:
    """Yield the sections of the page."""
    troubled = troubled_regions(found.records)
    yield element("h1", title_of(found))
    yield element("p", "Checkpoints in ", element("code", found.folder), class_="muted")
    if found.shown is not None and (began := tables.beginning(found.shown)) is not None:
        yield element("p", f"{began[0].upper()}{began[1:]}.")
    yield from wrong("This cannot be read:", found.wrong)
    yield _overview(found)
    yield from _attempts(found, troubled)
    yield from _checkpoints(found.summaries)
    if found.shown is not None:
        yield from _regions(found.shown)
    yield from files_section(
        found.files, needed_by="retained checkpoints", writers="executors and drivers"
    )
    yield from _list_of_attempts(found.records)


def _overview(found: PipelineFacts) -> Element:
    if not found.summaries:
        return element("p", "There is no checkpoint that can be read.")
    newest = found.summaries[-1]
    metadata = newest.metadata
    counts = Counter(record.outcome for record in found.records)
    said = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in KINDS)
    failed = len(metadata.failed)
    return facts(
        {
            "newest checkpoint": (metadata.id, f"batch {metadata.batch_id}, {metadata.kind}"),
            "completed": (
                "global" if metadata.is_global else "regional",
                tables.time_text(metadata.created_ms),
            ),
            "regions": (
                len(metadata.regions),
                f"{failed:,} fell back, {newest.finished_regions:,} finished",
            ),
            "in flight": (
                f"{newest.in_flight_rows:,} rows",
                size_text(newest.in_flight_bytes),
            ),
            "size of the checkpoint": (
                size_text(newest.stored_bytes),
                f"{newest.staged_files:,} staged files of sinks",
            ),
            "attempts": (len(found.records), said),
            "files": (len(found.files), live_share(found.files)),
        }
    )


def _attempts(found: PipelineFacts, troubled: Sequence[Troubled]) -> Iterator[Element]:
    records = found.records
    yield element("h2", "Attempts")
    if not records:
        yield element("p", "The folder holds no history of attempts.")
        return
    if found.older:
        yield element(
            "p", f"These are the newest {len(records):,} attempts; older ones are left out."
        )
    if (each := attempts_per_column(len(records))) > 1:
        yield element(
            "p",
            f"A column stands for up to {each:,} attempts in a row: it shows the worst outcome, "
            "the longest time and the most rows of them.",
        )
    yield element("div", timeline(records, troubled), class_="wide")
    yield legend(
        {
            "blue": "global: every region contributed",
            "orange": "regional: some regions fell back to an older state",
            "hollow": "aborted: nothing was published",
            "violet": "rows in flight",
        }
    )
    yield element("h2", "Regions that failed")
    if not troubled:
        yield element("p", "None did in these attempts.")
        return
    said = (
        "Those of the most attempts come first. An attempt names at most "
        f"{MAX_FAILED} of its failed regions."
    )
    if len(troubled) > MAX_LINES:
        said += f" The picture has the first {MAX_LINES:,} of {len(troubled):,}."
    yield element("p", said)
    newest = found.summaries[-1].metadata.regions if found.summaries else {}
    yield table(
        of_troubled(troubled[:MAX_REGIONS], records, newest),
        of="regions that failed",
        all_rows=len(troubled),
    )


def _list_of_attempts(records: Sequence[HistoryRecord]) -> Iterator[Element]:
    if records:
        yield element("h2", "Attempts, one by one")
        listed = records[: -MAX_LISTED - 1 : -1]
        yield table(tables.of_attempts(listed), of="attempts, newest first", all_rows=len(records))


def _checkpoints(summaries: Sequence[Summary]) -> Iterator[Element]:
    yield element("h2", "Retained checkpoints")
    yield table(
        tables.of_checkpoints(summaries[: -MAX_LISTED - 1 : -1]),
        of="checkpoints, newest first",
        all_rows=len(summaries),
    )


def _regions(metadata: CheckpointMetadata) -> Iterator[Element]:
    yield element("h2", f"Regions of checkpoint {metadata.id}")
    entries = sorted(metadata.regions.values(), key=_order)
    if len(entries) > MAX_REGIONS:
        yield element(
            "p", "Regions that fell back come first, then those with most rows in flight."
        )
    yield table(
        tables.of_regions(entries[:MAX_REGIONS]),
        of="regions",
        all_rows=len(entries),
    )


def _order(entry: RegionEntry) -> tuple[bool, int, str]:
    return not entry.failed, -in_flight_rows(entry), entry.region
