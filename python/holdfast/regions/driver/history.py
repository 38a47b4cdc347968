"""The history of a pipeline's checkpoints as a table for people."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from holdfast._checks import require_int
from holdfast.regions.base.folders import METADATA_FOLDER
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.base.printable import printable
from holdfast.regions.base.tables import GAP, aligned
from holdfast.regions.checkpoint.read import read_metadata
from holdfast.regions.coordinator import FailedRegion, HistoryRecord, Outcome

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
_CAUSE_LENGTH: Final = 40


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """One checkpoint attempt that has ended.

    Attributes
    ----------
    id
        Id of the attempt.
    batch
        Spark's id of the batch.
    outcome
        Whether every region contributed, some fell back to an older state, or nothing was
        published.
    failed
        The regions that failed; of very many, the first ones.
    unnamed
        How many further regions failed.
    in_flight_rows
        Rows that the checkpoint covers and that no state reflects yet.
    files
        Physical files that hold the segments of the checkpoint; None if that is not known.
    bytes
        Size of these segments in bytes; None if that is not known.
    ms
        Time from the trigger to the end of the attempt, in milliseconds.
    cause
        Why the attempt was aborted; empty if it was not.
    """

    id: int
    batch: int
    outcome: Outcome
    failed: tuple[FailedRegion, ...] = ()
    unnamed: int = 0
    in_flight_rows: int = 0
    files: int | None = 0
    bytes: int | None = 0
    ms: int = 0
    cause: str = ""


def history_rows(records: Iterable[HistoryRecord], *, checkpoint: AnyPath) -> list[HistoryRow]:
    """Turn what the coordinator remembers of attempts into rows of the table.

    Parameters
    ----------
    records : iterable of HistoryRecord
        As `RegionalQuery.history` returns them.
    checkpoint : pathlib.Path
        The checkpoint folder of the pipeline. Files and bytes are read from the metadata there, so
        they are known of the retained checkpoints only. An aborted attempt has none.

    Returns
    -------
    list of HistoryRow

    Raises
    ------
    OSError, NotImplementedError
        If the metadata of a retained checkpoint cannot be read.
    """
    retained = frozenset(list_metadata(checkpoint / METADATA_FOLDER))
    return [_row(record, checkpoint, retained) for record in records]


def _row(record: HistoryRecord, checkpoint: AnyPath, retained: Collection[int]) -> HistoryRow:
    files: int | None = 0
    size: int | None = 0
    if record.outcome != "aborted":
        files, size = _stored(checkpoint, record.id) if record.id in retained else (None, None)
    return HistoryRow(
        id=record.id,
        batch=record.batch_id,
        outcome=record.outcome,
        failed=record.failed,
        unnamed=record.unnamed,
        in_flight_rows=record.in_flight_rows,
        files=files,
        bytes=size,
        ms=record.ended_ms - record.started_ms,
        cause=record.cause,
    )


def _stored(checkpoint: AnyPath, id: int) -> tuple[int | None, int | None]:
    try:
        metadata = read_metadata(checkpoint, id)
    except FileNotFoundError:
        return None, None  # it is not retained any more
    refs = [ref for entry in metadata.regions.values() for _, _, ref in entry.refs()]
    return len({(ref.term, ref.file) for ref in refs}), sum(ref.length for ref in refs)


def history_table(rows: Sequence[HistoryRow], *, max_failed: int = 1) -> str:
    """Return the history as aligned text.

    Parameters
    ----------
    rows : sequence of HistoryRow
        One line each, in this order.
    max_failed : int, default 1
        How many failed regions of a checkpoint are named; of the others their number is said.

    Returns
    -------
    str
        Lines without trailing spaces: a head, and one per row.

    Raises
    ------
    ValueError
        If not even one region may be named.

    Examples
    --------
    >>> lost = FailedRegion(region="JFK", origin=4, cause="expired")
    >>> print(history_table([HistoryRow(id=5, batch=4, outcome="regional", failed=(lost,))]))
    id  batch  outcome   failed regions     in-flight rows  files  bytes  time ms
     5      4  regional  JFK at 4: expired               0      0      0        0
    """
    return "\n".join(aligned(_COLUMNS, _cells(rows, max_failed=max_failed), words=_WORDS))


def print_history(
    rows: Sequence[HistoryRow], *, max_failed: int = 1, file: TextIO | None = None
) -> None:
    """Print the history: with colours by `rich` if it is installed, else as plain text.

    Parameters
    ----------
    rows : sequence of HistoryRow
        One line each, in this order.
    max_failed : int, default 1
        How many failed regions of a checkpoint are named; of the others their number is said.
    file : file object, optional
        Where to print; standard output if None.

    Raises
    ------
    ValueError
        If not even one region may be named.
    """
    out = sys.stdout if file is None else file
    text = history_table(rows, max_failed=max_failed)
    if importlib.util.find_spec("rich") is None:
        print(text, file=out)
        return
    from rich.console import Console
    from rich.text import Text

    head, *lines = text.split("\n")
    # As text and not as a rich table: that would break or cut lines where the screen is narrow.
    console = Console(file=out, highlight=False, soft_wrap=True)
    console.print(Text(head, style="bold"))
    for row, line in zip(rows, lines, strict=True):
        styled = Text(line)
        styled.highlight_words([f"{GAP}{row.outcome}"], style=_COLOURS[row.outcome])
        console.print(styled)


def _cells(rows: Sequence[HistoryRow], *, max_failed: int) -> list[tuple[str, ...]]:
    require_int("max_failed", max_failed, at_least=1)
    return [
        (
            str(row.id),
            str(row.batch),
            row.outcome,
            failed_text(row, max_failed=max_failed),
            f"{row.in_flight_rows:,}",
            _figure(row.files),
            _figure(row.bytes),
            f"{row.ms:,}",
        )
        for row in rows
    ]


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def failed_text(row: HistoryRow | HistoryRecord, *, max_failed: int) -> str:
    """Say in one line why an attempt was aborted, and which regions failed.

    Parameters
    ----------
    row : HistoryRow or HistoryRecord
        The attempt.
    max_failed : int
        How many regions are named.
    """
    parts = [_short(row.cause, _CAUSE_LENGTH)] if row.cause else []
    parts += [_region(failed) for failed in row.failed[:max_failed]]
    text = "; ".join(parts)
    rest = len(row.failed[max_failed:]) + row.unnamed
    return f"{text} +{rest:,} more" if rest > 0 else text


def _region(failed: FailedRegion) -> str:
    origin = "" if failed.origin is None else f" at {failed.origin}"
    return f"{_short(failed.region, _CAUSE_LENGTH)}{origin}: {_short(failed.cause, _CAUSE_LENGTH)}"


def _short(text: str, length: int) -> str:
    """Return the text on one line, cut if it is long."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
