"""The physical files of a folder, and how much of them retained checkpoints or batches need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast._core import SegmentRef
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath

_SUFFIX = ".hf"


@dataclass(frozen=True)
class PhysicalFile:
    """A file of segments.

    Attributes
    ----------
    name : str
        Its name, which begins with the term of its manager.
    bytes : int or None
        Its size; None if it is not there, although segments in it are needed.
    live_segments, live_bytes : int
        Number and size in bytes of the segments in it that are needed.
    """

    name: str
    bytes: int | None
    live_segments: int = 0
    live_bytes: int = 0

    @property
    def dead_bytes(self) -> int:
        """Size in bytes of the rest: segments that nothing needs any more, header and footer."""
        return max(0, (self.bytes or 0) - self.live_bytes)


def file_sizes(folder: AnyPath) -> dict[str, int]:
    """Return the size in bytes of every physical file by its name; none without the folder.

    Raises
    ------
    OSError
        If the file system does not say.
    """
    if not folder.is_dir():
        return {}
    if isinstance(folder, HadoopPath):
        return {
            path.name: status.st_size
            for path, status in folder.entries()
            if path.name.endswith(_SUFFIX)
        }
    sizes: dict[str, int] = {}
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            sizes[path.name] = path.stat().st_size
        except FileNotFoundError:  # it was needed no more, and deleted meanwhile
            continue
    return sizes


def physical_files(folder: AnyPath, needed: Iterable[SegmentRef]) -> list[PhysicalFile]:
    """Return the physical files of a folder by name, also those that are needed but missing.

    Parameters
    ----------
    folder : Path or HadoopPath
        Folder of the files.
    needed : iterable of SegmentRef
        The segments that are needed; one of several checkpoints may come several times.

    Raises
    ------
    OSError
        If the file system does not say.
    """
    live: dict[str, dict[int, int]] = {}
    for ref in needed:
        live.setdefault(ref.file, {})[ref.offset] = ref.length
    sizes = file_sizes(folder)
    return [
        PhysicalFile(
            name=name,
            bytes=sizes.get(name),
            live_segments=len(live.get(name, ())),
            live_bytes=sum(live.get(name, {}).values()),
        )
        for name in sorted(sizes.keys() | live.keys())
    ]
