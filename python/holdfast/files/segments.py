"""Segments without a manager: read for inspection, or written as an image of one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from holdfast._core import (
    Owner,
    SegmentRef,
    SegmentReport,
    SnapshotManager,
    inspect_segment,
    read_segment,
    read_table,
)
from holdfast.files.paths import AnyPath
from holdfast.files.reached import HadoopPath, call_jvm, native

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Numbers of the kinds of segments that copies have, see rust/core/FORMAT.md.
_KINDS: Final = {"snapshot": 3, "in_flight": 4}

#: For errors.
_READING: Final = "reading a segment in"
_WRITING: Final = "writing segments in"


@dataclass(frozen=True)
class MountedSegments:
    """Segments in a folder, read one after the other without a manager."""

    folder: Path

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read a segment and verify all of it, with the errors of `holdfast._core.read_segment`."""
        return read_segment(self.folder, ref, owner)

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """Read a segment, and return the size of its payload in bytes."""
        return len(self.read(ref, owner))

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """Read a segment of a state store, and describe its content."""
        return inspect_segment(self.folder, ref)

    def read_table(self, owner: Owner, commit: str) -> bytes:
        """Read all rows of a table, see `holdfast._core.read_table`."""
        return read_table(self.folder, owner, commit)


class ReachedSegments:
    """The same as `MountedSegments`, read by the JVM. A payload leaves the JVM only on request.

    Files stay open, and small segments are read together: a checkpoint takes few requests in the
    order of its places.
    """

    def __init__(self, folder: str, reached: HadoopPath) -> None:
        self.reached = reached
        self.handle: int = call_jvm(_READING, reached, lambda files: files.openSegments(folder))

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """See `MountedSegments`."""
        return bytes(self._call("readSegment", ref.to_bytes(), *_parts(owner)))

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """See `MountedSegments`."""
        return int(self._call("segmentBytes", ref.to_bytes(), *_parts(owner)))

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """See `MountedSegments`."""
        return SegmentReport.from_bytes(bytes(self._call("inspectSegment", ref.to_bytes())))

    def read_table(self, owner: Owner, commit: str) -> bytes:
        """See `MountedSegments`."""
        return bytes(self._call("readTable", commit, *_parts(owner)))

    def close(self) -> None:
        """Close its files."""
        self._call("closeStored")

    def _call(self, method: str, *arguments: Any) -> Any:
        return _call(_READING, self.reached, method, self.handle, *arguments)


StoredSegments = MountedSegments | ReachedSegments


@contextmanager
def stored_segments(folder: AnyPath, *, into: AnyPath | None = None) -> Iterator[StoredSegments]:
    """Read the segments of a folder, which need not exist before the first read.

    The JVM reads them if only it reaches `into`, the folder of the image that they are copied to.
    """
    if isinstance(folder, HadoopPath):
        into = folder
    elif not isinstance(into, HadoopPath):
        yield MountedSegments(folder)
        return
    with closing(ReachedSegments(folder.spark_name, into)) as segments:
        yield segments


class ReachedImage:
    """Takes one checkpoint's segments into a folder by the JVM; seals at `max_file_bytes`."""

    def __init__(
        self, folder: str, reached: HadoopPath, *, max_file_bytes: int = 256 << 20
    ) -> None:
        self.reached = reached
        self._handle: int = call_jvm(
            _WRITING, reached, lambda files: files.openImage(folder, max_file_bytes)
        )

    def append(
        self,
        owner: Owner,
        checkpoint: int,
        data: Buffer,
        *,
        kind: Literal["snapshot", "changelog", "in_flight"] = "snapshot",
        lineage: Sequence[SegmentRef] = (),
        entries: int = 0,
    ) -> SegmentRef:
        """Append a segment, as `holdfast.SnapshotManager.append`."""
        if lineage:
            raise ValueError("the segments of an image have no lineage")
        whose = (*_parts(owner), checkpoint, _KINDS[kind], entries)
        return SegmentRef.from_bytes(bytes(self._call("appendSegment", *whose, bytes(data))))

    def copy_segment(
        self,
        source: ReachedSegments,
        ref: SegmentRef,
        before: Owner,
        after: Owner,
        checkpoint: int,
        *,
        kind: str,
        entries: int,
    ) -> SegmentRef:
        """Copy a segment inside the JVM."""
        original = (source.handle, ref.to_bytes(), before.pipeline)
        whose = (*_parts(after), checkpoint, _KINDS[kind], entries)
        return SegmentRef.from_bytes(bytes(self._call("copySegment", *original, *whose)))

    def copy_table(
        self, source: ReachedSegments, before: Owner, commit: str, after: Owner, checkpoint: int
    ) -> tuple[str, tuple[SegmentRef, ...], int]:
        """Copy a table, see `holdfast.SnapshotManager.copy_table`."""
        original = (source.handle, commit, before.pipeline)
        done = self._call("copyTable", *original, *_parts(after), checkpoint)
        copied, keys, *refs = map(str, done)
        segments = tuple(SegmentRef.from_bytes(bytes.fromhex(ref)) for ref in refs)
        return copied, segments, int(keys)

    def persist(self, checkpoint: int) -> None:
        """Make all segments of a checkpoint durable."""
        self._call("persistSegments", checkpoint)

    def close(self) -> None:
        """Seal its files."""
        self._call("closeRegional")

    def _call(self, method: str, *arguments: Any) -> Any:
        return _call(_WRITING, self.reached, method, self._handle, *arguments)


def _call(doing: str, reached: HadoopPath, method: str, *arguments: Any) -> Any:
    return call_jvm(doing, reached, lambda files: getattr(native(files), method)(*arguments))


#: Takes the segments of one checkpoint into a folder of its own.
Image = SnapshotManager | ReachedImage


def copy_segment(
    source: StoredSegments,
    image: Image,
    ref: SegmentRef,
    before: Owner,
    after: Owner,
    checkpoint: int,
    *,
    kind: Literal["snapshot", "in_flight"],
    entries: int,
) -> SegmentRef:
    """Append a segment of `before`; FileNotFoundError or CorruptSegmentError if unreadable."""
    if isinstance(source, ReachedSegments) and isinstance(image, ReachedImage):
        whose = (before, after, checkpoint)
        return image.copy_segment(source, ref, *whose, kind=kind, entries=entries)
    payload = source.read(ref, before)
    return image.append(after, checkpoint, payload, kind=kind, entries=entries)


def copy_table(
    source: StoredSegments, image: Image, before: Owner, commit: str, after: Owner, checkpoint: int
) -> tuple[str, tuple[SegmentRef, ...], int]:
    """Write a table of another folder into an image, as one segment.

    Returns the id of its commit, its segments, and the number of keys. Raises a FileNotFoundError
    or CorruptSegmentError if it cannot be read.
    """
    whose = (before, commit, after, checkpoint)
    # `stored_segments` and `new_image` choose the same kind, mounted or reached.
    if isinstance(image, ReachedImage):
        return image.copy_table(cast("ReachedSegments", source), *whose)
    return image.copy_table(cast("MountedSegments", source).folder, *whose)


@contextmanager
def mounted_tables(
    source: StoredSegments, tables: Sequence[tuple[Owner, str]], checkpoint: int
) -> Iterator[tuple[Path, Sequence[tuple[Owner, str]]]]:
    """Yield the folder of tables, with owners and commits; temporary copies if the JVM reads it."""
    if isinstance(source, MountedSegments):
        yield source.folder, tables
        return
    with TemporaryDirectory(prefix="holdfast-tables-") as folder:
        with closing(ReachedImage(f"file:{folder}", source.reached)) as image:
            copies = [
                (owner, image.copy_table(source, owner, commit, owner, checkpoint)[0])
                for owner, commit in tables
            ]
        yield Path(folder), copies


def divide_tables(
    before: tuple[Path, Sequence[tuple[Owner, str]]],
    image: Image,
    after: Owner,
    checkpoint: int,
    *,
    keys: Sequence[str],
    choose: Callable[[int, int, Any], bytes],
) -> tuple[str, tuple[SegmentRef, ...], int]:
    """Write rows of `mounted_tables` into an image, as one table.

    An image of the JVM takes it from a temporary folder. See `copy_table`, and
    `holdfast.SnapshotManager.divide_tables` for the parameters.
    """
    if isinstance(image, SnapshotManager):
        return image.divide_tables(*before, after, checkpoint, keys=keys, choose=choose)
    with TemporaryDirectory(prefix="holdfast-tables-") as folder:
        with SnapshotManager(folder) as staged:
            commit, _, _ = divide_tables(
                before, staged, after, checkpoint, keys=keys, choose=choose
            )
        with closing(ReachedSegments(f"file:{folder}", image.reached)) as segments:
            return image.copy_table(segments, after, commit, after, checkpoint)


@contextmanager
def new_image(folder: AnyPath, *, source: AnyPath, max_file_bytes: int) -> Iterator[Image]:
    """Write segments from `source` into a new folder; by the JVM if only it reaches one of both."""
    reached = folder if isinstance(folder, HadoopPath) else source
    if isinstance(reached, HadoopPath):
        image = ReachedImage(folder.spark_name, reached, max_file_bytes=max_file_bytes)
        with closing(image):
            yield image
    else:
        with SnapshotManager(str(folder), max_file_bytes=max_file_bytes) as manager:
            yield manager


def _parts(owner: Owner) -> tuple[str, str, str, str]:
    return owner.pipeline, owner.operator, owner.region, owner.store
