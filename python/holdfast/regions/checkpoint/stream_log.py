"""Spark's own record of a stream: copied along with checkpoints, and cut back to one of them.

Spark writes ``offsets/N`` when it plans batch N, after its sources logged what they will read, and
``commits/N`` when the batch is done. The next batch begins where the newest offsets end. Each line
of an offsets file behind the first two is the offset of one source; that of the file source is the
number of an entry in its own log ``sources/I``, where it keeps which files it has seen.

So a crash may leave entries in a source's log that no offsets refer to. Spark would read their
files together with those that it finds next, as one batch.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.regions.base.durable import sync_folder
from holdfast.regions.base.errors import RegionalQueryError
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath, entries, is_there

LOG: Final = logging.getLogger(__name__)

_COMMITS: Final = "commits"
_OFFSETS: Final = "offsets"
_SOURCES: Final = "sources"

_COMPACT: Final = ".compact"

#: In the place of the offset of a source that had none yet.
_NO_OFFSET: Final = "-"


def copy_stream(source: AnyPath, target: AnyPath) -> None:
    """Copy the record while Spark may be planning the next batch.

    Parameters
    ----------
    source, target : Path or HadoopPath
        Folders; the target is created, durable on return. Without a source, nothing is done.

    Raises
    ------
    OSError
        If there is something else than files and folders, such as a symbolic link, which Spark
        writes nowhere; or the file system refuses.
    """
    if not is_there(source):
        return
    if not _is_folder(source):
        raise _no_file(source)
    target.mkdir()
    # Against the order in which Spark writes: what is copied refers to nothing that is not.
    for name in (_COMMITS, _OFFSETS):
        _copy_tree(source / name, target / name)
    for path in _entries(source):
        if path.name not in (_COMMITS, _OFFSETS):
            _copy_tree(path, target / path.name)
    sync_folder(target)


def settle_stream(folder: AnyPath, batch_id: int) -> None:
    """Make the record agree with itself and with a checkpoint, before Spark goes on from it.

    What sources found and no batch was planned with is found again.

    Parameters
    ----------
    folder : Path or HadoopPath
        Spark's record. Nothing is done if there is none.
    batch_id : int
        Batch of the checkpoint that the pipeline goes on from; -1: none.

    Raises
    ------
    RegionalQueryError
        If batches that the checkpoint holds were not planned yet, as far as the record says: Spark
        would plan them anew, and what came since would be taken for done.
    """
    newest = _newest_planned(folder)
    if newest < batch_id:
        raise RegionalQueryError(
            f"Spark's record of the stream in {folder} ends with batch {newest}, the checkpoint "
            f"holds batch {batch_id}: Spark would plan that batch again with other rows, which "
            "would be taken for done and lost. Put the record back as it was, or go back to a "
            f"checkpoint of batch {newest} or before with checkpoint_id=, see `holdfast show`"
        )
    _cut_unplanned(folder, newest)


def require_planned(folder: AnyPath, batch_id: int) -> None:
    """Check that the record can be cut back to a batch.

    Raises
    ------
    FileNotFoundError
        If it does not say any more where the batch ended.
    """
    if -1 < batch_id < _newest_planned(folder):
        _offsets(folder, batch_id)


def rewind_stream(folder: AnyPath, batch_id: int) -> None:
    """Let the stream go on behind a batch, whatever it did since. May be repeated.

    Newer batches are planned anew from where the batch ended, so their rows come again, if not
    necessarily in the same batches. The source must be one that can give them out again.

    Parameters
    ----------
    folder : Path or HadoopPath
        Spark's record. Nothing is done if there is none.
    batch_id : int
        The newest batch that stays; -1: none.

    Raises
    ------
    FileNotFoundError
        If the record does not say any more where the batch ended.
    """
    # Sources first: what the newest offsets say of them is needed again after a crash.
    newest = _newest_planned(folder)
    # The newest offsets may be what is damaged: then it is all the same who planned what.
    with suppress(RegionalQueryError):
        _cut_unplanned(folder, newest)
    for log, entry in _file_logs(folder, min(batch_id, newest)):
        if _leaves_whole_log(log, entry) and _can_be_found_again(log, entry):
            _cut(log, entry)
    for name in (_COMMITS, _OFFSETS):
        _cut(folder / name, batch_id)


def _cut_unplanned(folder: AnyPath, newest: int) -> None:
    """Cut the logs of file sources back to the newest batch that was planned."""
    for log, entry in _file_logs(folder, newest):
        if not _behind(log, entry):
            continue
        if _leaves_whole_log(log, entry) and _can_be_found_again(log, entry, unread=True):
            LOG.warning(
                "%s is cut back to entry %d, where batch %d ended: no batch was planned with what "
                "is behind it, and its files are found again",
                log,
                entry,
                newest,
            )
            _cut(log, entry)
        else:
            LOG.warning(
                "%s has entries behind %d, where batch %d ended, and stays as it is: files in them "
                "are gone, or entries before them; the next batch has all of these files",
                log,
                entry,
                newest,
            )


def _newest_planned(folder: AnyPath) -> int:
    """Return the newest batch with offsets; -1: none."""
    return max(map(_entry_number, _entries(folder / _OFFSETS)), default=-1)


def _file_logs(folder: AnyPath, batch_id: int) -> Iterator[tuple[AnyPath, int]]:
    """Yield the log of each file source, and its entry where a batch ended.

    Other sources keep in the same place where they began, which stays for good.
    """
    offsets = {} if batch_id < 0 else _offsets(folder, batch_id)
    for log in _entries(folder / _SOURCES):
        entry = _log_offset(offsets.get(log.name, _NO_OFFSET))
        if entry is not None or _lists_files(log):
            yield log, -1 if entry is None else entry


def _lists_files(log: AnyPath) -> bool:
    """Whether what is in a source's folder is the log of a file source."""
    return any(
        not _hidden(entry) and any("path" in file and "batchId" in file for file in _files(entry))
        for entry in _behind(log, -1)
    )


def _leaves_whole_log(log: AnyPath, newest: int) -> bool:
    """Whether Spark can read the log if it ends with an entry.

    It needs all entries from the last one that repeats those before it.
    """
    kept = {path.name for path in _entries(log) if -1 < _entry_number(path) <= newest}
    for number in range(newest, -1, -1):
        if f"{number}{_COMPACT}" in kept:
            return True
        if str(number) not in kept:
            return False
    return True


def _can_be_found_again(log: AnyPath, newest: int, *, unread: bool = False) -> bool:
    """Whether the source finds all files behind an entry again if its log ends there.

    With its log cut, it gives them out in pieces, as its options say. Else, because some are
    archived or deleted, or lie where this cannot be seen, the log has to stay: then they come as
    one batch, and Spark fails if it cannot read them, where it would not miss them.

    Files that no batch was planned with (`unread`) are not archived yet, wherever they lie.
    """
    for entry in _behind(log, newest):
        if _hidden(entry):
            continue
        for file in _files(entry, torn=unread):
            url = urlsplit(file["path"])
            if file["batchId"] > newest and not _exists(url, unknown=unread):
                return False
    return True


def _exists(url: SplitResult, *, unknown: bool) -> bool:
    """Whether there is a file; `unknown` where its file system does not say."""
    path = unquote(url.path)
    if url.scheme == "file":
        return Path(path).exists()
    try:
        return HadoopPath(f"{url.scheme}://{url.netloc}{path}").exists()
    except (OSError, RuntimeError, ValueError):
        return unknown


def _files(entry: AnyPath, *, torn: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the files that an entry of a log lists; with `torn`, those that can be read."""
    for line in entry.read_text(errors="replace").splitlines()[1:]:
        try:
            file = json.loads(line)
        except ValueError:
            if not torn:
                raise
            continue
        if isinstance(file, dict):
            yield file


def _offsets(folder: AnyPath, batch_id: int) -> dict[str, str]:
    """Return the offset of each source after a batch, by the name of the source's folder.

    Raises
    ------
    FileNotFoundError
        If there are none.
    RegionalQueryError
        If they cannot be read: a machine that crashed may have left them empty.
    """
    path = folder / _OFFSETS / str(batch_id)
    version, *lines = path.read_text(errors="replace").splitlines() or [""]
    if version == "v1" and len(lines) > 1:
        return {str(source): offset for source, offset in enumerate(lines[1:])}
    if version == "v2" and len(lines) > 1:
        named = (line.partition(":") for line in lines[1:])
        return {source: offset for source, _, offset in named}
    raise RegionalQueryError(
        f"{path} is no offsets file of Spark, or damaged: put it back as it was, or go back to a "
        "checkpoint of an older batch with checkpoint_id=, see `holdfast show`"
    )


def _log_offset(text: str) -> int | None:
    """Return the entry that an offset of a file source is; None for any other offset."""
    try:
        offset = json.loads(text)
    except ValueError:
        return None
    if isinstance(offset, dict) and list(offset) == ["logOffset"]:
        return int(offset["logOffset"])
    return None


def _cut(log: AnyPath, newest: int) -> None:
    """Delete the entries of a log behind one of them, and their checksum files."""
    newer = _behind(log, newest)
    for path in newer:
        path.unlink()
    if newer:
        sync_folder(log)


def _behind(log: AnyPath, newest: int) -> list[AnyPath]:
    """Return the entries of a log behind one of them, and their checksum files."""
    numbered = ((path, _number_of(path.name)) for path in _entries(log))
    return [path for path, number in numbered if number is not None and number > newest]


def _number_of(name: str) -> int | None:
    """Return the number of a log's entry, or of the one that a checksum file belongs to."""
    stem = name.removeprefix(".").removesuffix(".crc").removesuffix(_COMPACT)
    return int(stem) if stem.isascii() and stem.isdecimal() else None


def _entry_number(path: AnyPath) -> int:
    """Return the number of a log's entry; -1 for anything else."""
    number = None if _hidden(path) else _number_of(path.name)
    return -1 if number is None else number


def _hidden(path: AnyPath) -> bool:
    """Whether it is a checksum file, or being written."""
    return path.name.startswith(".") or path.name.endswith(".crc")


def _entries(folder: AnyPath) -> Iterator[AnyPath]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from entries(folder)


def _copy_tree(source: AnyPath, target: AnyPath) -> None:
    # Spark deletes entries of batches that are long done.
    with suppress(FileNotFoundError):
        if _is_folder(source):
            target.mkdir()
            for path in _entries(source):
                _copy_tree(path, target / path.name)
            sync_folder(target)
        elif not source.name.endswith(".tmp"):
            _copy_file(source, target)


def _copy_file(source: AnyPath, target: AnyPath) -> None:
    # What is copied may come from anywhere: no link is followed, and no pipe waited for.
    if not isinstance(source, HadoopPath) and not stat.S_ISREG(source.lstat().st_mode):
        raise _no_file(source)
    if isinstance(target, HadoopPath):
        target.create(source.read_bytes())
        return
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _is_folder(path: AnyPath) -> bool:
    if isinstance(path, HadoopPath):
        return path.stat().is_folder
    return stat.S_ISDIR(path.lstat().st_mode)


def _no_file(path: AnyPath) -> OSError:
    return OSError(
        errno.EINVAL,
        "expected the files and folders that Spark writes, found another kind",
        str(path),
    )
