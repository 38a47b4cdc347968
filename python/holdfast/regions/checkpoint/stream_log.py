"""Spark's own record of a stream: copied along with checkpoints, and cut back to one of them.

Spark writes ``offsets/N`` when it plans batch N, after its sources logged the files that they will
read, and ``commits/N`` when the batch is done. The next batch begins where the newest offsets end.
Each line of an offsets file after the first two is the offset of one source. The offset of a file
source is the number of an entry in its own log ``sources/I``, where it keeps which files it saw.

So a crash may leave entries in a source's log that no offsets refer to. Spark would read their
files together with those that it finds next, as one batch.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast._core import CorruptSegmentError
from holdfast.files.paths import AnyPath, listed
from holdfast.files.reached import HadoopPath
from holdfast.queries.logs import COMMITS_FOLDER, OFFSETS_FOLDER, read_plan
from holdfast.regions.base.errors import RegionalQueryError

LOG: Final = logging.getLogger(__name__)

_COMPACT: Final = ".compact"


def copy_stream(source: AnyPath, target: AnyPath) -> None:
    """Copy the record, if any, durably, while Spark may be planning the next batch.

    Raises an OSError if it has anything but files and folders, such as a symbolic link, which Spark
    never writes, or the file system refuses.
    """
    try:
        is_folder = source.status().is_folder
    except FileNotFoundError:
        return
    if not is_folder:
        raise _no_file(source)
    target.make_folder()
    # Against the order of Spark's writes, so that all files that a copied one needs follow.
    for name in (COMMITS_FOLDER, OFFSETS_FOLDER):
        _copy_tree(source / name, target / name)
    for path in listed(source):
        if path.name not in (COMMITS_FOLDER, OFFSETS_FOLDER):
            _copy_tree(path, target / path.name)
    target.sync()


def settle_stream(folder: AnyPath, batch_id: int) -> None:
    """Make the record, if any, agree with itself and a checkpoint, before Spark continues.

    Sources find files again with which no batch was planned. Batch -1: a pipeline without batches.
    Raises a RegionalQueryError if the record ends before the batch of the checkpoint. Spark would
    plan that batch again, and its new rows would be taken for done.
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
    """Raise a FileNotFoundError if the record no longer says where a batch ended."""
    if -1 < batch_id < _newest_planned(folder):
        _offsets(folder, batch_id)


def rewind_stream(folder: AnyPath, batch_id: int) -> None:
    """Let the stream of the record, if any, continue after a batch. May be repeated.

    Spark plans newer batches again from where the batch ended. Their rows are read again, perhaps
    in other batches, so the source must still have them. Batch -1: the beginning. Raises a
    FileNotFoundError if the record no longer says where the batch ended.
    """
    # Sources first: after a crash, the newest offsets are needed again to cut their logs.
    newest = _newest_planned(folder)
    # Damaged newest offsets do not tell which files were planned.
    with suppress(RegionalQueryError):
        _cut_unplanned(folder, newest)
    for log, entry in _file_logs(folder, min(batch_id, newest)):
        if _leaves_whole_log(log, entry) and _can_be_found_again(log, entry):
            _cut(log, entry)
    for name in (COMMITS_FOLDER, OFFSETS_FOLDER):
        _cut(folder / name, batch_id)


def _cut_unplanned(folder: AnyPath, newest: int) -> None:
    """Cut the logs of file sources back to the newest batch that was planned."""
    for log, entry in _file_logs(folder, newest):
        if all(number <= entry for _, number in _entries(log, with_checksums=True)):
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
    return max((number for _, number in _entries(folder / OFFSETS_FOLDER)), default=-1)


def _file_logs(folder: AnyPath, batch_id: int) -> Iterator[tuple[AnyPath, int]]:
    """Yield the log of each file source, and its entry where a batch ended."""
    offsets = {} if batch_id < 0 else _offsets(folder, batch_id)
    for log in listed(folder / "sources"):
        # Other sources keep their beginning in the same place, for good.
        # Spark writes "-" for a source that has no offset yet.
        entry = _log_offset(offsets.get(log.name, "-"))
        if entry is not None or _lists_files(log):
            yield log, -1 if entry is None else entry


def _lists_files(log: AnyPath) -> bool:
    """Return whether a source's folder has the log of a file source."""
    files = (file for entry, _ in _entries(log) for file in _files(entry))
    return any("path" in file and "batchId" in file for file in files)


def _leaves_whole_log(log: AnyPath, newest: int) -> bool:
    """Return whether Spark can read the log if it ends with an entry.

    Spark needs all entries from the last one that repeats earlier ones.
    """
    kept = {path.name for path, number in _entries(log) if number <= newest}
    for number in range(newest, -1, -1):
        if f"{number}{_COMPACT}" in kept:
            return True
        if str(number) not in kept:
            return False
    return True


def _can_be_found_again(log: AnyPath, newest: int, *, unread: bool = False) -> bool:
    """Return whether the source finds all files after an entry again if its log ends there.

    If so, it reads them in pieces, as its options say. If files are archived or deleted, or their
    place cannot be read, the log has to remain. Then all files are one batch, and Spark fails if it
    cannot read them. With the log cut, it would not miss them. Files that no batch was planned with
    (`unread`) are not archived yet, wherever they are.
    """
    for entry in [entry for entry, number in _entries(log) if number > newest]:
        for file in _files(entry, torn=unread):
            url = urlsplit(file["path"])
            if file["batchId"] > newest and not _exists(url, unknown=unread):
                return False
    return True


def _exists(url: SplitResult, *, unknown: bool) -> bool:
    """Return whether there is a file; `unknown` if its file system does not say."""
    path = unquote(url.path)
    if url.scheme == "file":
        return Path(path).exists()
    try:
        return HadoopPath(f"{url.scheme}://{url.netloc}{path}").exists()
    except (OSError, RuntimeError, ValueError):
        return unknown


def _files(entry: AnyPath, *, torn: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the files that an entry of a log lists; with `torn`, the readable ones."""
    for line in entry.read_text(errors="replace").splitlines()[1:]:
        try:
            file = json.loads(line)
        except ValueError:
            if not torn:
                raise
            continue
        if isinstance(file, dict):
            yield file


def _offsets(folder: AnyPath, batch_id: int) -> Mapping[str, str]:
    """Return the offset of each source after a batch, by the name of the source's folder.

    Raises a FileNotFoundError if there are none, and a RegionalQueryError if they cannot be read:
    a machine that crashed may have left them empty.
    """
    try:
        found = read_plan(folder, batch_id).sources
    except CorruptSegmentError:
        found = {}
    if found:
        return found
    path = folder / OFFSETS_FOLDER / str(batch_id)
    raise RegionalQueryError(
        f"{path} is no offsets file of Spark, or damaged: put it back as it was, or go back to a "
        "checkpoint of an older batch with checkpoint_id=, see `holdfast show`"
    )


def _log_offset(text: str) -> int | None:
    """Return the entry that is the offset of a file source; None for any other offset."""
    try:
        offset = json.loads(text)
    except ValueError:
        return None
    if isinstance(offset, dict) and list(offset) == ["logOffset"]:
        return int(offset["logOffset"])
    return None


def _cut(log: AnyPath, newest: int) -> None:
    """Delete the entries of a log after one of them, and their checksum files."""
    newer = [path for path, number in _entries(log, with_checksums=True) if number > newest]
    for path in newer:
        path.unlink()
    if newer:
        log.sync()


def _entries(log: AnyPath, *, with_checksums: bool = False) -> list[tuple[AnyPath, int]]:
    """Return the entries of a log with their numbers; their checksum files, too, if asked."""
    found = []
    for path in listed(log):
        is_entry = not path.name.startswith(".") and not path.name.endswith(".crc")
        stem = path.name.removeprefix(".").removesuffix(".crc").removesuffix(_COMPACT)
        if stem.isascii() and stem.isdecimal() and (is_entry or with_checksums):
            found.append((path, int(stem)))
    return found


def _copy_tree(source: AnyPath, target: AnyPath) -> None:
    # Spark deletes entries of old batches.
    with suppress(FileNotFoundError):
        status = source.status()
        if status.is_folder:
            target.make_folder()
            for path in listed(source):
                _copy_tree(path, target / path.name)
            target.sync()
        elif not source.name.endswith(".tmp"):
            # The files may come from anywhere: follow no link, and wait for no pipe.
            if not status.is_file:
                raise _no_file(source)
            target.create(source.read_bytes())


def _no_file(path: AnyPath) -> OSError:
    return OSError(
        errno.EINVAL,
        "expected the files and folders that Spark writes, found another kind",
        str(path),
    )
