"""Branches: checkpoints that begin with the segments of another one.

The segments stay in the parent's folder, which has a lease. The file ``parent`` beside the physical
files of a branch says where, and up to which term.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Final
from uuid import uuid4

from holdfast._core import (
    CorruptSegmentError,
    NewerFormatError,
    parent_from_bytes,
    parent_to_bytes,
)
from holdfast.files.paths import AnyPath, absolute, any_folder, recorded_folder
from holdfast.files.physical_files import file_sizes
from holdfast.queries.copies import copy_batch, copy_commit, files_in, put
from holdfast.queries.folder import STATE_FILES_FOLDER, is_query_checkpoint
from holdfast.queries.leases import (
    BRANCH,
    FoundLease,
    Wanted,
    drop,
    find_lease,
    find_leases,
    held_tag,
    is_kept,
    require_holdfasts,
    require_whole,
    take,
)
from holdfast.queries.logs import committed_batches, read_commit
from holdfast.queries.state import StateOfQuery, chosen_batch

_PARENT: Final = "parent"

#: Digits of a term in the name of a file, and the number of a file that is a marker.
_TERM_DIGITS: Final = 16
_MARKER: Final = "-00000000.hf"


@dataclass(frozen=True)
class Parent:
    """Where a branch finds files of terms up to `until`, and the name of its lease there."""

    folder: str
    until: int
    lease: str


def branch(
    path: str | PathLike[str],
    new: str | PathLike[str],
    *,
    batch: int | None = None,
    tag: str | None = None,
) -> int:
    """Make a checkpoint that begins with the state of another one, without a copy of its segments.

    Any query that Spark lets go on from the checkpoint can start from `new`, and continues after
    the batch. The other query may run, and may clean up: a lease keeps the segments until
    ``holdfast detach``. Call it again after a crash.

    Parameters
    ----------
    path : str or os.PathLike
        The checkpoint folder of a query whose state Holdfast has.
    new : str or os.PathLike
        The new checkpoint folder, on the same file system.
    batch : int, optional
        The batch, by default the newest in the commit log.
    tag : str, optional
        The name of a tag, instead of a batch.

    Returns
    -------
    int
        The batch.

    Raises
    ------
    FileNotFoundError
        If there is no such checkpoint or tag, or the batch is not retained.
    FileExistsError
        If `new` is something else.
    NotImplementedError
        If another provider has the state, or the checkpoint still needs the segments of its own
        parent.
    ValueError
        If both `batch` and `tag` are given, or the folders are on different file systems.
    RuntimeError
        If only the JVM reaches the file system, and there is no Spark session.
    """
    if batch is not None and tag is not None:
        raise ValueError("expected a batch or a tag, found both")
    folder, target = (absolute(any_folder(one)) for one in (path, new))
    return make_branch(folder, target, batch, tag)[0]


def make_branch(
    folder: AnyPath, new: AnyPath, batch: int | None, tag: str | None
) -> tuple[int, str]:
    """Make a branch, see `branch`. Returns its batch and the name of its lease."""
    number, name, source = planned_branch(folder, new, batch, tag)
    own = new / STATE_FILES_FOLDER
    until = max(_terms(folder / STATE_FILES_FOLDER), default=0)
    parent = Parent(folder=str(folder / STATE_FILES_FOLDER), until=until, lease=name)
    own.make_folder(exist_ok=True)
    with suppress(FileExistsError):
        (own / _PARENT).create_whole(parent_to_bytes(json.dumps(asdict(parent))))
    there = read_parent(new) or parent
    name = there.lease
    found = find_lease(folder, name)
    if found is not None and found.lease is not None:
        # A command that was killed has chosen the batch.
        number = found.lease.batch
    elif there.until < until:
        raise FileExistsError(
            f"{new} was begun by a command that was killed, and {folder} has gone on: delete "
            f"{new}, and repeat the command"
        )
    # Managers of the branch get newer terms.
    marker = own / "driver" / f"{there.until:016x}{_MARKER}"

    def copy(_: str) -> None:
        put(marker, b"")
        copy_batch(source, number, new, commit=False, query=name.removeprefix(BRANCH))

    def is_published() -> bool:
        newest = max(committed_batches(new), default=-1)
        try:
            return newest > number or (newest == number and bool(read_commit(new, number)))
        except CorruptSegmentError:
            # A command was killed while it wrote the entry.
            return False

    take(
        Wanted(folder, name, number, lambda: read_commit(source, number), str(new)),
        copy=copy,
        is_there=lambda: is_kept(folder, number, tag, source),
        is_published=is_published,
        publish=lambda: copy_commit(source, number, new),
    )
    return number, name


def planned_branch(
    folder: AnyPath, new: AnyPath, batch: int | None, tag: str | None
) -> tuple[int, str, AnyPath]:
    """Check that a branch can be made; see `branch` for errors.

    Returns its batch, the name of its lease, and the folder that has Spark's files of the batch.
    """
    if (folder.local is None) != (new.local is None):
        raise ValueError(f"{new}: expected a folder on the file system of {folder}")
    if not is_query_checkpoint(folder):
        raise FileNotFoundError(f"{folder}: expected the checkpoint folder of a streaming query")
    if (parent := read_parent(folder)) is not None and parent.until:
        raise NotImplementedError(
            f"{folder} is a branch that needs the segments of its parent: run 'holdfast detach "
            f"{folder}' first"
        )
    if tag is not None:
        source, number = held_tag(folder, tag)
    else:
        source, number = folder, chosen_batch(folder, batch)
    require_holdfasts(source, number)
    there = read_parent(new)
    if there is not None and there.folder == str(folder / STATE_FILES_FOLDER):
        return number, there.lease, source
    if any(files_in(new)):
        raise FileExistsError(f"{new}: expected no such folder, or an empty one")
    return number, f"{BRANCH}{uuid4()}", source


def read_parent(folder: AnyPath) -> Parent | None:
    """Return where a branch finds the segments that it began with; None for other checkpoints."""
    file = folder / STATE_FILES_FOLDER / _PARENT
    try:
        return Parent(**json.loads(parent_from_bytes(file.read_bytes())))
    except FileNotFoundError:
        return None
    except (CorruptSegmentError, NewerFormatError) as error:
        raise type(error)(f"{file}: {error}") from None


def needed_files(folder: AnyPath, parent: Parent) -> dict[str, int]:
    """Read the state of all retained batches of a branch, and of its tags.

    Returns the names and bytes of the files of its parent that it needs. Raises an OSError if a
    segment cannot be read.
    """
    if not parent.until:
        return {}
    state = StateOfQuery(folder)
    stores = [read_commit(folder, batch) for batch in committed_batches(folder)]
    for found in find_leases(folder):
        require_whole(folder, found)
        if found.lease is not None:
            stores.append([*found.lease.stores])
    names = set()
    for segment in state.segments_of(one for ids in stores for one in ids):
        if segment.message is not None:
            raise OSError(f"{folder}: {segment.message}")
        if int(segment.ref.file[:_TERM_DIGITS], 16) <= parent.until:
            names.add(segment.ref.file)
    sizes = file_sizes(recorded_folder(parent.folder))
    return {name: sizes[name] for name in sorted(names)}


def detach(folder: AnyPath, parent: Parent, files: Mapping[str, int]) -> Iterator[int]:
    """Copy the parent's files that a branch needs, and end the lease; yields bytes of copies.

    May be repeated after a crash. A query that runs on the branch fails at its next commit.
    """
    own, source = folder / STATE_FILES_FOLDER, recorded_folder(parent.folder)
    if parent.until:
        # The marker of an application that takes over.
        marker = max(parent.until, time.time_ns() // 1000, *_terms(own / "driver"))
        put(own / "driver" / f"{marker + 1:016x}{_MARKER}", b"")
        for name, size in files.items():
            copy = own / name
            if not copy.exists() or copy.status().st_size != size:
                copy.unlink(missing_ok=True)
                (source / name).copy_to(str(copy))
            yield size
        own.sync()
        # No file is the parent's from now on. The record stays: else a late command makes it again.
        gone = parent_to_bytes(json.dumps(asdict(replace(parent, until=0))))
        (own / _PARENT).replace_text(gone.decode())
    drop(source.parent.parent, parent.lease)


def is_needed(found: FoundLease) -> bool:
    """Return whether the branch of a lease is there and needs the lease."""
    if found.lease is None or found.lease.branch is None:
        return False
    parent = read_parent(recorded_folder(found.lease.branch))
    return parent is not None and parent.until > 0 and parent.lease == found.name


def _terms(folder: AnyPath) -> list[int]:
    return [int(name[:_TERM_DIGITS], 16) for name in file_sizes(folder)]
