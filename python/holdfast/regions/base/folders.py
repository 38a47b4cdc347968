"""Where a pipeline keeps what in its checkpoint folder, and under which properties."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.durable import write_text
from holdfast.regions.base.folder_lease import FolderLease
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.metadata_files import delete_metadata, write_metadata
from holdfast.regions.base.paths import AnyPath

#: Attempts whose numbers are taken at once where each request counts.
RESERVED_ATTEMPTS: Final = 64

#: Checkpoints that go at once on an object store, where one request deletes many objects.
DROPPED_TOGETHER: Final = 4

#: How long an object waits for the answers of a task that are still to come, in milliseconds: about
#: as long as it takes to make an object.
OBJECT_GATHER_MS: Final = 100

METADATA_FOLDER = "metadata"
SEGMENTS_FOLDER = "segments"
HISTORY_FOLDER = "history"
LAST_ATTEMPT = "last-attempt"

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
    root : Path or HadoopPath
        Folder of the pipeline's checkpoint.
    """

    root: AnyPath

    @property
    def metadata(self) -> AnyPath:
        """One file for every retained checkpoint."""
        return self.root / METADATA_FOLDER

    @property
    def segments(self) -> AnyPath:
        """Merged files of all executors."""
        return self.root / SEGMENTS_FOLDER

    @property
    def stream(self) -> AnyPath:
        """What Spark keeps about the stream: its offsets, its commits, files its sources saw."""
        return self.root / "spark"

    @property
    def output(self) -> AnyPath:
        """Rows on their way to a function, see ``foreach_batch``."""
        return self.root / "output"

    @property
    def history(self) -> AnyPath:
        """What became of attempts, for people, see `checkpoint.history_pages`."""
        return self.root / HISTORY_FOLDER

    @property
    def last_attempt(self) -> AnyPath:
        """Number of the newest attempt: one that was aborted leaves no other trace (R2)."""
        return self.root / LAST_ATTEMPT

    @property
    def identity(self) -> AnyPath:
        """What its output folder knows the pipeline by, see `checkpoint.ownership`."""
        return self.root / "pipeline-id"

    @property
    def lock(self) -> AnyPath:
        """Locked while the pipeline runs; a folder of leases where there are no locks."""
        return self.root / "lock"

    @property
    def rewind(self) -> AnyPath:
        """Number of the checkpoint to go back to, while that is under way."""
        return self.root / "rewind"

    def publish(self, metadata: CheckpointMetadata) -> None:
        """Write the metadata of a checkpoint, whole and durable or not at all (R18).

        Raises
        ------
        OSError
            If that fails. The metadata may be there all the same.
        """
        write_metadata(metadata, self.metadata)

    def drop(self, *ids: int) -> None:
        """Delete the metadata of checkpoints; what is gone already is no error.

        Raises
        ------
        OSError
            If that of one is not deleted; others may be.
        """
        delete_metadata(self.metadata, *ids)

    @property
    def dropped_together(self) -> int:
        """How many subsumed checkpoints go at once (R70)."""
        return DROPPED_TOGETHER if self._on_object_store else 1

    @property
    def gather_ms(self) -> int:
        """For how long a task gathers answers before it makes them durable, in milliseconds."""
        return OBJECT_GATHER_MS if self._on_object_store else 0

    @property
    def _on_object_store(self) -> bool:
        return isinstance(self.root, HadoopPath) and not self.root.renames

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
        if isinstance(self.last_attempt, HadoopPath):
            write_text(self.last_attempt, str(attempt))
            return
        # Not synced: tasks that could take a new attempt for this one do not outlive the machine.
        staged = self.last_attempt.with_suffix(".new")
        staged.write_text(str(attempt))
        staged.replace(self.last_attempt)


@dataclass(frozen=True)
class LeasedFolders(CheckpointFolders):
    """Paths inside a checkpoint folder that is this process's by a lease.

    Parameters
    ----------
    root : HadoopPath
        Folder of the pipeline's checkpoint.
    lease : FolderLease
        Through which everything is written that another process would go on from.
    reserved : list of int
        The newest attempt that this process has kept a number for.
    """

    root: HadoopPath
    lease: FolderLease
    reserved: list[int] = field(default_factory=lambda: [-1], compare=False)

    def publish(self, metadata: CheckpointMetadata) -> None:
        """Write the metadata of a checkpoint, as `CheckpointFolders.publish`.

        Raises
        ------
        FolderLostError
            If the folder is another process's by now. Nothing is written.
        """
        write_metadata(metadata, self.metadata, self.lease)

    def note_attempt(self, attempt: int) -> None:
        """Keep the number of an attempt that begins, as `CheckpointFolders.note_attempt`.

        What is written is that of a later one: a restart goes on behind it, and until then the
        attempts up to it need no request. Tasks on other machines may outlive that of the driver.

        Raises
        ------
        FolderLostError
            If the folder is another process's by now. Nothing is written.
        """
        if attempt > self.reserved[-1]:
            last = attempt + RESERVED_ATTEMPTS - 1
            self.lease.write(self.root / LAST_ATTEMPT, str(last).encode(), replace=True)
            self.reserved[-1] = last
