"""An output folder on a file system that only the JVM reaches: it is owned by a lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.regions.base.durable import explained
from holdfast.regions.base.folder_lease import FolderLease, require_free, take_lease
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.sinks.layout import LEASES_FOLDER
from holdfast.regions.sinks.owner import Candidate, OutputFolder, Owner


class RemoteOutputFolder(OutputFolder):
    """Owned by a lease; see `OutputFolder`."""

    root: HadoopPath
    file: HadoopPath

    def __init__(self, root: HadoopPath, published_after: Callable[[int], Sequence[str]]) -> None:
        super().__init__(root, published_after)
        self._leases = root / LEASES_FOLDER
        self._lease: FolderLease | None = None

    def require_free_for(self, candidate: Candidate) -> None:
        """See `OutputFolder`."""
        require_free(self.root, self._leases)
        self._require_judged(candidate)

    def take(self, candidate: Candidate) -> FolderLease:
        """See `OutputFolder`."""
        with explained(f"cannot make {self.root} the folder of this pipeline"):
            lease = take_lease(self.root, self._leases)
        try:
            found = self._require_judged(candidate)
            if found is None:
                self.file.create(candidate.owner.encode())
            elif found != candidate.owner:
                self.file.write_bytes(candidate.owner.encode())
            lease.note_pipeline(candidate.owner.pipeline)
        except BaseException:
            lease.close()
            raise
        self._lease = lease
        return lease

    def require_still(self, owner: Owner) -> None:
        """See `OutputFolder`."""
        if self._lease is not None:
            self._lease.require_held()

    def _require_judged(self, candidate: Candidate) -> Owner | None:
        """Check that the folder may be the pipeline's, and return who owned it last."""
        found = None
        with suppress(FileNotFoundError):
            found = Owner.decode(self.file.read_bytes(), self.file)
        if found is None:
            self.require_known(candidate)
        else:
            self.require_own(found, candidate)
        return found
