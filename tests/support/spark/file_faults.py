"""Faults of files of a checkpoint, and the files that may have them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from support.spark.state_files import commit_ids, segment_of

#: Kinds of files by the pattern of their path in the checkpoint. The first that matches counts.
KINDS = {
    "schema of state": r"state/\d+/(\d+/(.*/)?_metadata/schema.*|_stateSchema/.*)",
    "metadata of operators": r"state/\d+/_metadata/.*",
    "Holdfast: hf": r"state/holdfast/[^/]*\.hf",
    "default: delta": r"state/.*\.delta",
    "default: snapshot": r"state/.*\.snapshot",
    "RocksDB: zip": r"state/.*\.zip",
    "RocksDB: sst": r"state/.*\.sst",
    "RocksDB: changelog": r"state/.*\.changelog",
    "entry of offsets": r"offsets/\d+",
    "entry of commits": r"commits/\d+",
    "entry of a source": r"sources/.*/\d+",
}
#: Kinds that Spark writes in the same way for every query and provider.
LOGS = (
    "schema of state",
    "metadata of operators",
    "entry of offsets",
    "entry of commits",
    "entry of a source",
)
#: Newest files of a kind that get a fault, because a restart reads them.
NEWEST = 2
FLIPS = (0.25, 0.5, 0.75)


def flip(file: Path, place: float) -> None:
    """Invert a bit at this share of the content."""
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 0x10
    file.write_bytes(data)


def flips(file: Path) -> Iterator[Callable[[Path], None]]:
    """Bits at several places, each in a run of its own."""
    for place in FLIPS:
        yield lambda path, place=place: flip(path, place)  # type: ignore[misc]


def cut(file: Path) -> Iterator[Callable[[Path], None]]:
    """The second half is missing."""
    yield lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None


def remove(file: Path) -> Iterator[Callable[[Path], None]]:
    """The file is missing."""
    yield Path.unlink


def put_back(file: Path) -> Iterator[Callable[[Path], None]]:
    """An older file of the folder has its name, if there is one."""
    others = [path for path in file.parent.glob(f"*{file.suffix}") if path.is_file()]
    older = sorted((path for path in others if path.name < file.name), key=_number)
    if older:
        yield lambda path: _copy(path.parent / older[-1].name, path)


#: The changes of a file that a fault gives, to try one after the other.
Changes = Callable[[Path], Iterator[Callable[[Path], None]]]
FAULTS: dict[str, Changes] = {
    "a bit is flipped": flips,
    "cut at its half": cut,
    "missing": remove,
    "an older copy": put_back,
}


def files_by_kind(checkpoint: Path) -> dict[str, list[Path]]:
    """Return the newest files of each kind, as paths in the checkpoint.

    Files of Holdfast in the last commit precede its others: a restart reads them.
    """
    found: dict[str, list[Path]] = {}
    named = _committed(checkpoint)

    def newest_last(path: Path) -> tuple[bool, tuple[int, int, str]]:
        return path in named, _number(path)

    for path in sorted(checkpoint.rglob("*"), key=newest_last, reverse=True):
        name = path.relative_to(checkpoint).as_posix()
        # Checksums of Hadoop's local file system belong to their file.
        if path.is_file() and path.stat().st_size and not path.name.startswith("."):
            kind = next((kind for kind, of in KINDS.items() if re.fullmatch(of, name)), None)
            if kind is not None and len(found.setdefault(kind, [])) < NEWEST:
                found[kind].append(path.relative_to(checkpoint))
    return found


def _committed(checkpoint: Path) -> set[Path]:
    """Return the files of Holdfast that the last commit names."""
    if not (checkpoint / "state" / "holdfast").exists():
        return set()
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    ids = [id_ for operator in commit_ids(checkpoint, last).values() for id_ in chain(*operator)]
    segments = map(segment_of, ids)
    return {segment.path(checkpoint) for segment in segments if segment is not None}


def _number(path: Path) -> tuple[int, int, str]:
    """Return the order of files by age: the version in the name, then the time of change."""
    version = re.match(r"\d+(?=[._]|$)", path.name)
    return int(version[0]) if version else 0, path.lstat().st_mtime_ns, str(path)


def sums_of(file: Path) -> Path:
    """Return the file in which Hadoop's local file system keeps the sums of another."""
    return file.with_name(f".{file.name}.crc")


def _copy(source: Path, to: Path) -> None:
    shutil.copyfile(source, to)
    if sums_of(source).exists():
        shutil.copyfile(sums_of(source), sums_of(to))
