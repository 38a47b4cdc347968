"""The files in a checkpoint folder, and the properties of a checkpoint's metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast._core import (
    CheckpointMetadata,
    CorruptSegmentError,
    NewerFormatError,
    OrphanReclaimer,
)
from holdfast.files.paths import AnyPath, listed
from holdfast.files.reached import HadoopPath, call_jvm
from holdfast.queries.logs import COMMITS_FOLDER
from holdfast.regions.files.lease import FolderLease
from holdfast.regions.files.lock import Hold

#: Numbers of attempts that are reserved at once on file systems where each request counts.
RESERVED_ATTEMPTS: Final = 64

#: Checkpoints that go at once on an object store, where one request deletes many objects.
DROPPED_TOGETHER: Final = 4

#: Milliseconds for which an object waits for more answers of a task: about the time to make one.
OBJECT_GATHER_MS: Final = 100

_METADATA_NAME: Final = re.compile(r"([0-9a-f]{16})\.hfc", re.ASCII)

#: Ending of a file with regions that several checkpoints share, see rust/core/FORMAT.md.
BASE_SUFFIX: Final = ".hfb"

_BASE_NAME: Final = re.compile(rf"([0-9a-f]{{16}})-[0-9a-f]{{32}}\{BASE_SUFFIX}", re.ASCII)

METADATA_FOLDER = "metadata"
SEGMENTS_FOLDER = "segments"
HISTORY_FOLDER = "history"
LAST_ATTEMPT = "last-attempt"
PUBLISHED = "published"

#: Property of the metadata that names the pipeline in the owners of its segments.
PIPELINE_PROPERTY = "pipeline"

#: Property that identifies the pipeline's checkpoint folder, also after a move.
IDENTITY_PROPERTY = "pipeline_id"

#: Properties of a pipeline that began with a copy of another folder's checkpoint: the folder, its
#: identity, the checkpoint's id and time, and whether the folder was claimed.
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


def output_property(name: str) -> str:
    """Return the property that says where an output's sink wrote; `name` of a side output."""
    return f"output {name}" if name else "output"


@dataclass(frozen=True)
class CheckpointFolders:
    """Paths inside a checkpoint folder. A savepoint is laid out in the same way."""

    root: AnyPath
    held: Hold | None = None
    reserved: list[int] = field(default_factory=lambda: [-1], compare=False)

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
        """Spark's record of the stream: offsets, commits, files that the sources saw."""
        return self.root / "spark"

    def commit_of(self, batch_id: int) -> AnyPath:
        """Return Spark's record that a batch is done."""
        return self.stream / COMMITS_FOLDER / str(batch_id)

    def output(self, name: str) -> AnyPath:
        """Return the folder of rows for a function; `name` is empty for the main output."""
        return self.root / (f"output-{name}" if name else "output")

    def outputs(self) -> list[AnyPath]:
        """Return the folders of all outputs that have or had rows for a function."""
        return [path for path in listed(self.root) if re.fullmatch(r"output(-.+)?", path.name)]

    @property
    def history(self) -> AnyPath:
        """The history of attempts, for people; see `checkpoint.history`."""
        return self.root / HISTORY_FOLDER

    @property
    def last_attempt(self) -> AnyPath:
        """Number of the newest attempt: an aborted one leaves no other trace (R2)."""
        return self.root / LAST_ATTEMPT

    @property
    def identity(self) -> AnyPath:
        """Identity by which the output folder knows the pipeline, see `checkpoint.ownership`."""
        return self.root / "pipeline-id"

    @property
    def lock(self) -> AnyPath:
        """Locked while the pipeline runs; a folder of leases on file systems without locks."""
        return self.root / "lock"

    @property
    def skipped(self) -> AnyPath:
        """Rows of regions in quarantine that were moved to dead letters, see `checkpoint.skips`."""
        return self.root / "skipped"

    @property
    def published(self) -> AnyPath:
        """Which output of the newest checkpoint was published, see `sinks.published`."""
        return self.root / PUBLISHED

    @property
    def rewind(self) -> AnyPath:
        """Number of the checkpoint to go back to, while that is under way."""
        return self.root / "rewind"

    def metadata_file(self, id: int) -> AnyPath:
        """Return the path of a checkpoint's file, see rust/core/FORMAT.md."""
        return self.metadata / f"{id:016x}.hfc"

    def ids(self) -> list[int]:
        """Return the ids of the checkpoints that have a file, ascending; none without a folder."""
        found = (_METADATA_NAME.fullmatch(path.name) for path in listed(self.metadata))
        return [int(name[1], 16) for name in found if name is not None]

    def read(self, id: int, *, like: CheckpointMetadata | None = None) -> CheckpointMetadata:
        """Read and verify the file of a checkpoint, as `CheckpointMetadata.read`."""
        path = self.metadata_file(id)
        if not isinstance(path, HadoopPath):
            return CheckpointMetadata.read(path, like=like)
        try:
            metadata = CheckpointMetadata.read_by(path.read_bytes(), self._read_base)
        except (CorruptSegmentError, NewerFormatError) as e:
            raise type(e)(f"{path}: {e}") from None
        if metadata.id != id:
            raise CorruptSegmentError(f"{path}: it is the file of checkpoint {metadata.id}")
        return metadata

    def _read_base(self, name: str) -> bytes:
        try:
            return (self.metadata / name).read_bytes()
        except FileNotFoundError:
            # The checkpoint is there, so this is damage.
            raise CorruptSegmentError(f"its regions are missing: {name}") from None

    def publish(self, metadata: CheckpointMetadata) -> None:
        """Write the file of a checkpoint, whole and durable or not at all (R18).

        Raises a FileExistsError if there is a file, and a FolderLostError if another process has
        taken the folder over. Neither writes. After another OSError there may be a file.
        """
        if isinstance(folder := self.metadata, HadoopPath):
            metadata.write_by(lambda name, content: self._put(folder / name, content))
        else:
            metadata.write(folder)

    def _put(self, path: HadoopPath, content: bytes) -> None:
        is_base = path.name.endswith(BASE_SUFFIX)
        if is_base and path.exists() and path.read_bytes() == content:
            return  # An attempt without metadata has left it.
        if isinstance(self.held, FolderLease):
            self.held.write(path, content, replace=is_base)
        elif is_base:
            path.write_bytes(content)
        else:
            path.create(content)

    def drop(self, *ids: int) -> None:
        """Delete checkpoints' files, in one request on object stores. An OSError may leave some."""
        self.metadata.remove_files([self.metadata_file(id).name for id in ids])

    def bases(self, *, up_to: int | None = None) -> set[str]:
        """Return the existing files of regions that checkpoints up to `up_to` named first."""
        found = (_BASE_NAME.fullmatch(path.name) for path in listed(self.metadata))
        return {
            name[0]
            for name in found
            if name is not None and (up_to is None or int(name[1], 16) <= up_to)
        }

    def drop_bases(self, names: Collection[str]) -> None:
        """Delete files of regions that no checkpoint names. After an OSError some may remain.

        Another driver may have taken the folder over. So the names are ones that this driver
        knows, or that are not newer than the checkpoint that it begins with.
        """
        if names:
            self.metadata.remove_files(sorted(names))

    @property
    def dropped_together(self) -> int:
        """How many subsumed checkpoints are deleted at once (R70)."""
        return 1 if self.root.renames else DROPPED_TOGETHER

    @property
    def gather_ms(self) -> int:
        """Milliseconds for which a task gathers answers before it makes them durable."""
        return 0 if self.root.renames else OBJECT_GATHER_MS

    def read_identity(self) -> str | None:
        """Return the identity of the pipeline; None if there is none yet."""
        try:
            return self.identity.read_text()
        except FileNotFoundError:
            return None

    def read_last_attempt(self) -> int:
        """Return the number of the newest attempt; 0 if there was none, or it is not known."""
        try:
            return int(self.last_attempt.read_text())
        except (FileNotFoundError, ValueError):
            # Not synced: a machine that crashed may leave it empty.
            return 0

    def note_attempt(self, attempt: int) -> None:
        """Keep the number of an attempt. With a lease, this reserves later numbers too.

        Reserved attempts need no request, and a restart continues after them. Raises a
        FolderLostError, and writes nothing, if another process has taken the folder over.
        """
        if not isinstance(self.held, FolderLease):
            # Not synced: tasks that could take a new attempt for this one end with the machine.
            # Tasks of a driver on another machine may outlive it.
            self.last_attempt.replace_text(str(attempt), durable=False)
        elif attempt > self.reserved[-1]:
            last = attempt + RESERVED_ATTEMPTS - 1
            path = self.held.folder / LAST_ATTEMPT
            self.held.write(path, str(last).encode(), replace=True)
            self.reserved[-1] = last

    def write_published(self, text: str, *, durable: bool) -> None:
        """Replace the record of published output.

        Raises a FolderLostError, and writes nothing, if another process has the folder.
        """
        if isinstance(self.held, FolderLease):
            self.held.write(self.held.folder / PUBLISHED, text.encode(), replace=True)
        else:
            self.published.replace_text(text, durable=durable)


def orphan_reclaimer(
    folders: CheckpointFolders, pipeline: str, bridge: Any
) -> tuple[Callable[..., tuple[str, list[str]]], Callable[[], None]]:
    """Return the clean-up of segments whose managers are gone, and the release of its resources.

    The clean-up has the signature of `OrphanReclaimer.reclaim`. `bridge` is py4j's view of
    ``io.holdfast.spark.driver.RegionalPipelines``.
    """
    segments = folders.segments
    if not isinstance(segments, HadoopPath):
        return OrphanReclaimer(segments, pipeline).reclaim, lambda: None
    opened = (str(segments), str(folders.metadata), pipeline)
    handle = call_jvm("looking at the files of", segments, lambda _: bridge.openOrphans(*opened))

    def reclaim(
        retained: Sequence[CheckpointMetadata], *, live_terms: set[int], newest_term: int
    ) -> tuple[str, list[str]]:
        needed = ([metadata.id for metadata in retained], sorted(live_terms), newest_term)
        done = call_jvm(
            "reclaiming files in", segments, lambda _: bridge.reclaimOrphans(handle, *needed)
        )
        summary, *wasteful = map(str, done)
        return summary, wasteful

    return reclaim, lambda: bridge.closeOrphans(handle)
