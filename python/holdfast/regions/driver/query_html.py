"""A pipeline as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.files.printable import printable
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver.history import failed_text

#: Attempts that are shown, the newest.
SHOWN_ATTEMPTS: Final = 10

#: Failed regions that are named.
_NAMED_REGIONS: Final = 3

_COLUMNS: Final = ("id", "batch", "outcome", "failed regions", "in-flight rows", "time ms")
# Legible on white and on black.
_COLOURS: Final = {"global": "#2e8b57", "regional": "#c77700", "aborted": "#d0342c"}


def query_html(
    name: str, state: str, latest: CheckpointMetadata, attempts: Sequence[HistoryRecord]
) -> str:
    """Return a paragraph on where a pipeline stands, and a table of attempts.

    Returns
    -------
    str
        HTML of one element. Texts from data or from exceptions are escaped.
    """
    return "".join(["<div>", *_standing(name, state, latest), *_table(attempts), "</div>"])


def _standing(name: str, state: str, latest: CheckpointMetadata) -> Iterator[str]:
    regions = latest.regions
    waiting = sum(in_flight_rows(entry) for entry in regions.values())
    yield f"<p>Regional pipeline <b>{_text(name)}</b>: {_text(state)}.<br/>"
    yield f"Checkpoint {latest.id}, batch {latest.batch_id}: {len(regions):,} regions, "
    yield f"{waiting:,} rows in flight"
    held = {region: entry.origin for region, entry in regions.items() if in_quarantine(entry)}
    for said, origins in (("Fell back", latest.failed), ("In quarantine", held)):
        if origins:
            named = sorted(origins.items())
            shown = ", ".join(f"{_text(one)} at {origin}" for one, origin in named[:_NAMED_REGIONS])
            more = f" and {len(named) - _NAMED_REGIONS:,} more" if named[_NAMED_REGIONS:] else ""
            yield f". {said}: {shown}{more}"
    yield ".</p>"


def _table(attempts: Sequence[HistoryRecord]) -> Iterator[str]:
    if not attempts:
        return
    heads = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    for record in attempts:
        outcome = f'<b style="color: {_COLOURS[record.outcome]}">{record.outcome}</b>'
        failed = _text(failed_text(record, max_failed=_NAMED_REGIONS))
        yield f"<tr><td>{record.id}</td><td>{record.batch_id}</td><td>{outcome}</td>"
        yield f'<td style="text-align: left">{failed}</td><td>{record.in_flight_rows:,}</td>'
        yield f"<td>{record.ms:,}</td></tr>"
    yield "</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text))
