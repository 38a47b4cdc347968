"""A region task: all regions of one partition in one attempt."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentStore
from holdfast.regions.base.clock import now_ms
from holdfast.regions.base.problem import message_of
from holdfast.regions.base.splitting import split_by_region
from holdfast.regions.coordinator import Acked, Declined, RegionStarted
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.sinks.at_work import persisted
from holdfast.regions.sinks.sink import OutputStore
from holdfast.regions.splits.file_split import FileSplit
from holdfast.regions.splits.reader import SplitReader, SplitReadError
from holdfast.regions.state.segments import CheckpointSegments
from holdfast.regions.task import array_modules
from holdfast.regions.task.answered import Answered
from holdfast.regions.task.instance import Instances, close_instances, tell_instances
from holdfast.regions.task.region_run import RegionRun
from holdfast.regions.task.shared_states import SharedStates
from holdfast.regions.task.threads import RegionThreads

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger(__name__)

# The rows of a batch of at most so many bytes are taken to be of one size.
AVERAGED_BYTES: Final = 1024 * 1024


class OperatorCache:
    """Operators that a worker process keeps between batches.

    An operator may go on only from exactly the state that the latest checkpoint has for its
    region. That another attempt at a task acknowledged the same region is possible, so the states
    themselves are compared, by reference.
    """

    def __init__(self) -> None:
        self._run = ""
        self._kept: dict[str, tuple[RegionEntry, Instances]] = {}
        self._lock = threading.Lock()

    def take(self, region: str, base: RegionEntry | None) -> Instances | None:
        """Hand out the operators of a region if they fit its base; else they are closed."""
        with self._lock:
            entry, instances = self._kept.pop(region, (None, None))
        if entry is None or instances is None:
            return None
        if _same_state(entry, base):
            return instances
        close_instances(instances)
        return None

    def keep(self, region: str, entry: RegionEntry, instances: Instances) -> None:
        """Keep the operators of a region that acknowledged `entry`."""
        with self._lock:
            self._kept[region] = (entry, instances)

    def prune(
        self, run: str, bases: Mapping[str, RegionEntry], *, attempt: int | None = None
    ) -> None:
        """Let go of what no later attempt can use, and of everything of another run.

        What other tasks of `attempt`, which is under way, have kept in this process stays.
        """
        with self._lock:
            stale = [
                region
                for region, (entry, _) in self._kept.items()
                if run != self._run
                or (entry.origin != attempt and not _same_state(entry, bases.get(region)))
            ]
            closing = [self._kept.pop(region)[1] for region in stale]
            self._run = run
        for instances in closing:
            close_instances(instances)

    def close(self, order: ClosingOrder) -> None:
        """Tell the operators of finished regions that their checkpoint completed; close all."""
        self.prune(order.run, CheckpointMetadata.from_bytes(order.base).regions)
        with self._lock:
            kept, self._kept = self._kept, {}
        for region, (_, instances) in kept.items():
            tell_instances(instances, order.ended, region)
            close_instances(instances)


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
    plan : PipelinePlan
        The pipeline.
    order : AttemptOrder
        The attempt.
    partition : int
        Partition of the task.
    store : SegmentStore
        Where segments go.
    tell : callable
        Takes answers to the driver; returns once they are there.
    cache : OperatorCache
        Operators of this process.
    output : OutputStore, optional
        Where staged output goes on file systems that this process does not reach.
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
    ) -> None:
        self._plan = plan
        self._output = output
        self._order = order
        self._partition = partition
        self._only_stores = order.only_stores(partition)
        self._store = store
        self._tell = tell
        self._cache = cache
        base = CheckpointMetadata.from_bytes(order.base)
        self._bases = dict(base.regions)
        self._stored = CheckpointSegments(store, base)
        self._shared = SharedStates(self._stored, plan.pipeline, self._bases)
        cache.prune(plan.run, self._bases, attempt=order.attempt)
        self._xp = array_modules.array_module(gpu=plan.options.gpu)
        self._runs: dict[str, RegionRun] = {}
        self._told: set[str] = set()
        self._threads = RegionThreads(plan.options.threads, gather_ms=plan.options.gather_ms)

    def run(self, batches: Iterable[pa.RecordBatch], owed: Iterable[str] = ()) -> int:
        """Run all regions to their answers.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            Rows of the partition.
        owed : iterable of str
            Regions to run although they have no rows here: they have rows to replay.

        Returns
        -------
        int
            Number of regions that answered.

        Raises
        ------
        Exception
            What reading the rows or telling the driver raises. Regions without an answer are left
            to the driver then.
        """
        try:
            regions = list(owed)
            self._begin(regions)
            if self._plan.splits is not None:
                self._read_splits(self._plan.splits, regions)
            for batch in batches:
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
        return len(self._told)

    # --- details --------------------------------------------------------------------------------

    def _read_splits(self, reader: SplitReader, regions: Sequence[str]) -> None:
        """Run regions on the splits that they were handed; one that has none stays as it is."""
        events = {region: self._order.events.get(region, ()) for region in regions}
        handed = {region: found for region, found in events.items() if found}
        self._begin(handed)
        if self._only_stores:
            return
        for region, found in handed.items():
            run = self._runs[region]
            try:
                for event in found:
                    for rows in reader.read(FileSplit.decode(event)):
                        self._add(run, rows, rows.nbytes)
            except SplitReadError as e:
                run.feed.fail(e)

    def _add(self, run: RegionRun, rows: pa.RecordBatch, nbytes: int) -> None:
        if run.feed.add(rows, nbytes):
            self._threads.wake(run)

    def _begin(self, regions: Iterable[str]) -> None:
        """Begin with those regions that were not seen before, once the driver knows of them."""
        new = [region for region in dict.fromkeys(regions) if region not in self._runs]
        if not new:
            return
        for region in new:
            self._runs[region] = self._new_run(region)
        attempt, partition = self._order.attempt, self._partition
        started = [RegionStarted(attempt=attempt, region=region) for region in new]
        self._tell([Answer(partition, event) for event in started])
        if not self._only_stores:
            for region in new:
                self._threads.take_on(self._runs[region])

    def _new_run(self, region: str) -> RegionRun:
        base = self._bases.get(region)
        cached = self._cache.take(region, base)
        if cached is not None and (region in self._order.restart or self._only_stores):
            close_instances(cached)
            cached = None
        return RegionRun(
            self._plan,
            self._order,
            region,
            base,
            self._store,
            stored=self._stored,
            cached=cached,
            shared=self._shared,
            xp=self._xp,
        )

    def _wait_for_the_rest(self) -> None:
        timeout_ms = self._plan.options.region_timeout_ms
        deadline_ms = self._order.created_ms + timeout_ms
        late = f"expired: no answer within region_timeout ({timeout_ms / 1000:g} s)"
        while len(self._told) < len(self._runs):
            if self._only_stores:
                self._decline_the_rest(self._order.lost_cause)
            elif (left_ms := deadline_ms - now_ms()) <= 0:
                self._decline_the_rest(late)
            else:
                self._deliver(self._threads.wait(left_ms / 1000))

    def _decline_the_rest(self, cause: str) -> None:
        """Decline for regions that hang; their threads stay behind, for nothing stops them (R5)."""
        silent = [run for region, run in self._runs.items() if region not in self._told]
        for run in silent:
            run.expire(cause)
        self._deliver(silent)

    def _deliver(self, runs: Sequence[RegionRun]) -> None:
        """Make answers durable, then send them to the driver (R3)."""
        if not runs:
            return
        self._told.update(run.region for run in runs)
        sent: list[Answer] = []
        for run, answer in self._durable_answers(runs):
            if answer.entry is None:
                declined = self._declined(run, answer)
                sent.append(Answer(self._partition, declined, answer.figures))
                continue
            acked = Acked(attempt=self._order.attempt, region=run.region, entry=answer.entry)
            sent.append(Answer(self._partition, acked, answer.figures))
            if answer.keep is not None:
                self._cache.keep(run.region, answer.entry, answer.keep)
        self._tell(sent)

    def _declined(self, run: RegionRun, answer: Answered) -> Declined:
        return Declined(
            attempt=self._order.attempt,
            region=run.region,
            cause=answer.cause,
            in_flight=answer.in_flight,
            had_rows=answer.had_rows,
            problem=answer.problem,
        )

    def _durable_answers(self, runs: Sequence[RegionRun]) -> list[tuple[RegionRun, Answered]]:
        """Return the answers of these regions: where storage failed, a decline."""
        answers = [(run, run.settled()) for run in runs]
        staged = [(run, answer.stage) for run, answer in answers if answer.stage is not None]
        stages = [stage for _, stage in staged]
        errors = persisted(self._plan.sink, stages, self._output)
        lost = {run.region: error for (run, _), error in zip(staged, errors, strict=True)}
        return [(run, self._durable(run, answer, lost.get(run.region))) for run, answer in answers]

    def _durable(self, run: RegionRun, answer: Answered, lost: BaseException | None) -> Answered:
        if lost is not None:
            self._release(answer)
            name = type(self._plan.sink).__name__
            cause = f"sink {name!r} did not make its output durable: {type(lost).__name__}: "
            cause += message_of(lost)
        elif self._made_durable(answer):
            return answer
        else:
            cause = "its snapshot could not be made durable"
        if answer.entry is not None:
            answer = run.instead_of(answer, cause)
            if self._made_durable(answer):
                return answer
        return replace(answer, in_flight=())

    def _made_durable(self, answer: Answered) -> bool:
        # The first of several waits for storage; it covers what the others wrote before.
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


def _sizes(batch: pa.RecordBatch, parts: Sequence[tuple[str, pa.RecordBatch]]) -> list[int]:
    """Return about how many bytes the parts of a batch have."""
    whole = batch.nbytes
    if whole > AVERAGED_BYTES:
        return [rows.nbytes for _, rows in parts]
    return [whole * rows.num_rows // batch.num_rows for _, rows in parts]
