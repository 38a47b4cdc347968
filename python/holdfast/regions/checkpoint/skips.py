"""Rows that were moved to dead letters, as a file of a checkpoint folder records them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol, TypeVar

from holdfast._core import CorruptSegmentError
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.files.paths import AnyPath

_VERSION: Final = 1

#: Column with the number of a row among all that wait.
ROW: Final = "_row"

#: The first number of consecutive rows, and the one behind the last.
Range = tuple[int, int]

#: Ranges of rows that were moved, by region and the checkpoint that stored the rows.
Skipped = Mapping[str, Mapping[int, Sequence[Range]]]


class AnySkip(Protocol):
    """Rows of one place that were moved."""

    @property
    def rows(self) -> tuple[Range, ...]:
        """The rows, by their numbers there."""

    @property
    def dead_letters(self) -> str:
        """The file that has the rows."""

    @property
    def done(self) -> bool:
        """False while the file may not be there yet."""


S = TypeVar("S", bound=AnySkip)


def read_records(file: AnyPath, kind: type[S]) -> list[S]:
    """Return what a file records; nothing without the file.

    Raises
    ------
    CorruptSegmentError
        If it is damaged.
    NotImplementedError
        If a newer Holdfast wrote it.
    """
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise CorruptSegmentError(f"{file} is damaged: {error}") from None
    if found["version"] != _VERSION:
        raise NotImplementedError(f"{file} was written by a newer Holdfast")
    return [
        kind(**{**one, "rows": tuple((begin, end) for begin, end in one["rows"])})
        for one in found["skipped"]
    ]


def write_records(file: AnyPath, skips: Iterable[S]) -> None:
    """Replace what a file records, durably."""
    records = [asdict(skip) for skip in skips]  # type: ignore[call-overload]
    file.replace_text(json.dumps({"version": _VERSION, "skipped": records}))


@dataclass(frozen=True)
class SkippedRows:
    """Rows that a region owed and does not get; their format is in FORMAT.md.

    Attributes
    ----------
    created : int
        The checkpoint that stored them.
    rows : tuple of Range
        Their numbers among those that it stored for the region.
    dead_letters : str
        The file that has the rows.
    done : bool
        False while the file may not be there yet. Then the pipeline does not start.
    """

    region: str
    created: int
    rows: tuple[Range, ...]
    dead_letters: str
    done: bool


def skipped_rows(folders: CheckpointFolders) -> Skipped:
    """Return the ranges of rows that were moved, ascending.

    Raises
    ------
    OSError
        If a command has not finished.
    """
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
