"""The history of a pipeline's checkpoints as a table for people."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final, TextIO

from holdfast._checks import require_int
from holdfast.files.paths import AnyPath
from holdfast.files.printable import printable
from holdfast.regions.base.tables import GAP, aligned
from holdfast.regions.coordinator import FailedRegion, HistoryRecord
from holdfast.regions.files.folders import CheckpointFolders

_COLUMNS: Final = (
    "id",
    "batch",
    "outcome",
    "failed regions",
    "in-flight rows",
    "files",
    "bytes",
    "time ms",
)
_WORDS: Final = {"outcome", "failed regions"}
_COLOURS: Final = {"global": "green", "regional": "yellow", "aborted": "red"}
_TEXT_LENGTH: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryRow(HistoryRecord):
    """An ended attempt; `files` with its checkpoint's segments, and their `bytes`, if known."""

    files: int | None = 0
    bytes: int | None = 0


def history_rows(records: Iterable[HistoryRecord], *, checkpoint: AnyPath) -> list[HistoryRow]:
    """Turn records of attempts into rows of the table.

    Files and bytes are known only for retained checkpoints, from their metadata. Raises an OSError
    or NewerFormatError if that cannot be read.
    """
    folders = CheckpointFolders(checkpoint)
    retained = frozenset(folders.ids())
    rows = []
    for record in records:
        known = {field.name: getattr(record, field.name) for field in fields(record)}
        files, size = _stored(folders, record, retained)
        rows.append(HistoryRow(**known, files=files, bytes=size))
    return rows


def _stored(
    folders: CheckpointFolders, record: HistoryRecord, retained: Collection[int]
) -> tuple[int | None, int | None]:
    if record.outcome == "aborted":
        return 0, 0
    if record.id not in retained:
        return None, None
    try:
        metadata = folders.read(record.id)
    except FileNotFoundError:
        return None, None  # it is not retained any more
    refs = [ref for entry in metadata.regions.values() for _, _, ref in entry.refs()]
    return len({(ref.term, ref.file) for ref in refs}), sum(ref.length for ref in refs)


def history_table(rows: Sequence[HistoryRow], *, max_failed: int = 1) -> str:
    """Return the history as aligned text: a head, and one line per row, without trailing spaces.

    At most `max_failed` regions of a checkpoint are named; the others are counted.

    Examples
    --------
    >>> lost = FailedRegion(region="JFK", origin=4, cause="expired")
    >>> row = HistoryRow(
    ...     id=5, batch_id=4, kind="checkpoint", outcome="regional", failed=(lost,),
    ...     started_ms=0, ended_ms=0,
    ... )
    >>> print(history_table([row]))
    id  batch  outcome   failed regions     in-flight rows  files  bytes  time ms
     5      4  regional  JFK at 4: expired               0      0      0        0
    """
    require_int("max_failed", max_failed, at_least=1)
    cells = [
        (
            str(row.id),
            str(row.batch_id),
            row.outcome,
            failed_text(row, max_failed=max_failed),
            f"{row.in_flight_rows:,}",
            _figure(row.files),
            _figure(row.bytes),
            f"{row.ms:,}",
        )
        for row in rows
    ]
    return "\n".join(aligned(_COLUMNS, cells, words=_WORDS))


def print_history(rows: Sequence[HistoryRow], *, file: TextIO | None = None) -> None:
    """Print the history: with colours by `rich` if it is installed, else as plain text."""
    out = sys.stdout if file is None else file
    text = history_table(rows)
    if importlib.util.find_spec("rich") is None:
        print(text, file=out)
        return
    from rich.console import Console
    from rich.text import Text

    head, *lines = text.split("\n")
    # A rich table would break or cut lines on a narrow screen.
    console = Console(file=out, highlight=False, soft_wrap=True)
    console.print(Text(head, style="bold"))
    for row, line in zip(rows, lines, strict=True):
        styled = Text(line)
        styled.highlight_words([f"{GAP}{row.outcome}"], style=_COLOURS[row.outcome])
        console.print(styled)


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def failed_text(row: HistoryRecord, *, max_failed: int) -> str:
    """Return in one line why an attempt was aborted, and the failed regions."""
    parts = [_short(row.cause)] if row.cause else []
    parts += [_region(failed) for failed in row.failed[:max_failed]]
    text = "; ".join(parts)
    rest = len(row.failed[max_failed:]) + row.unnamed
    return f"{text} +{rest:,} more" if rest > 0 else text


def _region(failed: FailedRegion) -> str:
    origin = "" if failed.origin is None else f" at {failed.origin}"
    return f"{_short(failed.region)}{origin}: {_short(failed.cause)}"


def _short(text: str) -> str:
    """Return the text on one line, cut if it is long."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _TEXT_LENGTH else line[: _TEXT_LENGTH - 1].rstrip() + "…"
