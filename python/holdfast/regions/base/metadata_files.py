"""The files of checkpoints' metadata, on any file system; rust/core/FORMAT.md names them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from holdfast._core import CheckpointMetadata, CorruptSegmentError
from holdfast.regions.base.folder_lease import FolderLease
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath

_NAME: Final = re.compile(r"([0-9a-f]{16})\.hfc", re.ASCII)


def metadata_name(id: int) -> str:
    """Return the name of a checkpoint's file."""
    return f"{id:016x}.hfc"


def list_metadata(folder: AnyPath) -> list[int]:
    """Return the ids of the checkpoints that have a file in a folder, ascending.

    A folder that is missing has none.
    """
    if not isinstance(folder, HadoopPath):
        return CheckpointMetadata.list(folder)
    with suppress(FileNotFoundError):
        found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
        return sorted(int(name[1], 16) for name in found if name is not None)
    return []


def read_metadata_file(path: AnyPath) -> CheckpointMetadata:
    """Read and verify the file of a checkpoint. Errors are those of `CheckpointMetadata.read`."""
    if not isinstance(path, HadoopPath):
        return CheckpointMetadata.read(path)
    content = path.read_bytes()
    try:
        metadata = CheckpointMetadata.from_bytes(content)
    except (CorruptSegmentError, NotImplementedError) as e:
        raise type(e)(f"{path}: {e}") from None
    if path.name != metadata_name(metadata.id):
        raise CorruptSegmentError(f"{path}: it is the file of checkpoint {metadata.id}")
    return metadata


def write_metadata(
    metadata: CheckpointMetadata, folder: AnyPath, lease: FolderLease | None = None
) -> None:
    """Write the file of a checkpoint, whole and durable or not at all (R18).

    Parameters
    ----------
    metadata : CheckpointMetadata
        What is written.
    folder : Path or HadoopPath
        Where.
    lease : FolderLease, optional
        By which the folder has to be this process's.

    Raises
    ------
    FileExistsError
        If the checkpoint has a file. It is not touched.
    FolderLostError
        If the folder is another process's by now. Nothing is written.
    OSError
        If that fails. The file may be there all the same.
    """
    if isinstance(folder, HadoopPath):
        path = folder / metadata_name(metadata.id)
        if lease is None:
            path.create(metadata.to_bytes())
        else:
            lease.write(path, metadata.to_bytes())
    else:
        metadata.write(folder)


def delete_metadata(folder: AnyPath, *ids: int) -> None:
    """Delete the files of checkpoints, if there are any; on an object store in one request.

    Raises
    ------
    OSError
        If one is not deleted; others may be.
    """
    if isinstance(folder, HadoopPath):
        folder.remove_files([metadata_name(id) for id in ids])
    else:
        for id in ids:
            CheckpointMetadata.delete(folder, id)
