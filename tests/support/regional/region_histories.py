"""Random histories of one region over several attempts, step by step and on one thread."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast._core import CheckpointMetadata, RegionEntry, SnapshotManager
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.problem import Cause
from holdfast.regions.coordinator import Acked
from holdfast.regions.protocol.orders import AttemptOrder, OutputPlan, RegionEvent, TaskOptions
from holdfast.regions.state.segments import CheckpointSegments, read_in_flight
from holdfast.regions.task.region.answer import Answered
from holdfast.regions.task.region.region import TaskContext
from holdfast.regions.task.region.run import RegionRun
from holdfast.regions.task.shared_states import SharedStates
from support.regional.hooks import Hooked, Hooks

REGION = "r"
ROWS = pa.schema([("region", pa.string()), ("id", pa.int64())])
NUMBERED = pa.schema([("id", pa.int64()), ("nth", pa.int64()), ("events", pa.int64())])
BAD = ROWS.append(pa.field("reason", pa.string()))
TIMEOUT_MS = 10


def rows(ids: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([REGION] * len(ids)), pa.array(ids, pa.int64())], schema=ROWS
    )


class Passing(hf.Operator):
    region_safe = True
    row_independent = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class Numbering(Hooked):
    """Numbers the rows that it takes in, with the number of events before each."""

    region_safe = True
    row_independent = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.nth = ctx.state.value("nth", 0)
        self.events = ctx.state.value("events", 0)
        self.hooks.seen.append(("open", ctx.region, 0))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        nth = np.arange(batch.num_rows) + self.nth.value
        self.nth.value += batch.num_rows
        events = [self.events.value] * batch.num_rows
        yield pa.record_batch([batch["id"], pa.array(nth), pa.array(events)], schema=NUMBERED)

    def on_event(self, event: bytes) -> None:
        self.events.value += 1

    def close(self) -> None:
        self.hooks.seen.append(("close", self.region, 0))


class MemoryStage(hf.Stage):
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.discarded = False

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def close(self) -> hf.Staged:
        return hf.Staged("path", "target", sum(map(len, self.batches)), 0)

    def discard(self) -> None:
        self.discarded = True


class MemorySink(hf.TwoPhaseSink):
    """Staged output of its regions, for tests."""

    location = "memory"

    def __init__(self, shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes
        self.stages: list[MemoryStage] = []

    @property
    def shared_bytes(self) -> int:
        return self._shared_bytes

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> MemoryStage:
        self.stages.append(MemoryStage())
        return self.stages[-1]

    def commit(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        raise AssertionError("tests read the stages")

    def sweep(self, before_attempt: int) -> None:
        raise AssertionError("tests read the stages")


class Here:
    """Replaces the thread of a region."""

    lost = False

    def do(self, work: Any) -> None:
        work()


class History:
    """A region, its input, and its output."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.store = SnapshotManager(folder)
        self.hooks = Hooks()
        self.sinks = [MemorySink(self.random.choice([0, 1 << 20])) for _ in range(2)]
        self.searches = self.random.random() < 0.5
        choose = self.random.choice
        chain = hf.regional(region_by="region").apply(Passing(), schema=ROWS)
        plan = chain.apply(Numbering(self.hooks), schema=NUMBERED, name="numbering")._chain.plan(
            "test",
            [OutputPlan("", NUMBERED, self.sinks[0]), OutputPlan("bad", BAD, self.sinks[1])],
            TaskOptions(
                aligned_timeout_ms=choose([None, TIMEOUT_MS]),
                max_in_flight_bytes=choose([0, 500, 1 << 20]),
                capacity_batches=choose([1, 2, 4]),
                slice_rows=choose([2, 1 << 10]),
                share_rows_bytes=choose([100, 1 << 20]),
                quarantine_pieces=2,
                bad_row_runs=choose([2, 48]),
            ),
        )
        self.plan = replace(plan, bad_rows="bad", finds_bad_rows=self.searches)
        self.attempt = 1
        self.base: RegionEntry | None = None
        self.kept: Any = None
        self.events: list[RegionEvent] = []
        self.sent = 0
        self.given: list[int] = []
        self.events_before: dict[int, int] = {}
        self.out: list[tuple[int, int, int]] = []
        self.bad: list[int] = []
        self.seen: set[str] = set()

    def run(self) -> None:
        for _ in range(self.random.randrange(2, 9)):
            self.run_attempt()
        self.run_attempt(calm=True)
        assert self.owed() == []
        # Each row once, in order, and between the same events.
        found = sorted(self.out, key=lambda row: row[1])
        assert [nth for _, nth, _ in found] == list(range(len(found)))
        ids = [id for id, _, _ in found]
        assert ids == sorted(ids)
        assert sorted(ids + self.bad) == self.given
        if not self.searches:
            assert {id: events for id, _, events in found} == self.events_before
        if self.kept is not None:
            self.close_kept()
        assert len(self.hooks.happened("open")) == len(self.hooks.happened("close"))

    def run_attempt(self, *, calm: bool = False) -> None:
        self.attempt += 1
        choose = self.random
        if not self.searches:
            for _ in range(choose.randrange(3)):
                self.sent += 1
                self.events.append(RegionEvent(self.attempt, "numbering", b""))
        # Rows in quarantine are merged, so the place of an event between them is unknown.
        sets_aside = self.base is not None and self.searches and not calm
        quarantined = sets_aside and choose.random() < 0.15
        ids = list(range(len(self.given), len(self.given) + choose.randrange(12)))
        self.given += ids
        self.events_before |= dict.fromkeys(ids, self.sent)
        run = self.begun(quarantined=quarantined, drain=calm or choose.random() < 0.3)
        self.trouble(run, ids, calm=calm)
        owed, stages = self.owed(), [len(sink.stages) for sink in self.sinks]
        answer = self.driven(run, ids, calm=calm)
        made = [
            stage
            for sink, begin in zip(self.sinks, stages, strict=True)
            for stage in sink.stages[begin:]
        ]
        if isinstance(answer.event, Acked):
            self.acknowledged(answer, answer.event, owed + ids, made)
        else:
            assert not calm
            self.seen.add("declined")
            assert sorted(self.ids_in(answer.event.in_flight)) == ids
            assert answer.event.had_rows == bool(ids)
            assert answer.keep is None
            assert all(stage.discarded for stage in made)
            assert not any(rows_of(answer, name) for name in ("", "bad"))
            known = self.base or RegionEntry(REGION, origin=1)
            self.base = RegionEntry(
                REGION,
                origin=known.origin,
                operators=known.operators,
                in_flight=[*known.in_flight, *answer.event.in_flight],
            )
            self.kept = None

    def acknowledged(
        self, answer: Answered, event: Acked, ids: list[int], made: list[MemoryStage]
    ) -> None:
        staged = [output.stage for output in answer.outputs if output.stage is not None]
        assert [stage for stage in made if not stage.discarded] == staged
        main, bad = rows_of(answer, ""), rows_of(answer, "bad")
        in_flight = self.ids_in(event.entry.in_flight)
        # Every row is once in the state and the output, or pending.
        found = [row["id"] for row in main + bad] + in_flight
        assert Counter(found) == Counter(ids)
        stored = "in flight" if answer.keep is not None else "quarantined"
        self.seen |= {stored if in_flight else "acknowledged", *(["bad"] if bad else [])}
        self.out += [(row["id"], row["nth"], row["events"]) for row in main]
        self.bad += [row["id"] for row in bad]
        self.base, self.kept = event.entry, answer.keep
        if answer.keep is not None:
            self.events = []

    # --- details ---------------------------------------------------------------------------------

    def begun(self, *, quarantined: bool, drain: bool) -> RegionRun:
        regions = [self.base] if self.base is not None else []
        metadata = CheckpointMetadata(self.attempt, -1, "checkpoint", 0, b"", regions)
        stored = CheckpointSegments(self.store, metadata)
        order = AttemptOrder(
            attempt=self.attempt,
            created_ms=0,
            base=metadata,
            drain=drain,
            quarantined=frozenset({REGION}) if quarantined else frozenset(),
            events={REGION: tuple(self.events)},
        )
        self.now_ms = 0
        task = TaskContext(
            self.plan,
            order,
            self.store,
            0,
            stored,
            SharedStates(stored, "test", metadata),
            frozenset(),
            True,
            np,
            clock=lambda: self.now_ms / 1000,
        )
        cached, self.kept = self.kept, None
        if cached is not None and (quarantined or self.random.random() < 0.3):
            self.kept = cached
            self.close_kept()
            cached = None
        thread: Any = Here()
        return RegionRun(task, REGION, self.base, thread=thread, cached=cached)

    def trouble(self, run: RegionRun, ids: list[int], *, calm: bool) -> None:
        """Let the operator fail, or the task expire while the operator runs."""
        self.hooks.calm()
        known = ids + self.owed()
        if calm or not known:
            return
        kind = self.random.choice(["none", "none", "fail", "expire"])
        chosen = self.random.choice(known)

        def fail(region: str, seen: Sequence[int]) -> None:
            if chosen in seen and run.feed.ended and kind == "expire":
                run.expire("expired")
            elif chosen in seen and kind == "fail":
                raise RuntimeError(f"in trouble with {chosen}")

        if kind != "none":
            self.hooks.on_rows = fail

    def driven(self, run: RegionRun, ids: list[int], *, calm: bool) -> Answered:
        """Feed the region and step it, in some order, to its answer."""
        left = list(ids)
        steps = 0
        while run.answer is None:
            steps += 1
            assert steps < 10_000, "the region does not come to an answer"
            action = self.random.choice(["feed", "step", "step", "wait", "rare"])
            if action == "feed" and left:
                count = self.random.randrange(1, 5)
                run.feed.add(rows(left[:count]), 100 * count)
                left = left[count:]
            elif action == "feed":
                run.feed.end()
            elif action == "wait":
                self.now_ms += self.random.randrange(TIMEOUT_MS)
            elif action == "step" and not run.step(self.now_ms):
                # No work is left without more input.
                assert not run.feed.ended
            elif action == "rare" and not calm and self.random.random() < 0.05:
                if run.feed.ended and self.random.random() < 0.5:
                    run.expire("expired")
                elif not run.feed.ended:
                    run.feed.error = OSError("cannot be read")
        answer = run.settled()
        assert run.feed.ended, "an answer has all rows"
        assert not left
        run.expire("too late")
        assert not run.step(self.now_ms)
        assert run.settled() is answer, "the first answer stays"
        if isinstance(answer.event, Acked) and not calm and self.random.random() < 0.1:
            self.seen.add("not durable")
            answer = run.decline(answer, Cause("not durable"))
        elif not isinstance(answer.event, Acked):
            run.abandon()
        for owner, refs in answer.segments:
            self.store.persist_segments(self.attempt, owner, refs)
        return answer

    def close_kept(self) -> None:
        for of_stage in self.kept:
            for instance in of_stage:
                instance.close()
        self.kept = None

    def owed(self) -> list[int]:
        return [] if self.base is None else self.ids_in(self.base.in_flight)

    def ids_in(self, in_flight: Any) -> list[int]:
        owners = RegionOwners("test", REGION)
        metadata = CheckpointMetadata(
            1, -1, "checkpoint", 0, b"", [RegionEntry(REGION, origin=1, in_flight=in_flight)]
        )
        stored = CheckpointSegments(self.store, metadata)
        return [
            id
            for data in in_flight
            for channel in read_in_flight(stored, owners, data)
            for batch in channel.batches
            for id in batch["id"].to_pylist()
        ]


def rows_of(answer: Answered, name: str) -> list[dict[str, Any]]:
    """The rows that an answer puts out."""
    return [
        row
        for output in answer.outputs
        if output.plan.name == name
        for batch in output.rows or output.stage.batches
        for row in batch.to_pylist()
    ]
