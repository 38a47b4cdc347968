"""What the checkpoints of a regional pipeline hold, and whether all of it can be read.

Nothing here takes a term or changes a file, so a checkpoint folder can be looked at while its
pipeline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast._core import CheckpointMetadata, Owner, RegionEntry, SegmentRef, read_segment
from holdfast._query import is_query_checkpoint, read_query_checkpoint

METADATA_FOLDER = "metadata"
SEGMENTS_FOLDER = "segments"

#: Property of the metadata that names the pipeline in the owners of its segments.
PIPELINE_PROPERTY = "pipeline"

#: Property that says where the sink wrote.
OUTPUT_PROPERTY = "output"

#: Property that identifies the pipeline's checkpoint folder, also if that is moved.
IDENTITY_PROPERTY = "pipeline_id"

#: Properties of the checkpoints of a pipeline that began with a copy of another folder's
#: checkpoint: that folder, its identity, the checkpoint's id and time, and whether the folder was
#: claimed.
RESTORED_FROM_PROPERTY = "restored_from"
RESTORED_IDENTITY_PROPERTY = "restored_pipeline_id"
RESTORED_CHECKPOINT_PROPERTY = "restored_checkpoint"
RESTORED_CREATED_PROPERTY = "restored_created_ms"
RESTORE_MODE_PROPERTY = "restore_mode"
RESTORED_PROPERTIES = (
    RESTORED_FROM_PROPERTY,
    RESTORED_IDENTITY_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_CREATED_PROPERTY,
    RESTORE_MODE_PROPERTY,
)

#: A file of a newer version is no damage, but cannot be read either.
UNREADABLE = (OSError, NotImplementedError)


def metadata_folder(folder: Path) -> Path:
    """Return the folder of the metadata files.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint folder of a pipeline.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileNotFoundError
        If there is none: the folder is not that of a pipeline.
    """
    found = folder / METADATA_FOLDER
    if found.is_dir():
        return found
    if is_query_checkpoint(folder):
        raise FileNotFoundError(
            f"{read_query_checkpoint(folder).describe()}: it holds no checkpoints of a regional "
            "pipeline"
        )
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    raise FileNotFoundError(
        f"{found} is missing: {folder} holds no checkpoints of a regional pipeline"
    )


def metadata_path(folder: Path, id: int) -> Path:
    """Return the path of a checkpoint's metadata file, see rust/core/FORMAT.md."""
    return folder / METADATA_FOLDER / f"{id:016x}.hfc"


def read_metadata(folder: Path, id: int) -> CheckpointMetadata:
    """Read the metadata of a checkpoint.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint folder of a pipeline.
    id : int
        The checkpoint.

    Returns
    -------
    CheckpointMetadata

    Raises
    ------
    OSError, NotImplementedError
        If it cannot be read, as `CheckpointMetadata.read` says.
    """
    return CheckpointMetadata.read(metadata_path(folder, id))


def checkpoint_ids(folder: Path) -> list[int]:
    """Return the ids of all checkpoints, ascending."""
    return CheckpointMetadata.list(metadata_folder(folder))


@dataclass(frozen=True)
class Summary:
    """One checkpoint in a list of them.

    Attributes
    ----------
    metadata : CheckpointMetadata
        What it was made from.
    finished_regions : int
        Number of regions whose data has ended.
    in_flight_rows, in_flight_bytes : int
        Rows that regions owe, and their size in bytes.
    staged_files : int
        Number of files that sinks staged.
    stored_bytes : int
        Size in bytes of its metadata file and of every segment it needs.
    """

    metadata: CheckpointMetadata
    finished_regions: int
    in_flight_rows: int
    in_flight_bytes: int
    staged_files: int
    stored_bytes: int


def summarise(folder: Path, id: int) -> Summary:
    """Read a checkpoint's metadata and add it up.

    Parameters
    ----------
    folder, id
        As for `read_metadata`.

    Returns
    -------
    Summary

    Raises
    ------
    OSError, NotImplementedError
        As for `read_metadata`.
    """
    metadata = read_metadata(folder, id)
    entries = metadata.regions.values()
    # A segment has one owner, so none is counted twice.
    segment_bytes = sum(ref.length for entry in entries for _, _, ref in entry.refs())
    return Summary(
        metadata=metadata,
        finished_regions=sum(entry.finished for entry in entries),
        in_flight_rows=sum(in_flight_rows(entry) for entry in entries),
        in_flight_bytes=sum(entry.in_flight_bytes for entry in entries),
        staged_files=sum(len(entry.staged) for entry in entries),
        stored_bytes=metadata_path(folder, id).stat().st_size + segment_bytes,
    )


def in_flight_rows(entry: RegionEntry) -> int:
    """Return the number of rows that a region owes."""
    return sum(part.rows for part in entry.in_flight)


@dataclass(frozen=True)
class Damage:
    """Something that cannot be read (R75).

    Attributes
    ----------
    checkpoint : int
        The checkpoint that needs it.
    region : str or None
        The region whose state it belongs to; None for the metadata itself.
    message : str
        What is wrong, with file, offset and owner.
    """

    checkpoint: int
    region: str | None
    message: str


@dataclass(frozen=True)
class Verdict:
    """What can be read of one checkpoint.

    Attributes
    ----------
    checkpoint : int
        The checkpoint.
    regions, readable_regions : int
        Number of regions, and of those with all of their state and in-flight data readable. Both
        are 0 when the metadata itself cannot be read.
    segments, readable_segments : int
        Number of segments it needs, and of those that can be read.
    damage : tuple of Damage
        Everything that cannot be read.
    """

    checkpoint: int
    regions: int = 0
    readable_regions: int = 0
    segments: int = 0
    readable_segments: int = 0
    damage: tuple[Damage, ...] = ()


@dataclass
class Verification:
    """Reads everything that checkpoints need. A segment of several checkpoints is read once.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint folder of a pipeline.
    pipeline : str, optional
        Name of the pipeline in the owners of its segments; by default what the metadata says.
    """

    folder: Path
    pipeline: str | None = None
    _payload_bytes: dict[tuple[Owner, SegmentRef], int | str] = field(default_factory=dict)

    def verify(self, id: int, progress: Callable[[int, int], None]) -> Verdict:
        """Verify one checkpoint.

        Parameters
        ----------
        id : int
            The checkpoint.
        progress : callable
            Told the number of segments that are done, and of all.

        Returns
        -------
        Verdict
        """
        try:
            metadata = read_metadata(self.folder, id)
            pipeline = self.pipeline
            if pipeline is None:
                pipeline = metadata.properties.get(PIPELINE_PROPERTY, "")
            segments = metadata.segments(pipeline)
        except UNREADABLE as error:
            return Verdict(id, damage=(Damage(id, None, str(error)),))
        damage = []
        for done, (owner, _, ref) in enumerate(segments, start=1):
            found = self._read(owner, ref)
            if isinstance(found, str):
                damage.append(Damage(id, owner.region, found))
            progress(done, len(segments))
        unreadable_segments = len(damage)
        for entry in metadata.regions.values():
            damage += [Damage(id, entry.region, text) for text in self._outside(pipeline, entry)]
        unreadable = {part.region for part in damage}
        return Verdict(
            checkpoint=id,
            regions=len(metadata.regions),
            readable_regions=len(metadata.regions) - len(unreadable),
            segments=len(segments),
            readable_segments=len(segments) - unreadable_segments,
            damage=tuple(damage),
        )

    def _read(self, owner: Owner, ref: SegmentRef) -> int | str:
        """Return the size of the payload in bytes, or why it cannot be read."""
        known = self._payload_bytes.get((owner, ref))
        if known is None:
            try:
                known = len(read_segment(self.folder / SEGMENTS_FOLDER, ref, owner))
            except UNREADABLE as error:
                known = str(error)
            self._payload_bytes[owner, ref] = known
        return known

    def _outside(self, pipeline: str, entry: RegionEntry) -> Iterator[str]:
        """Yield the pieces of states that reach beyond the payload of their segment."""
        for operator in entry.operators:
            for state in operator.states:
                owner = Owner(pipeline, operator.name, entry.region, state.name)
                for piece in state.pieces:
                    payload_bytes = self._read(owner, piece.ref)
                    end = piece.payload_offset + piece.length
                    if isinstance(payload_bytes, int) and end > payload_bytes:
                        yield (
                            f"segment {self.folder / SEGMENTS_FOLDER / piece.ref.file} at offset "
                            f"{piece.ref.offset} of {owner}: expected a payload of at least "
                            f"{end} bytes, found {payload_bytes}"
                        )
