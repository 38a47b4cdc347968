"""The coordinator of a source of files, which hands splits to regions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator import CheckpointInfo
from holdfast.regions.coordinator.operator_coordinator import EventGateway, OperatorCoordinator
from holdfast.regions.splits.assignment import Assignment
from holdfast.regions.splits.changes import FileChanges, named
from holdfast.regions.splits.discovery import FoundFile, list_files
from holdfast.regions.splits.file_split import BadSplit

if TYPE_CHECKING:
    from holdfast.regions.splits.file_splits import FileSplits

LOG: Final = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000


class SplitEnumerator(OperatorCoordinator):
    """Finds files, divides them into splits, and hands the splits to regions.

    Every split is in exactly one place of a checkpoint: in its pool of unassigned splits, or in the
    state or in-flight data of the region that read it (R32). A region that failed has stored no
    rows: its splits return to the pool. The idea is that of Flink's split enumerators (FLIP-27).

    Any thread may call it: Spark asks for work from its own. A file is ignored if it is older than
    the newest one (or than now, if that is earlier) by more than `max_file_age`, so that names need
    not be remembered for ever.
    """

    supports_fallback = True
    takes_back_events = True

    def __init__(self, source: FileSplits) -> None:
        self._folder = source.path
        self.regions = source.region_names
        self._splits_per_region = source.splits_per_region
        self._max_file_age_ns = source.max_file_age // timedelta(microseconds=1) * 1000
        self._gateway: EventGateway | None = None
        self._assignment = Assignment()
        skips = source.on_bad_split == "skip"
        self._changes = FileChanges(self._folder, source.kind, source.split_bytes, skips)
        self._frozen: list[FoundFile] | None = None
        # No look for files since a reset, or since they were frozen.
        self._is_new = True
        self._too_old: set[str] = set()
        self._unlisted: set[str] = set()
        self._lock = threading.RLock()

    # --- whether there is work ------------------------------------------------------------------

    def freeze(self) -> None:
        """Ignore files that appear from now on (trigger availableNow)."""
        with self._lock:
            self._frozen = self._listed()
            self._is_new = True

    def has_work(self) -> bool:
        """Find new files, and say whether any split is in no checkpoint's state yet.

        Called between two attempts: the next one takes back the splits of a failed region.
        """
        with self._lock:
            self._find_files()
            return bool(self._assignment.pool or self._assignment.given)

    # --- for the driver -------------------------------------------------------------------------

    def start(self, gateway: EventGateway) -> None:
        """See `OperatorCoordinator.start`."""
        self._gateway = gateway

    def begin_batch(self, checkpoint: int) -> None:
        """Hand out splits for the next batch."""
        if self._gateway is None:
            raise RuntimeError("the enumerator was not started")
        with self._lock:
            self._find_files()
            # Not earlier, so that the next checkpoint has the outcome.
            count = len(self.regions) * self._splits_per_region
            self._changes.settle_next(self._assignment, count)
            given = self._assignment.hand_out(
                checkpoint, self.regions, splits_per_region=self._splits_per_region
            )
        for region, split in given:
            self._gateway.send(region, split.encode())

    def checkpoint(self, checkpoint: int) -> bytes:
        """Return the splits that no region has, and the files that were seen."""
        with self._lock:
            return self._assignment.encode()

    def handle_event(self, region: str, event: bytes) -> None:
        """Skip a split that a region could not read."""
        bad = BadSplit.decode(event)
        LOG.warning("%s in %r is skipped from now on: %s", bad.split, str(self._folder), bad.reason)
        with self._lock:
            self._assignment.skip(region, bad)

    @property
    def skipped_splits(self) -> int:
        """Number of skipped splits."""
        return len(self._assignment.skipped)

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        """Return the snapshot, with splits that failed regions received after their origins."""
        with self._lock:
            copy = self._assignment.copy()
        for region, origin in origins.items():
            copy.take_back(region, origin)
        return copy.encode()

    def reset(self, snapshot: bytes | None) -> None:
        """Go back to a checkpoint. Files that were found since are found again."""
        with self._lock:
            self._assignment = Assignment() if snapshot is None else Assignment.decode(snapshot)
            self._assignment.bound_by(now_ms() * _NS_PER_MS, self._max_file_age_ns)
            self._is_new = True

    def region_reset(self, region: str, origin: int) -> None:
        """Take back the splits that a region received after its origin."""
        with self._lock:
            self._assignment.take_back(region, origin)

    def checkpoint_complete(self, info: CheckpointInfo) -> None:
        """Forget the splits that a checkpoint covers."""
        with self._lock:
            self._assignment.covered(info)

    # --- details --------------------------------------------------------------------------------

    def _find_files(self) -> None:
        """Find new files, and files whose splits are to be tried again."""
        if self._frozen is None or self._is_new:
            self._is_new = False
            self._discover()
            self._changes.look_again(self._assignment)

    def _listed(self) -> list[FoundFile]:
        assignment = self._assignment
        known = assignment.seen.keys() | assignment.unread_paths()
        return list_files(self._folder, known=known, unlisted=self._tell_unlisted)

    def _discover(self) -> None:
        assignment = self._assignment
        found = self._listed() if self._frozen is None else self._frozen
        unread = assignment.unread_paths()
        now_ns = now_ms() * _NS_PER_MS
        # The limit counts from files known before: a first look takes in everything. A time in the
        # future says nothing about later files.
        newest_ns = min(assignment.newest_ns, now_ns)
        oldest_ns = max(newest_ns - self._max_file_age_ns, assignment.forgotten_ns)
        too_old, changed = set(), set()
        for file in found:
            if file.path in unread or assignment.seen.get(file.path) == file.modified_ns:
                continue
            if file.path in assignment.seen:
                changed.add(file.path)
            elif file.modified_ns < oldest_ns:
                too_old.add(file.path)
                continue
            else:
                assignment.add(self._changes.divided(file))
                newest_ns = max(newest_ns, min(file.modified_ns, now_ns))
            assignment.seen[file.path] = file.modified_ns
        assignment.newest_ns = max(assignment.newest_ns, newest_ns)
        self._tell_too_old(too_old, oldest_ns)
        if changed:
            LOG.warning(
                "changed in %r after they were read, and not read again; write new rows into files "
                "of other names: %s",
                str(self._folder),
                named(changed),
            )
        # The forgotten files were read, so no warning names them.
        self._too_old |= assignment.forget_older_than(newest_ns - self._max_file_age_ns)

    def _tell_unlisted(self, path: str, problem: OSError | str) -> None:
        """Warn once of each folder or link that cannot be listed."""
        if path not in self._unlisted:
            self._unlisted.add(path)
            LOG.warning("%r in %r is not listed: %s", path, str(self._folder), problem)

    def _tell_too_old(self, too_old: set[str], oldest_ns: int) -> None:
        """Warn once of each file that is too old to be read."""
        fresh = too_old - self._too_old
        self._too_old = too_old
        if fresh:
            LOG.warning(
                "%d files in %r are skipped: they were modified before %s, and names of files that "
                "were read are not remembered for longer (max_file_age). If they were not read "
                "yet, touch them: %s",
                len(fresh),
                str(self._folder),
                datetime.fromtimestamp(oldest_ns / 1e9, tz=UTC).isoformat(timespec="seconds"),
                named(fresh),
            )
