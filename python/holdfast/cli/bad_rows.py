"""``holdfast dead-letters``: the rows that queries have set aside, counted by batch and error."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

from holdfast.cli import folders
from holdfast.cli.output import report, tables
from holdfast.files.paths import AnyPath, absolute, listed_with_status


def show(arguments: argparse.Namespace) -> None:
    """Print how many rows each batch has set aside for which error; OSError for other files."""
    folder = absolute(folders.given(arguments.folder))
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    found: list[dict[str, Any]] = []
    wrong: list[str] = []
    for file in _files(folder):
        try:
            found += _counts(file)
        except (ValueError, OSError) as error:
            wrong.append(f"{file}: {error}")
    found.sort(key=lambda one: (one["query"], one["source"], one["batch"]))
    if arguments.json:
        for one in found:
            print(json.dumps(one))
    elif found:
        report.print_table(tables.of_dead_letters(found))
    if not found and not wrong:
        print(f"holdfast: {folder} has no dead letters", file=sys.stderr)
    sys.stdout.flush()
    report.refuse(wrong, "files are no dead letters of bad rows, or damaged:")


def _files(folder: AnyPath) -> Iterator[AnyPath]:
    for path, status in listed_with_status(folder):
        if status.is_folder:
            yield from _files(path)
        elif path.name.endswith(".parquet") and not path.name.startswith((".", "_")):
            yield path


def _counts(file: AnyPath) -> list[dict[str, Any]]:
    """Return the rows of ``<query>/<source>/<batch>.parquet`` by error class."""
    import pyarrow.parquet as pq

    keys = ["source", "batch", "error_class"]
    wanted = [*keys, "error", "at"]  # positions and rows may be large
    with pq.ParquetFile(file.local or io.BytesIO(file.read_bytes())) as opened:
        if missing := [name for name in wanted if name not in opened.schema_arrow.names]:
            raise ValueError(f"it has no columns {', '.join(missing)}")
        rows = opened.read(wanted).sort_by("at")
    # Without threads, the first error of a group is its oldest.
    groups = rows.group_by(keys, use_threads=False).aggregate([("at", "count"), ("error", "first")])
    counts = groups.rename_columns([*keys, "rows", "first_error"]).to_pylist()
    return [{"query": file.parent.parent.name, **one} for one in counts]
