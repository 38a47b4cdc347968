"""Dead letters: Parquet files with rows that a command moved out of the pending rows.

A row is written before it is left out anywhere. A file gets its name only when its rows are certain
to be left out, so a reader sees no row that is processed as well.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli import folders
from holdfast.cli.output import exported_rows
from holdfast.files.paths import AnyPath
from holdfast.files.skips import ROW, Range

if TYPE_CHECKING:
    import argparse

    import pyarrow as pa

#: Column in addition to those of the rows.
ERROR: Final = "_error"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that moves rows."""
    command.add_argument(
        "--dead-letter",
        required=True,
        metavar="DIR",
        help="folder for a new Parquet file with these rows, a path or a URI",
    )
    command.add_argument(
        "--yes", action="store_true", help="move the rows (default: only count them)"
    )


def stage(letters: AnyPath, name: str, rows: pa.Table, error: str | None) -> AnyPath:
    """Write rows durably, without `ROW`, for a new file; no reader sees it before `publish`."""
    import pyarrow as pa

    letters.make_folder(exist_ok=True)
    number = next(n for n in range(sys.maxsize) if not (letters / f"{name}-{n}.parquet").exists())
    file = letters / f"{name}-{number}.parquet"
    content = io.BytesIO()
    errors = pa.array([error] * rows.num_rows, pa.string())
    exported_rows.write_parquet(rows.drop_columns([ROW]).append_column(ERROR, errors), content)
    staged = _staged(file)
    staged.unlink(missing_ok=True)
    staged.create(content.getvalue())
    letters.sync()
    return file


def publish(path: str) -> None:
    """Give a file its name; may be repeated."""
    file = folders.given(path)
    if not file.exists():
        size = _staged(file).status().st_size
        file.parent.publish([(_staged(file).name, file.name, size)])
        file.parent.sync()
    _staged(file).unlink(missing_ok=True)


def take_back(path: str) -> None:
    """Remove the staged output for a file."""
    _staged(folders.given(path)).unlink(missing_ok=True)


def _staged(file: AnyPath) -> AnyPath:
    # Readers of the folder ignore names that begin with a dot.
    return file.with_name(f".{file.name}")


def numbers_by(places: Sequence[int], numbers: Sequence[int]) -> Mapping[int, Sequence[int]]:
    """Return the numbers of rows by their place."""
    found: dict[int, list[int]] = {}
    for place, number in zip(places, numbers, strict=True):
        found.setdefault(place, []).append(number)
    return found


def ranges(numbers: Sequence[int]) -> tuple[Range, ...]:
    """Return numbers as ascending ranges."""
    found: list[Range] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)
