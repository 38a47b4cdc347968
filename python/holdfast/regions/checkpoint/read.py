"""Reads the checkpoints in a folder, and adds up their figures.

Takes no term and changes no file, so a pipeline may run in the folder.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.files.paths import AnyPath
from holdfast.files.verdicts import UNREADABLE
from holdfast.queries.folder import is_query_checkpoint, read_query_checkpoint
from holdfast.regions.files.folders import CheckpointFolders


def checkpoint_ids(folder: AnyPath) -> list[int]:
    """Return ids of all checkpoints, ascending; FileNotFoundError if it is no pipeline's folder."""
    folders = CheckpointFolders(folder)
    if folders.metadata.is_dir():
        return folders.ids()
    if is_query_checkpoint(folder):
        raise FileNotFoundError(
            f"{read_query_checkpoint(folder).describe()}: it holds no checkpoints of a regional "
            "pipeline"
        )
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    raise FileNotFoundError(
        f"{folders.metadata} is missing: {folder} holds no checkpoints of a regional pipeline"
    )


@dataclass(frozen=True)
class Summary:
    """One checkpoint in a list; `stored_bytes` includes metadata files and all its segments."""

    metadata: CheckpointMetadata
    finished_regions: int
    in_flight_rows: int
    in_flight_bytes: int
    staged_files: int
    stored_bytes: int


def summarise(folder: AnyPath, id: int) -> Summary:
    """Read a checkpoint's metadata and add it up."""
    folders = CheckpointFolders(folder)
    metadata = folders.read(id)
    entries = metadata.regions.values()
    # A segment has one owner, so none is counted twice.
    segment_bytes = sum(ref.length for entry in entries for _, _, ref in entry.refs())
    files = [folders.metadata_file(id)]
    if metadata.base_file:
        files.append(folders.metadata / metadata.base_file)
    return Summary(
        metadata=metadata,
        finished_regions=sum(entry.finished for entry in entries),
        in_flight_rows=sum(in_flight_rows(entry) for entry in entries),
        in_flight_bytes=sum(entry.in_flight_bytes for entry in entries),
        staged_files=len({one.path for entry in entries for one in entry.staged}),
        stored_bytes=sum(file.status().st_size for file in files) + segment_bytes,
    )


def summarise_all(folder: AnyPath, ids: Iterable[int]) -> tuple[list[Summary], list[str]]:
    """Add up checkpoints; also returns a line for each that cannot be read."""
    summaries: list[Summary] = []
    unreadable: list[str] = []
    for id in ids:
        try:
            summaries.append(summarise(folder, id))
        except UNREADABLE as error:
            # A running pipeline may have deleted the checkpoint.
            if CheckpointFolders(folder).metadata_file(id).exists():
                unreadable.append(str(error))
    return summaries, unreadable


def in_flight_rows(entry: RegionEntry) -> int:
    """Return the number of pending rows of a region."""
    # It takes time to list the stored rows of many regions.
    return sum(part.rows for part in entry.in_flight) if entry.in_flight_bytes else 0


def choose(ids: Sequence[int], asked: int | None, folder: AnyPath) -> int:
    """Return the checkpoint that is asked for; the latest if none is."""
    if (asked is None and not ids) or (asked is not None and asked not in ids):
        wanted = "a checkpoint" if asked is None else f"checkpoint {asked}"
        there = ", ".join(map(str, ids)) or "none"
        raise FileNotFoundError(errno.ENOENT, f"expected {wanted}, found {there}", str(folder))
    return ids[-1] if asked is None else asked
