"""A region task: all regions of one partition in one attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from holdfast._core import SegmentStore
from holdfast.files import modes
from holdfast.regions.base.clock import elapsed_ms
from holdfast.regions.base.normal_form import normal_form
from holdfast.regions.base.splitting import split_by_region
from holdfast.regions.coordinator import Acked, RegionStarted
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, PipelinePlan
from holdfast.regions.sinks.sink import OutputStore
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.splits.file_split import BadSplit, FileSplit
from holdfast.regions.splits.reader import SplitReader, SplitReadError
from holdfast.regions.state.segments import CheckpointSegments
from holdfast.regions.task import array_modules
from holdfast.regions.task.partition.cache import OperatorCache
from holdfast.regions.task.partition.durable import Answers, DurableAnswers
from holdfast.regions.task.partition.turns import RegionThreads
from holdfast.regions.task.region.region import TaskContext
from holdfast.regions.task.region.run import RegionRun
from holdfast.regions.task.shared_states import SharedStates

# In a batch of at most this size, all rows count as equally large.
AVERAGED_BYTES: Final = 1024 * 1024


class RegionTask:
    """Runs the regions whose rows arrive in one partition.

    The calling thread reads the rows, talks to the driver and waits for durability. Operators run
    on other threads, so that one region's slow batch does not hold up its neighbours. Regions that
    answer while storage is waited for are made durable together, and answer the driver together.

    - `tell`: takes answers to the driver; returns once they are there.
    - `output`: takes staged output to file systems that this process does not reach.
    - `shares`: regions may write into one file. A task that is run again may not, because some of
      its regions may have answered before.
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
        self._plan = plan
        self._order = order
        self._partition = partition
        self._only_stores = order.only_stores(partition)
        self._tell = tell
        self._cache = cache
        modes.follow(plan.options.umask)
        base = cache.base(order.base)
        self._base = base.metadata
        stored = CheckpointSegments(store, base.metadata)
        self._context = TaskContext(
            plan,
            order,
            store,
            elapsed_ms(),
            stored,
            SharedStates(stored, plan.pipeline, base.metadata),
            base.took_part,
            shares and order.lost == frozenset(),
            array_modules.array_module(gpu=plan.options.gpu),
        )
        cache.prune(plan.run, base.metadata, attempt=order.attempt)
        cache.close_finished(base.metadata, order.ended, base.took_part)
        self._runs: dict[str, RegionRun] = {}
        self._durable = DurableAnswers(self._context, output)
        # Regions with an answer. The driver receives it at once, or when shared files are durable.
        self._answered: set[str] = set()
        self._threads = RegionThreads(plan.options.threads, gather_ms=plan.options.gather_ms)

    def run(self, batches: Iterable[pa.RecordBatch], owed: Iterable[str] = ()) -> int:
        """Run all regions to their answers, and return how many answered.

        The regions `owed` also run without rows here: they have pending rows. If rows cannot be
        read, or the driver cannot be told, regions without an answer are left to the driver.
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
            for run in self._durable.waiting:
                run.thread.do(run.abandon)
        return len(self._answered)

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
                run.feed.error = e

    def _read_split(self, reader: SplitReader, event: bytes, run: RegionRun) -> None:
        """Give a region the rows of a split; SplitReadError if it is unreadable and not skipped."""
        split = FileSplit.decode(event)
        rows = reader.read(split)
        if reader.skips:
            try:
                rows = iter(list(rows))
            except SplitReadError as e:
                if e.may_pass:
                    raise
                run.feed.sent.append((SOURCE_OPERATOR, BadSplit(split, e.problem).encode()))
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
        """Begin with new regions, once the driver knows of them."""
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
        base, order = self._base.region(region), self._order
        failed = base is not None and base.fallbacks > 0
        at_most = self._plan.options.own_threads
        # Before `take`: only operators that are kept hold their thread.
        thread = self._cache.thread_of(region, failed=failed, at_most=at_most)
        fresh = region in order.restart | order.quarantined or self._only_stores
        cached = self._cache.take(region, None if fresh else base)
        return RegionRun(self._context, region, base, thread=thread, cached=cached)

    def _wait_for_the_rest(self) -> None:
        timeout_ms = self._plan.options.region_timeout_ms
        deadline_ms = self._context.begun_ms + timeout_ms
        late = f"expired: no answer within region_timeout ({timeout_ms / 1000:g} s)"
        while len(self._answered) < len(self._runs):
            if self._only_stores:
                self._decline_the_rest(self._order.lost_cause)
            elif (left_ms := deadline_ms - elapsed_ms()) <= 0:
                self._decline_the_rest(late)
            else:
                self._deliver(self._threads.wait(left_ms / 1000))
            if self._durable.is_late(elapsed_ms()):
                self._deliver_shared()
        self._deliver_shared()

    def _decline_the_rest(self, cause: str) -> None:
        """Decline for regions that hang; nothing can stop their threads, which remain (R5)."""
        silent = [run for region, run in self._runs.items() if region not in self._answered]
        for run in silent:
            run.expire(cause)
        self._deliver(silent)

    def _deliver(self, runs: Sequence[RegionRun]) -> None:
        """Make answers durable, then send them to the driver (R3), or wait for shared files."""
        if not runs:
            return
        self._answered.update(run.region for run in runs)
        answers = self._durable.of(runs)
        self._send({run: answer for run, answer in answers.items() if not answer.shares})
        for run, answer in answers.items():
            if answer.shares:
                self._durable.wait(run, answer, elapsed_ms())
                if self._durable.is_full:
                    self._deliver_shared()

    def _deliver_shared(self) -> None:
        """Write the files of several regions, and send the answers of these regions (R84)."""
        acked, declined = self._durable.flush()
        self._send(acked, together=True)
        self._send(declined)

    def _send(self, answers: Answers, *, together: bool = False) -> None:
        sent: list[Answer] = []
        for left, (run, answer) in zip(reversed(range(len(answers))), answers.items(), strict=True):
            with_next = together and left > 0
            sent.append(Answer(self._partition, answer.event, answer.figures, with_next))
            if isinstance(answer.event, Acked) and answer.keep is not None:
                self._cache.keep(run.region, answer.event.entry, answer.keep, run.thread)
        if sent:
            self._tell(sent)


def _sizes(batch: pa.RecordBatch, parts: Sequence[tuple[str, pa.RecordBatch]]) -> list[int]:
    """Return about how many bytes the parts of a batch have."""
    whole = batch.nbytes
    if whole > AVERAGED_BYTES:
        return [rows.nbytes for _, rows in parts]
    return [whole * rows.num_rows // batch.num_rows for _, rows in parts]
