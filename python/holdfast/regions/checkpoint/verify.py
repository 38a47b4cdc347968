"""Verifies that a checkpoint can be read, and finds one to restore instead (R75).

Takes no term and changes no file, so a pipeline may run in the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast._core import Owner, RegionEntry, SegmentRef
from holdfast.files.paths import AnyPath
from holdfast.files.segments import StoredSegments, stored_segments
from holdfast.files.verdicts import UNREADABLE, Damage, Verdict
from holdfast.regions.base.errors import RegionalQueryError
from holdfast.regions.files.folders import PIPELINE_PROPERTY, SEGMENTS_FOLDER, CheckpointFolders


@dataclass
class Verification:
    """Reads everything that checkpoints need. A segment of several checkpoints is read once.

    `pipeline` is the name in the owners of its segments; by default the metadata has it.
    """

    folder: AnyPath
    pipeline: str | None = None
    _payload_bytes: dict[tuple[Owner, SegmentRef], int | str] = field(default_factory=dict)

    def verify(self, id: int, progress: Callable[[int, int], None] | None = None) -> Verdict:
        """Verify one checkpoint; `progress` takes the numbers of finished and of all segments."""
        try:
            metadata = CheckpointFolders(self.folder).read(id)
            pipeline = self.pipeline
            if pipeline is None:
                pipeline = metadata.properties.get(PIPELINE_PROPERTY, "")
            segments = metadata.segments(pipeline)
        except UNREADABLE as error:
            return Verdict(id, damage=(Damage(None, str(error)),))
        with stored_segments(self.folder / SEGMENTS_FOLDER) as stored:
            # The order of their places needs few requests.
            ordered = sorted(segments, key=lambda one: (one[2].file, one[2].offset))
            for done, (owner, _, ref) in enumerate(ordered, start=1):
                self._read(stored, owner, ref)
                if progress is not None:
                    progress(done, len(segments))
        damage = []
        for owner, _, ref in segments:
            found = self._payload_bytes[owner, ref]
            if isinstance(found, str):
                damage.append(Damage(owner.region, found))
        unreadable_segments = len(damage)
        for entry in metadata.regions.values():
            damage += [Damage(entry.region, text) for text in self._outside(pipeline, entry)]
        unreadable = {one.part for one in damage}
        return Verdict(
            id=id,
            parts=len(metadata.regions),
            readable_parts=len(metadata.regions) - len(unreadable),
            segments=len(segments),
            readable_segments=len(segments) - unreadable_segments,
            damage=tuple(damage),
        )

    def _read(self, stored: StoredSegments, owner: Owner, ref: SegmentRef) -> None:
        """Note the size of the payload in bytes, or why it cannot be read."""
        if (owner, ref) not in self._payload_bytes:
            try:
                self._payload_bytes[owner, ref] = stored.payload_bytes(ref, owner)
            except UNREADABLE as error:
                self._payload_bytes[owner, ref] = str(error)

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
    """A checkpoint, or something it needs, is damaged; `intact` is the newest older intact id."""

    def __init__(
        self, verdict: Verdict, intact: int | None, *, restored_from: AnyPath | None = None
    ) -> None:
        damage = verdict.damage[0]
        what = "its metadata" if damage.part is None else f"state of region {damage.part!r}"
        more = f" ({len(verdict.damage) - 1} more are unreadable)" if verdict.damage[1:] else ""
        if intact is None:
            way_out = (
                "no older checkpoint is intact: put the damaged files back from a copy, or begin "
                "with a new checkpoint folder and a new output folder"
            )
        elif restored_from is None:
            way_out = (
                f"checkpoint {intact} is intact: with checkpoint_id={intact}, the pipeline goes "
                "back to it, and rows since then are processed again"
            )
        else:
            way_out = (
                f"checkpoint {intact} is intact: begin from it with restore="
                f"holdfast.restore({str(restored_from)!r}, checkpoint_id={intact})"
            )
        super().__init__(
            f"checkpoint {verdict.id} cannot be restored: {what}: {damage.message}{more}. "
            f"`holdfast verify` names everything that is damaged. {way_out}"
        )
        self.checkpoint = verdict.id
        self.intact = intact


def require_intact(
    root: AnyPath, checkpoint: int, older: Sequence[int], *, restored: bool = False
) -> None:
    """Read everything that a checkpoint needs, and fail if anything is damaged.

    `older` are retained checkpoints to offer instead, ascending. With `restored`, another pipeline
    begins from it with ``restore=``. Raises a DamagedCheckpointError with checkpoint, owner, file,
    offset and the way out, or a NewerFormatError if a newer Holdfast wrote it.
    """
    verification = Verification(root)
    verdict = verification.verify(checkpoint)
    if verdict.damage:
        intact = (id for id in reversed(older) if not verification.verify(id).damage)
        origin = root if restored else None
        raise DamagedCheckpointError(verdict, next(intact, None), restored_from=origin)
