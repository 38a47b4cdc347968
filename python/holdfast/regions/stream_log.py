"""Spark's own record of a stream: copied along with checkpoints, and cut back to one of them.

Spark writes ``offsets/N`` when it plans batch N, after its sources logged what they will read, and
``commits/N`` when the batch is done. The next batch begins where the newest offsets end. Each line
of an offsets file behind the first two is the offset of one source; that of the file source is the
number of an entry in its own log ``sources/I``, where it keeps which files it has seen.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.regions.sinks.durable import sync_folder

_COMMITS: Final = "commits"
_OFFSETS: Final = "offsets"
_SOURCES: Final = "sources"


def copy_stream(source: Path, target: Path) -> None:
    """Copy the record while Spark may be planning the next batch.

    Parameters
    ----------
    source, target : Path
        Folders; the target is created, durable on return. Without a source, nothing is done.

    Raises
    ------
    OSError
        If there is something else than files and folders, such as a symbolic link, which Spark
        writes nowhere; or the file system refuses.
    """
    if not os.path.lexists(source):
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


def rewind_stream(folder: Path, batch_id: int) -> None:
    """Let the stream go on behind a batch, whatever it did since. May be repeated.

    Newer batches are planned anew from where the batch ended, so their rows come again, if not
    necessarily in the same batches. The source must be one that can give them out again.

    Parameters
    ----------
    folder : Path
        Spark's record. Nothing is done if there is none.
    batch_id : int
        The newest batch that stays; -1: none.
    """
    # Sources first: what the newest offsets say of them is needed again after a crash.
    for source, entry in _file_sources(folder, batch_id).items():
        log = folder / _SOURCES / str(source)
        if _can_be_found_again(log, entry):
            _cut(log, entry)
    for name in (_COMMITS, _OFFSETS):
        _cut(folder / name, batch_id)


def _file_sources(folder: Path, batch_id: int) -> dict[int, int]:
    """Return by its number, for each file source, the entry of its log where the batch ended."""
    planned = (_number_of(path.name) for path in _entries(folder / _OFFSETS))
    newest = _offsets(folder, max((batch for batch in planned if batch is not None), default=-1))
    then = _offsets(folder, batch_id)
    ends: dict[int, int] = {}
    for source, offset in enumerate(newest):
        if offset is not None:
            end = then[source] if source < len(then) else None
            ends[source] = -1 if end is None else end
    return ends


def _can_be_found_again(log: Path, newest: int) -> bool:
    """Whether the source finds all files behind an entry again if its log ends there.

    With its log cut, it gives them out in pieces, as it was told to. Else, because some are
    archived or deleted, or lie where this cannot be seen, the log has to stay: then they come as
    one batch, and Spark fails if it cannot read them, where it would not miss them.
    """
    entries = (path for path in _behind(log, newest) if not path.name.startswith("."))
    for entry in entries:
        for line in entry.read_text().splitlines()[1:]:
            file = json.loads(line)
            url = urlsplit(file["path"])
            if file["batchId"] > newest and not (
                url.scheme == "file" and Path(unquote(url.path)).exists()
            ):
                return False
    return True


def _offsets(folder: Path, batch_id: int) -> list[int | None]:
    """Return the offset of each source after a batch; None for what is no file source."""
    try:
        lines = (folder / _OFFSETS / str(batch_id)).read_text().splitlines()[2:]
    except FileNotFoundError:
        return []
    return [_log_offset(line) for line in lines]


def _log_offset(line: str) -> int | None:
    try:
        offset = json.loads(line)
    except ValueError:
        return None
    if isinstance(offset, dict) and list(offset) == ["logOffset"]:
        return int(offset["logOffset"])
    return None


def _cut(log: Path, newest: int) -> None:
    """Delete the entries of a log behind one of them, and their checksum files."""
    newer = _behind(log, newest)
    for path in newer:
        path.unlink()
    if newer:
        sync_folder(log)


def _behind(log: Path, newest: int) -> list[Path]:
    """Return the entries of a log behind one of them, and their checksum files."""
    numbered = ((path, _number_of(path.name)) for path in _entries(log))
    return [path for path, number in numbered if number is not None and number > newest]


def _number_of(name: str) -> int | None:
    """Return the number of a log's entry, or of the one that a checksum file belongs to."""
    stem = name.removeprefix(".").removesuffix(".crc").removesuffix(".compact")
    return int(stem) if stem.isascii() and stem.isdecimal() else None


def _entries(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from sorted(folder.iterdir())


def _copy_tree(source: Path, target: Path) -> None:
    # Spark deletes entries of batches that are long done.
    with suppress(FileNotFoundError):
        if _is_folder(source):
            target.mkdir()
            for path in _entries(source):
                _copy_tree(path, target / path.name)
            sync_folder(target)
        elif not source.name.endswith(".tmp"):
            _copy_file(source, target)


def _copy_file(source: Path, target: Path) -> None:
    # What is copied may come from anywhere: no link is followed, and no pipe waited for.
    if not stat.S_ISREG(source.lstat().st_mode):
        raise _no_file(source)
    with source.open("rb") as original, target.open("xb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def _no_file(path: Path) -> OSError:
    return OSError(
        errno.EINVAL,
        "expected the files and folders that Spark writes, found another kind",
        str(path),
    )
