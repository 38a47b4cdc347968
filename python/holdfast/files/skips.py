"""Rows that were moved to dead letters, as a file of a checkpoint folder records them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final, Protocol, TypeVar

from holdfast._core import CorruptSegmentError
from holdfast.files.paths import AnyPath

_VERSION: Final = 1

#: Column with the number of a row among all that wait.
ROW: Final = "_row"

#: The first number of consecutive rows, and the one behind the last.
Range = tuple[int, int]


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
