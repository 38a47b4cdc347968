"""A region task: all regions of one partition in one attempt."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast
from weakref import WeakValueDictionary

import pyarrow as pa

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentStore
from holdfast.files import modes
from holdfast.regions.base.clock import elapsed_ms
from holdfast.regions.base.normal_form import normal_form
from holdfast.regions.base.splitting import split_by_region
from holdfast.regions.coordinator import Acked, Declined, RegionStarted
from holdfast.regions.coordinator.idle import is_retired
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, EndedAttempt, PipelinePlan
from holdfast.regions.sinks.sink import OutputStore
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.splits.file_split import BadSplit, FileSplit
from holdfast.regions.splits.reader import SplitReader, SplitReadError
from holdfast.regions.state.segments import CheckpointSegments
from holdfast.regions.task import array_modules
from holdfast.regions.task.answered import Answered
from holdfast.regions.task.instance import Instances, close_instances, tell_instances
from holdfast.regions.task.output_at_work import persisted
from holdfast.regions.task.region_run import RegionRun
from holdfast.regions.task.shared_output import Lost, SharedOutput, not_durable
from holdfast.regions.task.shared_states import SharedStates
from holdfast.regions.task.threads import PinnedThreads, RegionThread, RegionThreads

LOG: Final = logging.getLogger(__name__)

#: With more regions, a batch only looks at the operators of those that may have changed.
ALL_PRUNED: Final = 1_000

# In a batch of at most this size, all rows count as equally large.
AVERAGED_BYTES: Final = 1024 * 1024


class OperatorCache:
    """Operators that a worker process keeps between batches.

    An operator may go on only from exactly the state that the latest checkpoint has for its
    region. Another attempt at a task may have acknowledged the same region, so the states
    themselves are compared, by reference.

    Operators are called on the thread of their region alone, also to be closed.
    """

    def __init__(self) -> None:
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
        """Hand out the operators of a region if they fit its base; else they are closed."""
        with self._lock:
            kept = self._kept.pop(region, None)
        if kept is not None:
            if _same_state(kept.entry, base) and not kept.thread.lost:
                return kept.instances
            kept.close()
        return None

    def thread_of(self, region: str, *, failed: bool) -> RegionThread:
        """Return the thread of a region, which gets one if it has none."""
        with self._lock:
            thread = self._homes.get(region)
            if thread is None or thread.lost:
                thread = self._homes[region] = self._threads.give(failed=failed)
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

        Operators stay that other tasks of `attempt`, which is under way, have kept in this process.
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
        """Return the operators that may not fit the checkpoint, as those of the last call did."""
        id, count = self._pruned
        if run != self._run or len(self._kept) <= ALL_PRUNED or base.region_count < count:
            return dict(self._kept)
        regions = self._new.union(base.since(id + 1))
        return {region: self._kept[region] for region in regions if region in self._kept}

    def close_finished(
        self, base: CheckpointMetadata, ended: Sequence[EndedAttempt], took_part: frozenset[str]
    ) -> None:
        """Close the operators of regions that ended by themselves, once they were told of it."""
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
        """Close all operators, and wait for those whose thread does not hang.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds to wait at most; an operator that takes longer to close is left behind.
        """
        with self._lock:
            closing, self._kept = list(self._kept.values()), {}
            threads = {thread for thread in self._homes.values() if not thread.lost}
        for kept in closing:
            kept.close()
        closed = threading.Semaphore(0)
        for thread in threads:
            thread.do(closed.release)  # behind the operators
        ends = time.monotonic() + (timeout_s or 0)
        for _ in threads:
            left_s = None if timeout_s is None else max(0, ends - time.monotonic())
            if not closed.acquire(timeout=left_s):
                LOG.warning("operators were left behind that did not close within %g s", timeout_s)
                return


@dataclass(frozen=True)
class _Base:
    """The checkpoint that an attempt is based on."""

    given: CheckpointMetadata | bytes
    metadata: CheckpointMetadata
    took_part: frozenset[str]

    @classmethod
    def of(cls, given: CheckpointMetadata | bytes) -> _Base:
        metadata = CheckpointMetadata.from_bytes(given) if isinstance(given, bytes) else given
        return cls(given, metadata, took_part_in(metadata))


@dataclass(frozen=True)
class _Kept:
    """The open operators of a region, at the state of `entry`."""

    entry: RegionEntry
    instances: Instances
    thread: RegionThread

    def close(self) -> None:
        self.thread.do(partial(close_instances, self.instances))


def took_part_in(checkpoint: CheckpointMetadata) -> frozenset[str]:
    """Return the regions whose new state a checkpoint has."""
    return frozenset(
        region
        for region, entry in checkpoint.fresh.items()
        if not (entry.failed or is_retired(entry))
    )


def _same_state(entry: RegionEntry, base: RegionEntry | None) -> bool:
    return base is not None and base.origin == entry.origin and base.operators == entry.operators


class RegionTask:
    """Runs the regions whose rows arrive in one partition.

    Reading the rows, talking to the driver and waiting for durability happen on the calling
    thread; operators run on threads of their own, so that one region's slow batch does not hold up
    its neighbours. Regions that come to an answer while storage is waited for are made durable
    together, and the driver gets their answers together.

    Parameters
    ----------
    tell : callable
        Takes answers to the driver; returns once they are there.
    output : OutputStore, optional
        Takes staged output to file systems that this process does not reach.
    shares : bool, default True
        Regions may write into one file. A task that is run again may not, because some of its
        regions may have answered before.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        order: AttemptOrder,
        *,
        partition: int,
        store: SegmentStore,
        tell: Callable[[Sequence[Answer]], None],
        cache: OperatorCache,
        output: OutputStore | None = None,
        shares: bool = True,
    ) -> None:
        self._begun_ms = elapsed_ms()
        self._plan = plan
        self._output = output
        self._order = order
        self._partition = partition
        self._only_stores = order.only_stores(partition)
        self._store = store
        self._tell = tell
        self._cache = cache
        modes.follow(plan.options.umask)
        base = cache.base(order.base)
        self._base = base.metadata
        self._stored = CheckpointSegments(store, self._base)
        self._took_part = base.took_part
        self._shared = SharedStates(self._stored, plan.pipeline, self._base)
        cache.prune(plan.run, self._base, attempt=order.attempt)
        cache.close_finished(self._base, order.ended, self._took_part)
        self._xp = array_modules.array_module(gpu=plan.options.gpu)
        self._runs: dict[str, RegionRun] = {}
        self._shares = shares and order.lost == frozenset()
        self._together = SharedOutput(order.attempt, output, begun_ms=self._begun_ms)
        # Regions that came to an answer. The driver gets it at once, or when shared files are
        # durable.
        self._answered: set[str] = set()
        self._threads = RegionThreads(plan.options.threads, gather_ms=plan.options.gather_ms)

    def run(self, batches: Iterable[pa.RecordBatch], owed: Iterable[str] = ()) -> int:
        """Run all regions to their answers.

        Returns how many regions answered.

        Parameters
        ----------
        owed : iterable of str
            Regions to run although they have no rows here: they have rows to replay.

        Raises
        ------
        Exception
            Errors of reading the rows, or of telling the driver. Regions without an answer are left
            to the driver then.
        """
        try:
            regions = list(owed)
            self._begin(regions)
            if self._plan.splits is not None:
                self._read_splits(self._plan.splits, regions)
            for batch in map(normal_form, batches):
                parts = split_by_region(batch, region_by=self._plan.region_by)
                parts = [part for part in parts if part[0] not in self._order.answered]
                if self._plan.splits is not None:
                    self._read_splits(self._plan.splits, [region for region, _ in parts])
                    continue
                self._begin(region for region, _ in parts)
                for (region, rows), nbytes in zip(parts, _sizes(batch, parts), strict=True):
                    self._add(self._runs[region], rows, nbytes)
            for run in self._runs.values():
                run.feed.end()
                self._threads.wake(run)
            self._wait_for_the_rest()
        finally:
            self._threads.stop()
            for run in self._together.waiting:
                run.thread.do(run.abandon)
        return len(self._answered)

    # --- details --------------------------------------------------------------------------------

    def _read_splits(self, reader: SplitReader, regions: Sequence[str]) -> None:
        """Run regions on the splits that they were handed; a region without any does not run."""
        handed = [region for region in regions if self._order.events.get(region)]
        self._begin(handed)
        if self._only_stores:
            return
        for region in handed:
            run = self._runs[region]
            try:
                for sent in self._order.events[region]:
                    if sent.operator == SOURCE_OPERATOR:
                        self._read_split(reader, sent.event, run)
            except SplitReadError as e:
                run.feed.fail(e)

    def _read_split(self, reader: SplitReader, event: bytes, run: RegionRun) -> None:
        """Give a region the rows of a split, or none of them if it cannot be read and is skipped.

        Raises
        ------
        SplitReadError
            If it cannot be read, and the region is to fail.
        """
        split = FileSplit.decode(event)
        rows = reader.read(split)
        if reader.skips:
            try:
                rows = iter(list(rows))
            except SplitReadError as e:
                if e.may_pass:
                    raise
                run.sent.append((SOURCE_OPERATOR, BadSplit(split, e.problem).encode()))
                return
        for first, batch in rows:
            self._add(run, normal_form(batch), batch.nbytes, origin=(split, first))

    def _add(
        self,
        run: RegionRun,
        rows: pa.RecordBatch,
        nbytes: int,
        *,
        origin: tuple[FileSplit, int] | None = None,
    ) -> None:
        if run.feed.add(rows, nbytes, origin=origin):
            self._threads.wake(run)

    def _begin(self, regions: Iterable[str]) -> None:
        """Begin with regions that were not seen before, once the driver knows of them."""
        names = dict.fromkeys(regions)
        new = {name: self._new_run(name) for name in names if name not in self._runs}
        if not new:
            return
        self._runs |= new
        attempt, partition = self._order.attempt, self._partition
        started = [RegionStarted(attempt=attempt, region=region) for region in new]
        self._tell([Answer(partition, event) for event in started])
        if not self._only_stores:
            for run in new.values():
                self._threads.take_on(run)

    def _new_run(self, region: str) -> RegionRun:
        base = self._base.region(region)
        order = self._order
        fresh = region in order.restart | order.quarantined or self._only_stores
        cached = self._cache.take(region, None if fresh else base)
        failed = base is not None and base.fallbacks > 0
        return RegionRun(
            self._plan,
            order,
            region,
            base,
            self._store,
            begun_ms=self._begun_ms,
            stored=self._stored,
            thread=self._cache.thread_of(region, failed=failed),
            cached=cached,
            shared=self._shared,
            took_part=self._took_part,
            shares=self._shares,
            xp=self._xp,
        )

    def _wait_for_the_rest(self) -> None:
        timeout_ms = self._plan.options.region_timeout_ms
        deadline_ms = self._begun_ms + timeout_ms
        late = f"expired: no answer within region_timeout ({timeout_ms / 1000:g} s)"
        while len(self._answered) < len(self._runs):
            if self._only_stores:
                self._decline_the_rest(self._order.lost_cause)
            elif (left_ms := deadline_ms - elapsed_ms()) <= 0:
                self._decline_the_rest(late)
            else:
                self._deliver(self._threads.wait(left_ms / 1000))
            if self._together.is_late(elapsed_ms()):
                self._deliver_shared()
        self._deliver_shared()

    def _decline_the_rest(self, cause: str) -> None:
        """Decline for regions that hang; nothing can stop their threads, which stay behind (R5)."""
        silent = [run for region, run in self._runs.items() if region not in self._answered]
        for run in silent:
            run.expire(cause)
        self._deliver(silent)

    def _deliver(self, runs: Sequence[RegionRun]) -> None:
        """Make answers durable, then send them to the driver (R3), or wait for shared files."""
        if not runs:
            return
        self._answered.update(run.region for run in runs)
        answers = self._durable_answers(runs)
        self._send([(run, answer) for run, answer in answers if not answer.shared])
        for run, answer in answers:
            if answer.shared:
                self._together.add(run, answer, elapsed_ms())
                if self._together.is_full:
                    self._deliver_shared()

    def _deliver_shared(self) -> None:
        """Write the files of several regions, and send the answers of these regions (R84)."""
        waiting = self._together.waiting
        written, lost = self._together.write()
        self._send(written, together=True)
        self._send([(run, self._lost(run, waiting[run], why)) for run, why in lost.items()])

    def _send(
        self, answers: Sequence[tuple[RegionRun, Answered]], *, together: bool = False
    ) -> None:
        sent: list[Answer] = []
        for left, (run, answer) in zip(reversed(range(len(answers))), answers, strict=True):
            with_next = together and left > 0
            sent.append(Answer(self._partition, answer.event, answer.figures, with_next))
            if isinstance(answer.event, Acked) and answer.keep is not None:
                self._cache.keep(run.region, answer.event.entry, answer.keep, run.thread)
        if sent:
            self._tell(sent)

    def _durable_answers(self, runs: Sequence[RegionRun]) -> list[tuple[RegionRun, Answered]]:
        """Return the answers of these regions; a decline if storage failed."""
        answers = {run: run.settled() for run in runs}
        lost: dict[RegionRun, Lost] = {}
        for plan in self._plan.outputs:
            staged = {
                run: output
                for run, answer in answers.items()
                for output in answer.outputs
                if output.plan is plan
            }
            errors = persisted(list(staged.values()), self._output)
            for run, error in zip(staged, errors, strict=True):
                if error is not None:
                    lost[run] = Lost(not_durable(plan, error))
        return [(run, self._durable(run, answer, lost.get(run))) for run, answer in answers.items()]

    def _durable(self, run: RegionRun, answer: Answered, lost: Lost | None) -> Answered:
        if lost is not None:
            return self._lost(run, answer, lost)
        if self._made_durable(answer):
            return answer
        if isinstance(answer.event, Declined):
            return _without_rows(answer)
        return self._instead_of(run, answer, Lost("its snapshot could not be made durable"))

    def _lost(self, run: RegionRun, answer: Answered, lost: Lost) -> Answered:
        self._release(answer)
        return self._instead_of(run, answer, lost)

    def _instead_of(self, run: RegionRun, answer: Answered, lost: Lost) -> Answered:
        declined = run.instead_of(answer, lost.cause, lost.problem)
        return declined if self._made_durable(declined) else _without_rows(declined)

    def _made_durable(self, answer: Answered) -> bool:
        # The first of several waits for storage; its wait covers earlier writes of the others.
        attempt = self._order.attempt
        try:
            for owner, refs in answer.segments:
                self._store.persist_segments(attempt, owner, refs)
        except OSError:
            LOG.warning("attempt %d: segments are not durable", attempt, exc_info=True)
            self._release(answer)
            return False
        return True

    def _release(self, answer: Answered) -> None:
        for owner, refs in answer.segments:
            self._store.release(owner, refs)


def _without_rows(answer: Answered) -> Answered:
    """Return a decline whose rows could not be stored."""
    declined = cast("Declined", answer.event)
    return replace(answer, event=replace(declined, in_flight=()))


def _sizes(batch: pa.RecordBatch, parts: Sequence[tuple[str, pa.RecordBatch]]) -> list[int]:
    """Return about how many bytes the parts of a batch have."""
    whole = batch.nbytes
    if whole > AVERAGED_BYTES:
        return [rows.nbytes for _, rows in parts]
    return [whole * rows.num_rows // batch.num_rows for _, rows in parts]
