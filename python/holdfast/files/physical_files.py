"""The physical files of a folder, and their parts that checkpoints or batches need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast._core import SegmentRef
from holdfast.files.paths import AnyPath, listed_with_status

_SUFFIX = ".hf"


@dataclass(frozen=True)
class PhysicalFile:
    """A file of segments, with the number and bytes of needed ones.

    `bytes` is its own size; None if it is missing, although segments in it are needed.
    """

    name: str
    bytes: int | None
    live_segments: int = 0
    live_bytes: int = 0

    @property
    def dead_bytes(self) -> int:
        """Size in bytes of all other segments, header and footer."""
        return max(0, (self.bytes or 0) - self.live_bytes)


def file_sizes(folder: AnyPath) -> dict[str, int]:
    """Return the size in bytes of every physical file by its name; none without the folder."""
    return {
        path.name: status.st_size
        for path, status in listed_with_status(folder)
        if path.name.endswith(_SUFFIX)
    }


def physical_files(folder: AnyPath, needed: Iterable[SegmentRef]) -> list[PhysicalFile]:
    """Return the physical files by name, with missing ones that `needed` segments are in."""
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
