"""``holdfast dead-letters``: the rows that queries have set aside, or their number by error."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import folders
from holdfast.cli.output import exported_rows, report, tables
from holdfast.files.paths import AnyPath, absolute, listed_with_status

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final = ["source", "batch", "error_class", "error", "at"]


def show(arguments: argparse.Namespace) -> None:
    """Print how many rows each batch has set aside for which error, or with ``--rows`` the rows.

    OSError if some files are no dead letters.
    """
    folder = absolute(folders.given(arguments.folder))
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    found: list[dict[str, Any]] = []
    wrong: list[str] = []
    for file in _files(folder):
        try:
            if arguments.rows:
                exported_rows.write(_rows(file), "json")
            else:
                found += _counts(file)
        except (ValueError, OSError) as error:
            wrong.append(f"{file}: {error}")
    found.sort(key=lambda one: (one["query"], one["source"], one["batch"]))
    if arguments.json:
        for one in found:
            print(json.dumps(one))
    elif found:
        report.print_table(tables.of_dead_letters(found))
    if not found and not wrong and not arguments.rows:
        print(f"holdfast: {folder} has no dead letters", file=sys.stderr)
    sys.stdout.flush()
    report.refuse(wrong, "files are no dead letters of bad rows, or damaged:")


def _files(folder: AnyPath) -> Iterator[AnyPath]:
    for path, status in listed_with_status(folder):
        if status.is_folder:
            yield from _files(path)
        elif path.name.endswith(".parquet") and not path.name.startswith((".", "_")):
            yield path


def _rows(file: AnyPath, wanted: Sequence[str] | None = None) -> pa.Table:
    """Return ``<query>/<source>/<batch>.parquet``, or some of its columns."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.local or io.BytesIO(file.read_bytes())) as opened:
        if missing := [name for name in _COLUMNS if name not in opened.schema_arrow.names]:
            raise ValueError(f"it has no columns {', '.join(missing)}")
        rows = opened.read(wanted)
    return rows.add_column(0, "query", [[file.parent.parent.name] * rows.num_rows])


def _counts(file: AnyPath) -> list[dict[str, Any]]:
    keys = ["query", "source", "batch", "error_class"]
    # Positions and rows may be large. Without threads, the first error of a group is its oldest.
    groups = _rows(file, _COLUMNS).sort_by("at").group_by(keys, use_threads=False)
    counts = groups.aggregate([("at", "count"), ("error", "first")])
    found: list[dict[str, Any]] = counts.rename_columns([*keys, "rows", "first_error"]).to_pylist()
    return found
