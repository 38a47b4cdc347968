"""Segments without a manager: read for inspection, or written as an image of one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast._core import (
    Owner,
    SegmentRef,
    SegmentReport,
    SnapshotManager,
    inspect_segment,
    read_segment,
    read_table,
)
from holdfast.regions.files.paths import AnyPath
from holdfast.regions.files.reached import HadoopPath, call_jvm

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MountedSegments:
    """Segments in a folder, read one after the other without a manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read a segment and verify all of it.

        Raises
        ------
        FileNotFoundError, CorruptSegmentError, NewerFormatError, OSError
            In the same cases as `holdfast._core.read_segment`.
        """
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

    Files stay open after a read, and small segments are read together with those around them: in
    the order of their places, all of a checkpoint takes few requests.
    """

    def __init__(self, folder: str, reached: HadoopPath) -> None:
        self._reached = reached
        self.reader: Any = self._call(lambda files: files.openSegments(folder))

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """See `MountedSegments`."""
        return bytes(self._call(lambda _: self.reader.read(ref.to_bytes(), *_parts(owner))))

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """See `MountedSegments`."""
        return int(self._call(lambda _: self.reader.bytes(ref.to_bytes(), *_parts(owner))))

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """See `MountedSegments`."""
        data = self._call(lambda _: self.reader.inspect(ref.to_bytes()))
        return SegmentReport.from_bytes(bytes(data))

    def read_table(self, owner: Owner, commit: str) -> bytes:
        """See `MountedSegments`."""
        return bytes(self._call(lambda _: self.reader.readTable(commit, *_parts(owner))))

    def close(self) -> None:
        """Close its files."""
        self._call(lambda _: self.reader.close())

    def _call(self, call: Any) -> Any:
        return call_jvm("reading a segment in", self._reached, call)


StoredSegments = MountedSegments | ReachedSegments


@contextmanager
def stored_segments(folder: AnyPath, *, into: AnyPath | None = None) -> Iterator[StoredSegments]:
    """Read the segments of a folder, which need not exist before the first read.

    `into` is the folder of the image that they are copied into. If only the JVM reaches that, the
    JVM reads them.
    """
    if isinstance(folder, HadoopPath):
        into = folder
    elif not isinstance(into, HadoopPath):
        yield MountedSegments(folder)
        return
    with closing(ReachedSegments(folder.spark_name, into)) as segments:
        yield segments


class ReachedImage:
    """Takes the segments of one checkpoint into a folder that only the JVM reaches."""

    def __init__(self, folder: HadoopPath, max_file_bytes: int) -> None:
        self._folder = folder
        self._image: Any = self._call(lambda files: files.openImage(str(folder), max_file_bytes))

    def append(
        self,
        owner: Owner,
        checkpoint: int,
        data: Buffer,
        *,
        kind: Literal["snapshot", "changelog", "base_image", "in_flight"] = "snapshot",
        lineage: Sequence[SegmentRef] = (),
        entries: int = 0,
    ) -> SegmentRef:
        """Append a segment, as `holdfast.SnapshotManager.append`."""
        if lineage:
            raise ValueError("the segments of an image have no lineage")
        whose = (*_parts(owner), checkpoint, kind, entries)
        return self.write(lambda image: image.append(*whose, bytes(data)))

    def copy_table(
        self, source: ReachedSegments, before: Owner, commit: str, after: Owner, checkpoint: int
    ) -> tuple[str, tuple[SegmentRef, ...], int]:
        """Copy a table, see `holdfast.SnapshotManager.copy_table`."""
        original = (source.reader, commit, before.pipeline)
        done = self._call(lambda _: self._image.copyTable(*original, *_parts(after), checkpoint))
        copied, keys, *refs = map(str, done)
        segments = tuple(SegmentRef.from_bytes(bytes.fromhex(ref)) for ref in refs)
        return copied, segments, int(keys)

    def write(self, call: Callable[[Any], Any]) -> SegmentRef:
        """Write a segment by a call of the image in the JVM."""
        return SegmentRef.from_bytes(bytes(self._call(lambda _: call(self._image))))

    def persist(self, checkpoint: int) -> None:
        """Make all segments of a checkpoint durable."""
        self._call(lambda _: self._image.persist(checkpoint))

    def close(self) -> None:
        """Seal its files."""
        self._call(lambda _: self._image.close())

    def _call(self, call: Any) -> Any:
        return call_jvm("writing segments in", self._folder, call)


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
    """Append a segment to an image, with the payload of one whose owner is `before`.

    Raises
    ------
    FileNotFoundError, CorruptSegmentError
        If that cannot be read.
    """
    if isinstance(source, ReachedSegments) and isinstance(image, ReachedImage):
        # The payload stays in the JVM.
        original = (source.reader, ref.to_bytes(), before.pipeline)
        whose = (*_parts(after), checkpoint, kind, entries)
        return image.write(lambda written: written.copy(*original, *whose))
    payload = source.read(ref, before)
    return image.append(after, checkpoint, payload, kind=kind, entries=entries)


def copy_table(
    source: StoredSegments, image: Image, before: Owner, commit: str, after: Owner, checkpoint: int
) -> tuple[str, tuple[SegmentRef, ...], int]:
    """Write a table of another folder into an image, as one segment.

    Returns the id of its commit there, its segments, and the number of keys.

    Raises
    ------
    FileNotFoundError, CorruptSegmentError
        If it cannot be read.
    NotImplementedError
        If `copies_tables` is false.
    """
    if isinstance(source, ReachedSegments) and isinstance(image, ReachedImage):
        return image.copy_table(source, before, commit, after, checkpoint)
    if isinstance(source, ReachedSegments) or isinstance(image, ReachedImage):
        raise NotImplementedError(
            f"the table {after} cannot be copied from a file system that only Spark reaches into a "
            "mounted folder: restore into a folder on the same file system"
        )
    return image.copy_table(source.folder, before, commit, after, checkpoint)


def copies_tables(source: StoredSegments, image: Image) -> bool:
    """Return whether one side reaches both folders."""
    return isinstance(source, ReachedSegments) == isinstance(image, ReachedImage)


def divide_tables(
    source: StoredSegments,
    image: Image,
    before: Sequence[tuple[Owner, str]],
    after: Owner,
    checkpoint: int,
    *,
    keys: Sequence[str],
    choose: Callable[[int, int, Any], bytes],
) -> tuple[str, tuple[SegmentRef, ...], int]:
    """Write rows of tables of another folder into an image, as one table.

    See `copy_table`, and `holdfast.SnapshotManager.divide_tables` for the parameters.
    """
    if isinstance(source, ReachedSegments) or isinstance(image, ReachedImage):
        raise NotImplementedError(
            f"the table {after} cannot be divided: with another parallelism or route_by, pipelines "
            "with tables need mounted folders on both sides"
        )
    return image.divide_tables(source.folder, before, after, checkpoint, keys=keys, choose=choose)


@contextmanager
def new_image(folder: AnyPath, *, max_file_bytes: int) -> Iterator[Image]:
    """Write segments into a folder that has none; it is created if it is not there."""
    if isinstance(folder, HadoopPath):
        with closing(ReachedImage(folder, max_file_bytes)) as image:
            yield image
    else:
        with SnapshotManager(folder, max_file_bytes=max_file_bytes) as manager:
            yield manager


def _parts(owner: Owner) -> tuple[str, str, str, str]:
    return owner.pipeline, owner.operator, owner.region, owner.store
