"""Where a pipeline keeps what in its checkpoint folder, and under which properties."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast._core import CheckpointMetadata

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


@dataclass(frozen=True)
class CheckpointFolders:
    """Paths inside a checkpoint folder. A savepoint is laid out in the same way.

    Parameters
    ----------
    root : Path
        Folder of the pipeline's checkpoint.
    """

    root: Path

    @property
    def metadata(self) -> Path:
        """One file for every retained checkpoint."""
        return self.root / METADATA_FOLDER

    @property
    def segments(self) -> Path:
        """Merged files of all executors."""
        return self.root / SEGMENTS_FOLDER

    @property
    def stream(self) -> Path:
        """What Spark keeps about the stream: its offsets, its commits, files its sources saw."""
        return self.root / "spark"

    @property
    def output(self) -> Path:
        """Rows on their way to a function, see ``foreach_batch``."""
        return self.root / "output"

    @property
    def last_attempt(self) -> Path:
        """Number of the newest attempt: one that was aborted leaves no other trace (R2)."""
        return self.root / "last-attempt"

    @property
    def identity(self) -> Path:
        """What its output folder knows the pipeline by, see `checkpoint.ownership`."""
        return self.root / "pipeline-id"

    @property
    def lock(self) -> Path:
        """Locked while the pipeline runs."""
        return self.root / "lock"

    @property
    def rewind(self) -> Path:
        """Number of the checkpoint to go back to, while that is under way."""
        return self.root / "rewind"

    def publish(self, metadata: CheckpointMetadata) -> None:
        """Write the metadata of a checkpoint, whole and durable or not at all (R18).

        Raises
        ------
        OSError
            If that fails. The metadata may be there all the same.
        """
        metadata.write(self.metadata)

    def drop(self, ids: Iterable[int]) -> None:
        """Delete the metadata of checkpoints; what is gone already is no error."""
        for id in ids:
            CheckpointMetadata.delete(self.metadata, id)

    def read_identity(self) -> str | None:
        """Return what identifies the pipeline; None if nothing does yet."""
        try:
            return self.identity.read_text()
        except FileNotFoundError:
            return None

    def read_last_attempt(self) -> int:
        """Return the number of the newest attempt; 0 if there was none, or that is not known."""
        try:
            return int(self.last_attempt.read_text())
        except (FileNotFoundError, ValueError):
            # It is not synced: a machine that crashed may leave it empty.
            return 0

    def note_attempt(self, attempt: int) -> None:
        """Keep the number of an attempt that begins."""
        # Not synced: tasks that could take a new attempt for this one do not outlive the machine.
        staged = self.last_attempt.with_suffix(".new")
        staged.write_text(str(attempt))
        staged.replace(self.last_attempt)
