"""Rows that were moved to dead letters, as a file of a checkpoint folder records them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final, TypeVar

from holdfast._core import CorruptSegmentError
from holdfast.files.paths import AnyPath

_VERSION: Final = 1

#: Column with the number of a row among the pending rows.
ROW: Final = "_row"

#: The first number of consecutive rows, and the one after the last.
Range = tuple[int, int]


S = TypeVar("S")


def read_records(file: AnyPath, kind: Callable[..., S]) -> list[S]:
    """Return a file's records, with ``rows`` as `Range` each; nothing without the file.

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


def write_records(file: AnyPath, skips: Iterable[Any]) -> None:
    """Replace a file's records, durably."""
    records = [asdict(skip) for skip in skips]
    file.replace_text(json.dumps({"version": _VERSION, "skipped": records}))
