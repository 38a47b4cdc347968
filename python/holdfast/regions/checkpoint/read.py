"""Reading the checkpoints in a folder, and what each of them adds up to.

Nothing here takes a term or changes a file, so a checkpoint folder can be looked at while its
pipeline runs.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.base.folders import METADATA_FOLDER
from holdfast.regions.base.metadata_files import (
    list_metadata,
    metadata_name,
    read_metadata_file,
)
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.checkpoint.query_folder import is_query_checkpoint, read_query_checkpoint

#: A file of a newer version is no damage, but cannot be read either.
UNREADABLE = (OSError, NotImplementedError)


def metadata_folder(folder: AnyPath) -> AnyPath:
    """Return the folder of the metadata files.

    Parameters
    ----------
    folder : Path or HadoopPath
        The checkpoint folder of a pipeline.

    Returns
    -------
    Path or HadoopPath

    Raises
    ------
    FileNotFoundError
        If there is none: the folder is not that of a pipeline.
    """
    found = folder / METADATA_FOLDER
    if found.is_dir():
        return found
    if is_query_checkpoint(folder):
        raise FileNotFoundError(
            f"{read_query_checkpoint(folder).describe()}: it holds no checkpoints of a regional "
            "pipeline"
        )
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    raise FileNotFoundError(
        f"{found} is missing: {folder} holds no checkpoints of a regional pipeline"
    )


def metadata_path(folder: AnyPath, id: int) -> AnyPath:
    """Return the path of a checkpoint's metadata file, see rust/core/FORMAT.md."""
    return folder / METADATA_FOLDER / metadata_name(id)


def read_metadata(folder: AnyPath, id: int) -> CheckpointMetadata:
    """Read the metadata of a checkpoint.

    Parameters
    ----------
    folder : Path or HadoopPath
        The checkpoint folder of a pipeline.
    id : int
        The checkpoint.

    Returns
    -------
    CheckpointMetadata

    Raises
    ------
    OSError, NotImplementedError
        If it cannot be read, as `CheckpointMetadata.read` says.
    """
    return read_metadata_file(metadata_path(folder, id))


def checkpoint_ids(folder: AnyPath) -> list[int]:
    """Return the ids of all checkpoints, ascending."""
    return list_metadata(metadata_folder(folder))


@dataclass(frozen=True)
class Summary:
    """One checkpoint in a list of them.

    Attributes
    ----------
    metadata : CheckpointMetadata
        What it was made from.
    finished_regions : int
        Number of regions whose data has ended.
    in_flight_rows, in_flight_bytes : int
        Rows that regions owe, and their size in bytes.
    staged_files : int
        Number of files that sinks staged.
    stored_bytes : int
        Size in bytes of its metadata file and of every segment it needs.
    """

    metadata: CheckpointMetadata
    finished_regions: int
    in_flight_rows: int
    in_flight_bytes: int
    staged_files: int
    stored_bytes: int


def summarise(folder: AnyPath, id: int) -> Summary:
    """Read a checkpoint's metadata and add it up.

    Parameters
    ----------
    folder, id
        As for `read_metadata`.

    Returns
    -------
    Summary

    Raises
    ------
    OSError, NotImplementedError
        As for `read_metadata`.
    """
    metadata = read_metadata(folder, id)
    entries = metadata.regions.values()
    # A segment has one owner, so none is counted twice.
    segment_bytes = sum(ref.length for entry in entries for _, _, ref in entry.refs())
    return Summary(
        metadata=metadata,
        finished_regions=sum(entry.finished for entry in entries),
        in_flight_rows=sum(in_flight_rows(entry) for entry in entries),
        in_flight_bytes=sum(entry.in_flight_bytes for entry in entries),
        staged_files=sum(len(entry.staged) for entry in entries),
        stored_bytes=metadata_path(folder, id).stat().st_size + segment_bytes,
    )


def summarise_all(folder: AnyPath, ids: Iterable[int]) -> tuple[list[Summary], list[str]]:
    """Add up checkpoints, and return beside them what cannot be read, a line each."""
    summaries: list[Summary] = []
    unreadable: list[str] = []
    for id in ids:
        try:
            summaries.append(summarise(folder, id))
        except UNREADABLE as error:
            # The pipeline may be running, and let go of a checkpoint meanwhile.
            if metadata_path(folder, id).exists():
                unreadable.append(str(error))
    return summaries, unreadable


def refuse(unreadable: Sequence[str]) -> None:
    """Fail if there are checkpoints that cannot be read.

    Raises
    ------
    OSError
        If there are, with a line each.
    """
    if unreadable:
        raise OSError("\n  ".join([f"{len(unreadable)} checkpoints cannot be read:", *unreadable]))


def in_flight_rows(entry: RegionEntry) -> int:
    """Return the number of rows that a region owes."""
    return sum(part.rows for part in entry.in_flight)


def choose(ids: Sequence[int], asked: int | None, folder: AnyPath) -> int:
    """Return the latest of the retained checkpoints, or the one that is asked for.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    """
    if (asked is None and not ids) or (asked is not None and asked not in ids):
        wanted = "a checkpoint" if asked is None else f"checkpoint {asked}"
        there = ", ".join(map(str, ids)) or "none"
        raise FileNotFoundError(errno.ENOENT, f"expected {wanted}, found {there}", str(folder))
    return ids[-1] if asked is None else asked
