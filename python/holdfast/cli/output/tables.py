"""Tables of checkpoints for commands: columns of the documents that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.cli.output import documents
from holdfast.files.printable import printable
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import failed_text
from holdfast.regions.splits.assignment import Skipped

#: A word, a figure, or None for a value that is unknown or does not exist.
Cell = str | int | None

#: Bound on the failed regions that the line of a checkpoint names.
NAMED_REGIONS: Final = 3

#: Length of the part of a random name that tells a run of a pipeline from others.
RUN_LENGTH: Final = 8

_BAR_LENGTH: Final = 20


@dataclass(frozen=True)
class Table:
    """Lines of cells.

    - `rows`: a cell for each column. Text of the data is printable, but not escaped.
    - `words`: columns of words; the others have figures. `signs`: those of bars or signs.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[str]
    signs: frozenset[str] = frozenset()


def bar(part: int, whole: int) -> str:
    """Return a bar whose filled part is the share of the whole."""
    filled = round(_BAR_LENGTH * part / whole) if whole else 0
    return "#" * filled + "." * (_BAR_LENGTH - filled)


def with_bars(table: Table, *, by: str) -> Table:
    """Add bars of the figures in a column: the largest is filled."""
    column = table.columns.index(by)
    values = [value if isinstance(value := row[column], int) else 0 for row in table.rows]
    most = max(values, default=0)
    return replace(
        table,
        columns=[*table.columns, f"{by} (bars)"],
        rows=[[*row, bar(n, most)] for row, n in zip(table.rows, values, strict=True)],
        words=table.words | {f"{by} (bars)"},
        signs=frozenset({f"{by} (bars)"}),
    )


def largest_first(table: Table, *, by: str) -> Table:
    """Sort by a column of figures, and add bars of it."""
    column = table.columns.index(by)
    rows = sorted(table.rows, key=lambda row: -int(row[column] or 0))
    return with_bars(replace(table, rows=rows), by=by)


def _table(
    items: Iterable[Mapping[str, Any]],
    columns: str,
    *,
    words: set[str],
    of: Mapping[str, str | Callable[[Mapping[str, Any]], Any]],
) -> Table:
    """Return a line for each item.

    - `columns`: names with commas between them. A cell is the item's value of the same name.
    - `words`: columns of words; the others have figures.
    - `of`: by column, another name in the item, or a function that makes the value from the item.
    """
    names = columns.split(", ")
    sources = [of.get(name, name.replace(" ", "_").replace("-", "_")) for name in names]
    rows: list[list[Cell]] = []
    for item in items:
        values = [item.get(one) if isinstance(one, str) else one(item) for one in sources]
        # Names come from data, causes have any text.
        rows.append([(printable(one) or None) if isinstance(one, str) else one for one in values])
    return Table(names, rows, frozenset(words))


def of_checkpoints(document: Mapping[str, Any]) -> Table:
    """Return one line per checkpoint of a regional pipeline."""
    return _table(
        document["checkpoints"],
        "id, batch, kind, completed, regions, finished, in-flight rows, in-flight bytes, staged, "
        "bytes, failed (origin)",
        words={"kind", "completed", "failed (origin)"},
        of={
            "completed": lambda one: "global" if one["global"] else "regional",
            "finished": "finished_regions",
            "staged": "staged_files",
            "bytes": "stored_bytes",
            "failed (origin)": lambda one: _failed(one["failed"]),
        },
    )


def of_regions(document: Mapping[str, Any]) -> Table:
    """Return one line per region of a checkpoint."""
    return _table(
        document["regions"],
        "region, state, origin, fallbacks, stale since, in-flight rows, in-flight bytes, "
        "operators, segments, bytes, staged, cause",
        words={"region", "state", "stale since", "cause"},
        of={
            "state": _state,
            "stale since": lambda one: time_text(one["stale_since_ms"]),
            "bytes": "stored_bytes",
            "staged": "staged_files",
        },
    )


def of_skipped(skipped: Iterable[Skipped]) -> Table:
    """Return one line per split of a file that is not read."""
    found = [
        {"skipped": str(one.split), "bytes": one.split.size, "reason": one.reason}
        for one in skipped
    ]
    return _table(found, "skipped, bytes, reason", words={"skipped", "reason"}, of={})


def of_events(events: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line per event of a coordinator that waits for its region."""
    return _table(events, "operator, region, attempt, bytes", words={"operator", "region"}, of={})


def of_attempts(records: Sequence[HistoryRecord]) -> Table:
    """Return one line per attempt."""
    named = [failed_text(record, max_failed=NAMED_REGIONS) for record in records]
    attempts = documents.of_history(records)["attempts"]
    return _table(
        [{**one, "failed_regions": text} for one, text in zip(attempts, named, strict=True)],
        "id, batch, kind, outcome, ended, time ms, in-flight rows, run, failed regions",
        words={"kind", "outcome", "ended", "run", "failed regions"},
        of={
            "ended": lambda one: time_text(one["ended_ms"]),
            "time ms": lambda one: one["ended_ms"] - one["started_ms"],
            "run": lambda one: one["run"][:RUN_LENGTH],
        },
    )


def of_query(document: Mapping[str, Any]) -> Table:
    """Return one line for the checkpoint of an ordinary query."""
    return _table(
        [document["query"]],
        "planned batch, committed batch, partitions, files, bytes",
        words=set(),
        of={"planned batch": "planned", "committed batch": "committed", "bytes": "file_bytes"},
    )


def of_values(document: Mapping[str, Any]) -> Table:
    """Return one line with the values of a document."""
    return Table([*document], [[str(value) for value in document.values()]], frozenset(document))


def of_operators(document: Mapping[str, Any]) -> Table:
    """Return one line per stateful operator of an ordinary query."""
    columns = "operator, name, stores, partitions, newest segment bytes"
    return _table(document["operators"], columns, words={"name"}, of={})


def of_segments(document: Mapping[str, Any]) -> Table:
    """Return one line per segment of a query's batch."""
    return _table(
        ({**one, **(one.get("index") or {})} for one in document["segments"]),
        "operator, partition, store, kind, version, entries, bytes, stored bytes, blocks, "
        "separator bytes, filters, filter bytes, offset, file",
        words={"store", "kind", "file"},
        of={"kind": lambda one: one.get("kind", "damaged")},
    )


def of_move(document: Mapping[str, Any]) -> Table:
    """Return one line per operator whose state another provider gets."""
    columns = "operator, name, partitions, rows, bytes"
    return _table(document["operators"], columns, words={"name"}, of={})


def of_purge(document: Mapping[str, Any]) -> Table:
    """Return one line per adoption whose old files are deleted."""
    return _table(document["adoptions"], "batch, files, bytes", words=set(), of={})


def of_parked(document: Mapping[str, Any]) -> Table:
    """Return one line per parked partition of a query."""
    return _table(
        document["parked"],
        "operator, name, partition, since batch, since, batches, tries, keys, rows, bytes, error",
        words={"name", "since", "error"},
        of={
            "since": lambda one: time_text(one["since_ms"]),
            "batches": lambda one: len(one["inputs"]),
        },
    )


def of_dead_letters(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line per batch and error, and one with the number of all rows."""
    return _table(
        [*found, {"query": "total", "rows": sum(one["rows"] for one in found)}],
        "query, source, batch, error class, rows, first error",
        words={"query", "error class", "first error"},
        of={},
    )


def of_quarantine(document: Mapping[str, Any]) -> Table:
    """Return one line per region in quarantine."""
    return _table(
        document["quarantined"],
        "region, since, fallbacks, origin, rows, bytes, error",
        words={"region", "since", "error"},
        of={"since": lambda one: time_text(one["since_ms"])},
    )


def of_verdicts(verdicts: Sequence[Mapping[str, Any]], *, number: str, parts: str) -> Table:
    """Return one line per checkpoint or batch that was read, with the number of its parts."""
    return _table(
        verdicts,
        f"{number}, verdict, readable {parts}, {parts}, readable segments, segments",
        words={"verdict"},
        of={"verdict": lambda one: "damaged" if one["damaged"] else "ok"},
    )


def _failed(failed: Sequence[Mapping[str, Any]]) -> str:
    named = [f"{one['region']} ({one['origin']})" for one in failed[:NAMED_REGIONS]]
    if len(failed) > NAMED_REGIONS:
        named.append(f"and {len(failed) - NAMED_REGIONS} more")
    return ", ".join(named)


def _state(region: Mapping[str, Any]) -> str:
    if region["failed"]:
        return "fell back"
    if region["fallbacks"]:
        return "quarantined"
    return "finished" if region["finished"] else "healthy"


def time_text(ms: int | None) -> str:
    """Return a time in milliseconds since 1970 as text; ``-`` without one."""
    if ms is None:
        return "-"
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        # Past the year 9999, so show the stored number.
        return f"{ms} ms"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
