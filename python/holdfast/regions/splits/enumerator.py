"""The coordinator of a source of files: which region reads what."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator.operator_coordinator import EventSender, OperatorCoordinator
from holdfast.regions.splits.assignment import Assignment
from holdfast.regions.splits.discovery import FoundFile, list_files, split_file

LOG: Final = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000

#: So many of the files that are skipped are named.
_NAMED: Final = 3


class SplitEnumerator(OperatorCoordinator):
    """Finds files, divides them into splits, and hands those to regions.

    Every split is in exactly one place of a checkpoint: in its pool of unassigned splits, or in the
    state or in-flight data of the region that read it (R32). A region that failed has stored no
    rows: its splits go back to the pool. The idea is that of Flink's split enumerators (FLIP-27).

    Safe to call from several threads: Spark asks whether there is work from a thread of its own.

    Parameters
    ----------
    folder : Path
        Where the files are.
    kind : str
        Format of the files, see `FileSplits`.
    regions : sequence of str
        Regions that read.
    split_bytes : int
        Size in bytes up to which row groups are put together in a split.
    splits_per_region : int
        Splits that a region is given for one batch, at most.
    max_file_age : timedelta
        A file that is older than the newest one, or than now if that is earlier, by more than this
        is not looked at, so that not every name has to be remembered for ever.
    """

    supports_fallback = True

    def __init__(
        self,
        folder: Path,
        *,
        kind: str,
        regions: Sequence[str],
        split_bytes: int,
        splits_per_region: int,
        max_file_age: timedelta,
    ) -> None:
        self._folder = folder
        self._kind = kind
        self.regions = tuple(regions)
        self._split_bytes = split_bytes
        self._splits_per_region = splits_per_region
        self._max_file_age_ns = max_file_age // timedelta(microseconds=1) * 1000
        self._send: EventSender | None = None
        self._assignment = Assignment()
        self._frozen: list[FoundFile] | None = None
        self._skipped: set[str] = set()
        self._lock = threading.RLock()

    # --- whether there is work ------------------------------------------------------------------

    def freeze(self) -> None:
        """From now on take no file into account that is not there yet (trigger availableNow)."""
        with self._lock:
            self._frozen = list_files(self._folder)

    def has_work(self) -> bool:
        """Look for new files, and say whether any split is in no checkpoint's state yet.

        Between two attempts, that is: what a failed region had is taken back when the next begins.

        Raises
        ------
        OSError
            If the folder cannot be listed.
        """
        with self._lock:
            self._discover()
            return bool(self._assignment.pool or self._assignment.given)

    # --- for the driver -------------------------------------------------------------------------

    def open(self, send: EventSender) -> None:
        """See `OperatorCoordinator.open`."""
        self._send = send

    def assign(self, checkpoint: int) -> None:
        """Hand out splits for the batch that begins."""
        if self._send is None:
            raise RuntimeError("the enumerator was not opened")
        with self._lock:
            self._discover()
            given = self._assignment.hand_out(
                checkpoint, self.regions, splits_per_region=self._splits_per_region
            )
        for region, split in given:
            self._send(region, split.encode())

    def checkpoint(self, checkpoint: int) -> bytes:
        """Return the splits that no region has, and the files that were seen."""
        with self._lock:
            return self._assignment.encode()

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        """Return the same with the splits that failed regions received after their origins."""
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

    def region_reset(self, region: str, origin: int) -> None:
        """Take back what a region received after its origin."""
        with self._lock:
            self._assignment.take_back(region, origin)

    def completed(self, checkpoint: int, effective: Mapping[str, int]) -> None:
        """Forget what a checkpoint covers."""
        with self._lock:
            self._assignment.covered(effective)

    # --- details --------------------------------------------------------------------------------

    def _discover(self) -> None:
        assignment = self._assignment
        found = list_files(self._folder) if self._frozen is None else self._frozen
        now_ns = now_ms() * _NS_PER_MS
        # The limit counts from what was known before: a first look takes in everything. A time in
        # the future says nothing about the files that are still to come.
        newest_ns = min(assignment.newest_ns, now_ns)
        oldest_ns = max(newest_ns - self._max_file_age_ns, assignment.forgotten_ns)
        skipped = set()
        for file in found:
            if file.path in assignment.seen:
                continue
            if file.modified_ns < oldest_ns:
                skipped.add(file.path)
                continue
            assignment.add(
                split_file(self._folder, file, kind=self._kind, split_bytes=self._split_bytes)
            )
            assignment.seen[file.path] = file.modified_ns
            newest_ns = max(newest_ns, min(file.modified_ns, now_ns))
        assignment.newest_ns = max(assignment.newest_ns, newest_ns)
        self._tell_skipped(skipped, oldest_ns)
        # Those were read: it need not be said that they are not read again.
        self._skipped |= assignment.forget_older_than(newest_ns - self._max_file_age_ns)

    def _tell_skipped(self, skipped: set[str], oldest_ns: int) -> None:
        """Say which files are skipped, each once."""
        fresh = sorted(skipped - self._skipped)
        self._skipped = skipped
        if fresh:
            LOG.warning(
                "%d files in %s are skipped: they were modified before %s, and names of files that "
                "were read are not remembered for longer (max_file_age). If they were not read "
                "yet, touch them: %s%s",
                len(fresh),
                self._folder,
                datetime.fromtimestamp(oldest_ns / 1e9, tz=UTC).isoformat(timespec="seconds"),
                ", ".join(fresh[:_NAMED]),
                " ..." if fresh[_NAMED:] else "",
            )
