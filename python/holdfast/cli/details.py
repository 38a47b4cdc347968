"""``holdfast show --details``: the bytes of a checkpoint folder, its attempts and its damage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentRef
from holdfast.cli.output import documents, report, tables, timeline
from holdfast.cli.output.tables import Cell, Table, bar
from holdfast.files.paths import AnyPath
from holdfast.files.physical_files import PhysicalFile, physical_files
from holdfast.files.printable import printable
from holdfast.files.verdicts import UNREADABLE
from holdfast.queries.folder import STATE_FILES_FOLDER
from holdfast.queries.logs import committed_batches, entry_of
from holdfast.queries.state import StateOfQuery, StoredSegment, require_committed
from holdfast.regions.checkpoint.history import read_history
from holdfast.regions.checkpoint.read import Summary
from holdfast.regions.files.folders import HISTORY_FOLDER, SEGMENTS_FOLDER

_SIZES: Final = (
    *("runs", "run bytes", "changelogs", "changelog bytes"),
    *("bytes", "entries", "damaged"),
)


def print_pipeline(
    folder: AnyPath, summaries: Sequence[Summary], shown: CheckpointMetadata | None
) -> list[str]:
    """Print attempts, regions and operators of `shown`, and files; returns lines about damage."""
    history = read_history(folder / HISTORY_FOLDER, last=timeline.MAX_ATTEMPTS)
    if history.records:
        report.print_section("newest attempts", timeline.of_attempts(history.records))
    if shown is not None:
        name, document = f"checkpoint {shown.id}", documents.of_regions(shown)
        document["regions"].sort(key=_order)
        report.print_section(f"regions of {name}, troubled ones first", tables.of_regions(document))
        report.print_section(f"operators of {name}", _operators(shown.regions.values()))
    needed = [
        ref
        for summary in summaries
        for entry in summary.metadata.regions.values()
        for _, _, ref in entry.refs()
    ]
    _print_files(physical_files(folder / SEGMENTS_FOLDER, needed))
    return list(history.damage)


def _order(region: dict[str, Any]) -> tuple[bool, int, str]:
    return not region["fallbacks"], -region["in_flight_rows"], region["region"]


def _operators(entries: Iterable[RegionEntry]) -> Table:
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for entry in entries:
        for operator, _, ref in entry.refs():
            found[operator].append((entry.region, ref.length))
    rows: list[list[Cell]] = [
        [
            printable(operator),
            len({region for region, _ in of_operator}),
            len(of_operator),
            sum(size for _, size in of_operator),
        ]
        for operator, of_operator in found.items()
    ]
    columns = ["operator", "regions", "segments", "bytes"]
    return tables.largest_first(Table(columns, rows, frozenset({"operator"})), by="bytes")


def _print_files(files: Sequence[PhysicalFile]) -> None:
    whole, live = sum(file.bytes or 0 for file in files), sum(file.live_bytes for file in files)
    missing = sum(file.bytes is None for file in files)
    title = f"files: {live:,} of {whole:,} bytes are live"
    if missing:
        title += f", and {missing:,} files are missing"
    rows: list[list[Cell]] = [
        [
            printable(file.name),
            "missing" if file.bytes is None else file.bytes,
            file.live_bytes,
            file.dead_bytes,
            file.live_segments,
            bar(file.live_bytes, file.bytes or file.live_bytes),
        ]
        # The reader looks for files with the most dead bytes.
        for file in sorted(files, key=lambda one: (one.bytes is not None, -one.dead_bytes))
    ]
    columns = ["file", "bytes", "live bytes", "dead bytes", "live segments", "live"]
    words = frozenset({"file", "live"})
    report.print_section(title, Table(columns, rows, words, frozenset({"live"})))


def print_query(folder: AnyPath, id: int | None) -> list[str]:
    """Read the state of all batches of a query, and print its sizes; returns damage, a line each.

    Shows operators and stores of the batch `id`, by default of the newest readable one.
    """
    logged = committed_batches(folder)
    if id is not None:
        require_committed(folder, id, logged)
    state = StateOfQuery(folder)
    batches: dict[int, list[StoredSegment]] = {}
    wrong: dict[str, None] = {}  # each once: several batches may have the same segment
    with report.progress("batch") as start:
        for batch in logged:
            progress = start(batch)
            segments: list[StoredSegment] | None = None
            try:
                segments = list(state.segments(batch))
                found = {one.message: None for one in segments if one.message is not None}
            except UNREADABLE as error:
                found = {str(error): None}
            progress(1, 1)
            # A running query may have deleted the batch.
            if found and not entry_of(folder, batch).exists():
                continue
            wrong |= found
            if segments is not None:
                batches[batch] = segments
    if batches:
        report.print_section("batches in the commit log, newest first", _batches(batches))
        shown = max(batches) if id is None else id
        listed = batches.get(shown, [])
        for title, table in _of_batch(listed):
            report.print_section(f"{title} of batch {shown}", table)
    needed = {segment.ref for segments in batches.values() for segment in segments}
    _print_files(physical_files(folder / STATE_FILES_FOLDER, needed))
    return [*wrong]


def _batches(batches: dict[int, list[StoredSegment]]) -> Table:
    seen: set[SegmentRef] = set()
    rows: list[list[Cell]] = []
    for batch, segments in batches.items():
        new = {one.ref: one.ref.length for one in segments if one.ref not in seen}
        seen.update(new)
        rows.insert(0, [batch, *_sizes(segments), sum(new.values())])
    columns = ["batch", *_SIZES, "bytes written"]
    return tables.with_bars(Table(columns, rows, frozenset()), by="bytes written")


def _of_batch(segments: Sequence[StoredSegment]) -> Iterator[tuple[str, Table]]:
    """Yield the operators and the stores of a batch with their sizes, the largest first."""
    operators: dict[int, list[StoredSegment]] = defaultdict(list)
    stores: dict[tuple[int, int, str | None], list[StoredSegment]] = defaultdict(list)
    for one in segments:
        name = None if isinstance(one.report, str) else printable(one.report.owner.store)
        operators[one.operator].append(one)
        stores[one.operator, one.partition, name].append(one)
    counts = Counter(operator for operator, _, _ in stores)
    rows = [[operator, counts[operator], *_sizes(found)] for operator, found in operators.items()]
    table = Table(["operator", "stores", *_SIZES], rows, frozenset())
    yield "operators", tables.largest_first(table, by="bytes")
    rows = [[*store, *_versions(found), *_sizes(found)] for store, found in stores.items()]
    columns = ["operator", "partition", "store", "version", "newest run of", *_SIZES]
    yield "stores", tables.largest_first(Table(columns, rows, frozenset({"store"})), by="bytes")


def _versions(segments: Sequence[StoredSegment]) -> list[Cell]:
    """Return the version of the newest segment, and of the newest run."""
    found = [one.report for one in segments if not isinstance(one.report, str)]
    return [
        max((one.created for one in found), default=None),
        max((one.created for one in found if one.kind == "run"), default=None),
    ]


def _sizes(segments: Sequence[StoredSegment]) -> list[Cell]:
    """Return the values of the columns `_SIZES`."""
    runs, changelogs = list[int](), list[int]()
    entries = damaged = 0
    for segment in segments:
        if isinstance(segment.report, str):
            damaged += 1
            continue
        if segment.report.kind == "in_flight":
            # Pending input, counted only in the sum of all bytes.
            continue
        entries += segment.report.entries
        of_kind = runs if segment.report.kind == "run" else changelogs
        of_kind.append(segment.ref.length)
    size = sum(one.ref.length for one in segments)
    sums = [len(runs), sum(runs), len(changelogs), sum(changelogs)]
    return [*sums, size, entries, damaged]
