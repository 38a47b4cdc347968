"""Pending rows that were moved to dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.files.skips import Range, read_records
from holdfast.regions.files.folders import CheckpointFolders

#: Ranges of rows that were moved, by region and the checkpoint that stored the rows.
Skipped = Mapping[str, Mapping[int, Sequence[Range]]]


@dataclass(frozen=True)
class SkippedRows:
    """Pending rows that a region does not receive; their format is in FORMAT.md.

    `rows` are numbers among the rows that the checkpoint `created` stored for the region. The file
    `dead_letters` has the rows when they are `done`; the pipeline does not start before.
    """

    region: str
    created: int
    rows: tuple[Range, ...]
    dead_letters: str
    done: bool


def skipped_rows(folders: CheckpointFolders) -> Skipped:
    """Return the ranges of moved rows, ascending; OSError if a command has not finished."""
    found: dict[str, dict[int, list[Range]]] = {}
    for one in read_records(folders.skipped, SkippedRows):
        if not one.done:
            raise OSError(
                f"rows of region {one.region!r} are being moved to {one.dead_letters}, and the "
                "command was interrupted: run `holdfast quarantine CHECKPOINT skip` again"
            )
        found.setdefault(one.region, {}).setdefault(one.created, []).extend(one.rows)
    return {
        region: {created: sorted(ranges) for created, ranges in pieces.items()}
        for region, pieces in found.items()
    }
