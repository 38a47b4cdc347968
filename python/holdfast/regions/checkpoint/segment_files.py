"""Segments without a manager's view of what is needed: read for inspection, written as an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._core import (
    Owner,
    SegmentRef,
    SegmentReport,
    SnapshotManager,
    inspect_segment,
    read_segment,
)
from holdfast.regions.base.hadoop_path import HadoopPath, call_jvm
from holdfast.regions.base.paths import AnyPath, spark_name
from holdfast.regions.state.segments import SegmentAppender

if TYPE_CHECKING:
    from typing_extensions import Buffer


class StoredSegments(Protocol):
    """Segments in a folder, read one after the other without a manager.

    Of a file system that only the JVM reaches, files that were read stay open, and small segments
    are read together with those around them: in the order in which they lie, all of a checkpoint
    takes few requests.
    """

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read a segment and verify all of it.

        Raises
        ------
        FileNotFoundError, CorruptSegmentError, NotImplementedError, OSError
            As `holdfast._core.read_segment` says.
        """

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """Verify all of a segment, and return the size of its payload in bytes.

        Errors are those of `read`.
        """

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """Verify all of a segment of a state store, and return what it holds.

        Errors are those of `read`.
        """


@contextmanager
def stored_segments(folder: AnyPath, *, into: AnyPath | None = None) -> Iterator[StoredSegments]:
    """Read the segments of a folder.

    Parameters
    ----------
    folder : Path or HadoopPath
        Folder of the merged files. It need not be there before a segment is read.
    into : Path or HadoopPath, optional
        Folder of the image that they are copied into. If only the JVM reaches that, it reads them.
    """
    if isinstance(folder, HadoopPath):
        segments = _SegmentsInJvm(str(folder), folder)
    elif isinstance(into, HadoopPath):
        segments = _SegmentsInJvm(spark_name(folder), into)
    else:
        yield _LocalSegments(folder)
        return
    try:
        yield segments
    finally:
        segments.close()


class _LocalSegments:
    """Segments on a file system that is mounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """See `StoredSegments`."""
        return read_segment(self._folder, ref, owner)

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """See `StoredSegments`."""
        return len(read_segment(self._folder, ref, owner))

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """See `StoredSegments`."""
        return inspect_segment(self._folder, ref)


class _SegmentsInJvm:
    """Segments that the JVM reads."""

    def __init__(self, folder: str, reached: HadoopPath) -> None:
        self._reached = reached
        self.reader: Any = self._call(lambda files: files.openSegments(folder))

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """See `StoredSegments`."""
        return bytes(self._call(lambda _: self.reader.read(ref.to_bytes(), *_parts(owner))))

    def payload_bytes(self, ref: SegmentRef, owner: Owner) -> int:
        """See `StoredSegments`. The payload does not leave the JVM."""
        return int(self._call(lambda _: self.reader.bytes(ref.to_bytes(), *_parts(owner))))

    def inspect(self, ref: SegmentRef) -> SegmentReport:
        """See `StoredSegments`."""
        data = self._call(lambda _: self.reader.inspect(ref.to_bytes()))
        return SegmentReport.from_bytes(bytes(data))

    def close(self) -> None:
        """Close its files."""
        self._call(lambda _: self.reader.close())

    def _call(self, call: Any) -> Any:
        return call_jvm("reading a segment in", self._reached, call)


class ImageStore(SegmentAppender, Protocol):
    """Takes the segments of one checkpoint in a folder of its own."""

    def copy(
        self,
        source: StoredSegments,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """Append a segment with the payload of one in `source`, whose owner is `before`.

        Raises
        ------
        FileNotFoundError, CorruptSegmentError
            If that cannot be read.
        """

    def persist(self, checkpoint: int) -> None:
        """Make all segments of a checkpoint durable."""


@contextmanager
def new_image(folder: AnyPath, *, max_file_bytes: int) -> Iterator[ImageStore]:
    """Write segments into a folder that has none.

    Parameters
    ----------
    folder : Path or HadoopPath
        The folder; created if it is not there.
    max_file_bytes : int
        Size in bytes at which a merged file is sealed.
    """
    if not isinstance(folder, HadoopPath):
        with SnapshotManager(folder, max_file_bytes=max_file_bytes) as manager:
            yield _LocalImage(manager)
        return
    image = _RemoteImage(folder, max_file_bytes)
    try:
        yield image
    finally:
        image.close()


class _LocalImage:
    """An image on a file system that is mounted."""

    def __init__(self, manager: SnapshotManager) -> None:
        self._manager = manager
        self.append = manager.append
        self.persist = manager.persist

    def copy(
        self,
        source: StoredSegments,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """See `ImageStore`."""
        payload = source.read(ref, before)
        return self._manager.append(owner, checkpoint, payload, kind=kind, entries=entries)


class _RemoteImage:
    """An image on a file system that only the JVM reaches. Nothing else refers to its segments."""

    def __init__(self, folder: HadoopPath, max_file_bytes: int) -> None:
        self._folder = folder
        self._image: Any = call_jvm(
            "writing segments in",
            folder,
            lambda files: files.openImage(str(folder), max_file_bytes),
        )

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
        written = self._call(
            lambda image: image.append(*_parts(owner), checkpoint, kind, entries, bytes(data))
        )
        return SegmentRef.from_bytes(bytes(written))

    def copy(
        self,
        source: StoredSegments,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """See `ImageStore`; the payload stays in the JVM."""
        if not isinstance(source, _SegmentsInJvm):
            raise TypeError(f"{type(source).__name__} does not read in the JVM")
        written = self._call(
            lambda image: image.copy(
                source.reader,
                ref.to_bytes(),
                before.pipeline,
                *_parts(owner),
                checkpoint,
                kind,
                entries,
            )
        )
        return SegmentRef.from_bytes(bytes(written))

    def persist(self, checkpoint: int) -> None:
        """Make all segments of a checkpoint durable."""
        self._call(lambda image: image.persist(checkpoint))

    def close(self) -> None:
        """Seal its files."""
        self._call(lambda image: image.close())

    def _call(self, call: Any) -> Any:
        return call_jvm("writing segments in", self._folder, lambda _files: call(self._image))


def _parts(owner: Owner) -> tuple[str, str, str, str]:
    return owner.pipeline, owner.operator, owner.region, owner.store
