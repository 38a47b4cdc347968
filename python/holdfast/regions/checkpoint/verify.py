"""Whether all of a checkpoint can be read, and which one can be restored instead (R75).

Nothing here takes a term or changes a file, so a checkpoint folder can be verified while its
pipeline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast._core import Owner, RegionEntry, SegmentRef
from holdfast.regions.base.errors import RegionalQueryError
from holdfast.regions.base.folders import PIPELINE_PROPERTY, SEGMENTS_FOLDER
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.checkpoint.read import UNREADABLE, read_metadata
from holdfast.regions.checkpoint.segment_files import StoredSegments, stored_segments


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
    folder : Path or HadoopPath
        The checkpoint folder of a pipeline.
    pipeline : str, optional
        Name of the pipeline in the owners of its segments; by default what the metadata says.
    """

    folder: AnyPath
    pipeline: str | None = None
    _payload_bytes: dict[tuple[Owner, SegmentRef], int | str] = field(default_factory=dict)

    def verify(self, id: int, progress: Callable[[int, int], None]) -> Verdict:
        """Verify one checkpoint.

        Parameters
        ----------
        id : int
            The checkpoint.
        progress : callable
            Called with the number of segments that are done, and of all.

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
        with stored_segments(self.folder / SEGMENTS_FOLDER) as stored:
            # In the order in which they lie.
            ordered = sorted(segments, key=lambda one: (one[2].file, one[2].offset))
            for done, (owner, _, ref) in enumerate(ordered, start=1):
                self._read(stored, owner, ref)
                progress(done, len(segments))
        damage = []
        for owner, _, ref in segments:
            found = self._payload_bytes[owner, ref]
            if isinstance(found, str):
                damage.append(Damage(id, owner.region, found))
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

    def _read(self, stored: StoredSegments, owner: Owner, ref: SegmentRef) -> None:
        """Note the size of the payload in bytes, or why it cannot be read."""
        if (owner, ref) not in self._payload_bytes:
            found: int | str
            try:
                found = stored.payload_bytes(ref, owner)
            except UNREADABLE as error:
                found = str(error)
            self._payload_bytes[owner, ref] = found

    def _outside(self, pipeline: str, entry: RegionEntry) -> Iterator[str]:
        """Yield the pieces of states that reach beyond the payload of their segment."""
        for operator in entry.operators:
            for state in operator.states:
                owner = Owner(pipeline, operator.name, entry.region, state.name)
                for piece in state.pieces:
                    payload_bytes = self._payload_bytes[owner, piece.ref]
                    end = piece.payload_offset + piece.length
                    if isinstance(payload_bytes, int) and end > payload_bytes:
                        yield (
                            f"segment {self.folder / SEGMENTS_FOLDER / piece.ref.file} at offset "
                            f"{piece.ref.offset} of {owner}: expected a payload of at least "
                            f"{end} bytes, found {payload_bytes}"
                        )


class DamagedCheckpointError(RegionalQueryError):
    """A checkpoint, or something that it needs, is missing or corrupt.

    Attributes
    ----------
    checkpoint : int
        Its id.
    intact : int or None
        Id of the newest older checkpoint that is intact.
    """

    def __init__(self, verdict: Verdict, intact: int | None) -> None:
        damage = verdict.damage[0]
        what = "its metadata" if damage.region is None else f"state of region {damage.region!r}"
        more = f" ({len(verdict.damage) - 1} more are unreadable)" if verdict.damage[1:] else ""
        way_out = (
            f"checkpoint {intact} is intact: with checkpoint_id={intact}, the pipeline goes back "
            "to it, and rows since then are processed again"
            if intact is not None
            else "no older checkpoint is intact"
        )
        super().__init__(
            f"checkpoint {verdict.checkpoint} cannot be restored: {what}: {damage.message}{more}. "
            f"`holdfast verify` names everything that is damaged. {way_out}"
        )
        self.checkpoint = verdict.checkpoint
        self.intact = intact


def require_intact(root: AnyPath, checkpoint: int, older: Sequence[int]) -> None:
    """Read everything that a checkpoint needs, and fail if anything is damaged.

    Parameters
    ----------
    root : Path or HadoopPath
        The checkpoint folder.
    checkpoint : int
        Id of the checkpoint.
    older : sequence of int
        Ids of the retained checkpoints before it, ascending, to offer instead.

    Raises
    ------
    DamagedCheckpointError
        Naming checkpoint, owner, file and offset, and what to do.
    """
    verification = Verification(root)
    verdict = verification.verify(checkpoint, _unseen)
    if verdict.damage:
        intact = (id for id in reversed(older) if not verification.verify(id, _unseen).damage)
        raise DamagedCheckpointError(verdict, next(intact, None))


def _unseen(done: int, total: int) -> None:
    """Show no progress: a pipeline that starts has no screen for it."""
