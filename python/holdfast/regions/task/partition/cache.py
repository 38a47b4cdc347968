"""Operators that a worker process keeps between batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator.idle import is_retired
from holdfast.regions.protocol.orders import ClosingOrder, EndedAttempt
from holdfast.regions.task.instance import Instances, close_instances, tell_instances
from holdfast.regions.task.threads import PinnedThreads, RegionThread

LOG: Final = logging.getLogger(__name__)


class OperatorCache:
    """Operators that a worker process keeps between batches.

    An operator may continue only from exactly the state that the latest checkpoint has for its
    region. Another attempt at a task may have acknowledged the same region, so the states
    themselves are compared, by reference. Only a region's thread calls and closes its operators.

    With over `all_pruned` regions, a batch only looks at operators of ones that may have changed.
    """

    def __init__(self, *, all_pruned: int = 1_000) -> None:
        self._all_pruned = all_pruned
        self._run = ""
        self._kept: dict[str, _Kept] = {}
        # Regions whose operators were kept since the last `prune`, and the checkpoint that it had.
        self._new: set[str] = set()
        self._pruned = (0, 0)
        # Threads of regions with open operators. Operators that are still to be closed count, so
        # that they are closed before others of the region are opened.
        self._homes: WeakValueDictionary[str, RegionThread] = WeakValueDictionary()
        self._threads = PinnedThreads()
        self._lock = threading.Lock()
        self._base: _Base | None = None

    def base(self, given: CheckpointMetadata | bytes) -> _Base:
        """Decode the checkpoint that an attempt is based on, once for all of its tasks here."""
        with self._lock:
            known = self._base
            if known is None or (known.given is not given and known.given != given):
                known = self._base = _Base.of(given)
            return known

    def take(self, region: str, base: RegionEntry | None) -> Instances | None:
        """Hand out the operators of a region if they fit its base; else close them."""
        with self._lock:
            kept = self._kept.pop(region, None)
        if kept is not None:
            if _same_state(kept.entry, base) and not kept.thread.lost:
                return kept.instances
            kept.close()
        return None

    def thread_of(self, region: str, *, failed: bool, at_most: int) -> RegionThread:
        """Return the thread of a region, which gets one if it has none; see `PinnedThreads`."""
        with self._lock:
            thread = self._homes.get(region)
            if thread is None or thread.lost:
                thread = self._homes[region] = self._threads.give(failed=failed, at_most=at_most)
            return thread

    def keep(
        self, region: str, entry: RegionEntry, instances: Instances, thread: RegionThread
    ) -> None:
        """Keep the operators of a region that acknowledged `entry`."""
        with self._lock:
            self._kept[region] = _Kept(entry, instances, thread)
            self._new.add(region)

    def prune(self, run: str, base: CheckpointMetadata, *, attempt: int | None = None) -> None:
        """Close operators that no later attempt can use, and all of another run.

        Operators remain that other tasks of the current `attempt` have kept in this process.
        """
        with self._lock:
            stale = [
                region
                for region, kept in self._suspects(run, base).items()
                if run != self._run
                or (
                    kept.entry.origin != attempt
                    and not _same_state(kept.entry, base.region(region))
                )
            ]
            closing = [self._kept.pop(region) for region in stale]
            self._new = {
                region
                for region in self._new & self._kept.keys()
                if self._kept[region].entry.origin == attempt
            }
            self._run, self._pruned = run, (base.id, base.region_count)
        for kept in closing:
            kept.close()

    def _suspects(self, run: str, base: CheckpointMetadata) -> dict[str, _Kept]:
        """Return operators that may not fit the checkpoint; all fitted at the last call."""
        id, count = self._pruned
        if run != self._run or len(self._kept) <= self._all_pruned or base.region_count < count:
            return dict(self._kept)
        regions = self._new.union(base.since(id + 1))
        return {region: self._kept[region] for region in regions if region in self._kept}

    def close_finished(
        self, base: CheckpointMetadata, ended: Sequence[EndedAttempt], took_part: frozenset[str]
    ) -> None:
        """Close the operators of regions that ended by themselves, after a notice of it."""
        with self._lock:
            finished = (region for region, entry in base.notable.items() if entry.finished)
            closing = {
                region: self._kept.pop(region) for region in finished if region in self._kept
            }
        for region, kept in closing.items():
            kept.thread.do(partial(tell_instances, kept.instances, ended, region, took_part))
            kept.close()

    def close(self, order: ClosingOrder) -> None:
        """Tell the operators of finished regions that their checkpoint completed; close all."""
        base = _Base.of(order.base)
        self.prune(order.run, base.metadata)
        with self._lock:
            for region, kept in self._kept.items():
                kept.thread.do(
                    partial(tell_instances, kept.instances, order.ended, region, base.took_part)
                )
        self.close_all()

    def close_all(self, timeout_s: float | None = None) -> None:
        """Close all operators; waits at most `timeout_s` for threads that do not hang."""
        with self._lock:
            closing, self._kept = list(self._kept.values()), {}
            threads = {thread for thread in self._homes.values() if not thread.lost}
        for kept in closing:
            kept.close()
        closed = threading.Semaphore(0)
        for thread in threads:
            thread.do(closed.release)  # after the operators
        ends = time.monotonic() + (timeout_s or 0)
        for _ in threads:
            left_s = None if timeout_s is None else max(0, ends - time.monotonic())
            if not closed.acquire(timeout=left_s):
                LOG.warning("operators were left behind that did not close within %g s", timeout_s)
                return


@dataclass(frozen=True)
class _Base:
    """The checkpoint that an attempt is based on, and the regions whose new state it has."""

    given: CheckpointMetadata | bytes
    metadata: CheckpointMetadata
    took_part: frozenset[str]

    @classmethod
    def of(cls, given: CheckpointMetadata | bytes) -> _Base:
        metadata = CheckpointMetadata.from_bytes(given) if isinstance(given, bytes) else given
        took_part = frozenset(
            region
            for region, entry in metadata.fresh.items()
            if not (entry.failed or is_retired(entry))
        )
        return cls(given, metadata, took_part)


@dataclass(frozen=True)
class _Kept:
    """The open operators of a region, at the state of `entry`."""

    entry: RegionEntry
    instances: Instances
    thread: RegionThread

    def close(self) -> None:
        self.thread.do(partial(close_instances, self.instances))


def _same_state(entry: RegionEntry, base: RegionEntry | None) -> bool:
    return base is not None and base.origin == entry.origin and base.operators == entry.operators
