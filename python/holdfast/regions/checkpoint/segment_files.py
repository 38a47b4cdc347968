"""Segments without a manager's view of what is needed: read for inspection, written as an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._core import Owner, SegmentRef, SnapshotManager, read_segment
from holdfast.regions.base.hadoop_path import HadoopPath, call_jvm
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.state.segments import SegmentAppender

if TYPE_CHECKING:
    from typing_extensions import Buffer


def read_stored_segment(folder: AnyPath, ref: SegmentRef, owner: Owner) -> bytes:
    """Read a segment and verify all of it, without a manager.

    Parameters
    ----------
    folder : Path or HadoopPath
        Folder of the merged files.
    ref : SegmentRef
        The segment.
    owner : Owner
        Whose state it is.

    Raises
    ------
    FileNotFoundError, CorruptSegmentError, NotImplementedError, OSError
        As `holdfast._core.read_segment` says.
    """
    if not isinstance(folder, HadoopPath):
        return read_segment(folder, ref, owner)
    return bytes(
        call_jvm(
            "reading a segment in",
            folder,
            lambda files: files.readSegment(str(folder), ref.to_bytes(), *_parts(owner)),
        )
    )


def stored_payload_bytes(folder: AnyPath, ref: SegmentRef, owner: Owner) -> int:
    """Verify all of a segment, and return the size of its payload in bytes.

    Parameters and errors are those of `read_stored_segment`.
    """
    if not isinstance(folder, HadoopPath):
        return len(read_segment(folder, ref, owner))
    return int(
        call_jvm(
            "reading a segment in",
            folder,
            lambda files: files.segmentBytes(str(folder), ref.to_bytes(), *_parts(owner)),
        )
    )


class ImageStore(SegmentAppender, Protocol):
    """Takes the segments of one checkpoint in a folder of its own."""

    def copy(
        self,
        source: AnyPath,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """Append a segment with the payload of one in the folder `source`, whose owner is `before`.

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
        source: AnyPath,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """See `ImageStore`."""
        payload = read_stored_segment(source, ref, before)
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
        source: AnyPath,
        ref: SegmentRef,
        before: Owner,
        owner: Owner,
        checkpoint: int,
        *,
        kind: Literal["snapshot", "in_flight"],
        entries: int,
    ) -> SegmentRef:
        """See `ImageStore`; the payload stays in the JVM."""
        written = self._call(
            lambda image: image.copy(
                str(source),
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
