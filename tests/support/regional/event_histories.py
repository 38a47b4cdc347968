"""Random histories of a pipeline whose operator has a coordinator, on the real driver and tasks.

Events of a region are numbered. Each is sent before a batch, and the coordinator keeps in its state
the number of that batch. So the version of each row shows events before it that were lost,
repeated, or moved between other rows; and so do the regions' own events.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.files.folders import CheckpointFolders
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import ROWS, Row, output_of, partitions_of, rows_of

REGIONS = ["a", "b", "c"]
SCORED = pa.schema([("region", pa.string()), ("id", pa.int64()), ("version", pa.int64())])
EACH = 30
#: Steps of the driver that sometimes fail.
STEPS = ("begin_batch", "handle_event", "checkpoint", "checkpoint_fallback", "publish")


class Numbering(hf.OperatorCoordinator):
    """Sends numbered events, and keeps the events of regions.

    Attributes
    ----------
    before
        By region, for each of its events the batch before which it was sent.
    told
        By region, its answers to events: the number, and the region's rows until then.
    """

    supports_fallback = True

    def __init__(self, history: History) -> None:
        self.history = history
        self.before: dict[str, list[int]] = {}
        self.told: dict[str, list[list[int]]] = {}

    def start(self, gateway: hf.EventGateway) -> None:
        self.gateway = gateway

    def begin_batch(self, checkpoint: int) -> None:
        for region in REGIONS:
            for _ in range(self.history.to_send.get(region, 0)):
                self.send(region, self.history.number)

    def send(self, region: str, batch: int) -> None:
        with self.gateway.in_one_step():
            if region in self.gateway.regions:
                sent = self.before.setdefault(region, [])
                sent.append(batch)
                self.gateway.send(region, b"%d" % len(sent))

    def handle_event(self, region: str, event: bytes) -> None:
        self.told.setdefault(region, []).append(json.loads(event))

    def checkpoint(self, checkpoint: int) -> bytes:
        return self.encoded()

    def encoded(self) -> bytes:
        return json.dumps([self.before, self.told]).encode()

    def reset(self, snapshot: bytes | None) -> None:
        self.before, self.told = ({}, {}) if snapshot is None else json.loads(snapshot)


def _failing(name: str) -> Any:
    call = getattr(Numbering, name)

    def failing(self: Numbering, *arguments: Any) -> Any:
        result = call(self, *arguments)
        self.history.may_fail(name)
        return result

    return failing


for _name in ("begin_batch", "handle_event", "checkpoint", "checkpoint_fallback"):
    setattr(Numbering, _name, _failing(_name))


class Counting(Hooked):
    """Puts out rows with the number of the last event; reports each event and the rows so far."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region, self.ctx = ctx.region, ctx
        self.version = ctx.state.value("version", 0)
        self.rows = ctx.state.value("rows", 0)

    def on_event(self, event: bytes) -> None:
        assert int(event) == self.version.value + 1, f"event {event!r} behind {self.version.value}"
        self.version.value += 1
        self.ctx.send_event(json.dumps([self.version.value, self.rows.value]).encode())

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        self.rows.value += batch.num_rows
        version = pa.array([self.version.value] * batch.num_rows)
        columns = [batch.column("region"), batch.column("id"), version]
        yield pa.RecordBatch.from_arrays(columns, schema=SCORED)


class Passing(hf.Operator):
    """Puts out its input."""

    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class History:
    """One history, from a seed. `run` raises on an error."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)  # noqa: S311
        self.hooks = Hooks()
        self.unaligned = self.random.random() < 0.5
        self.wide = self.random.random() < 0.5
        self.number = 0
        self.to_send: dict[str, int] = {}
        self.batches: dict[int, list[Row]] = {}
        self.seen: set[str] = set()
        self.failing: set[str] = set()

    def may_fail(self, step: str) -> None:
        """Let a step of the driver fail, once."""
        if step in self.failing:
            self.failing.discard(step)
            self.seen.add(step)
            raise OSError(f"no {step} now")

    def open(self, checkpoint_id: int | None = None) -> None:
        self.coordinator = Numbering(self)
        pipeline = hf.regional(region_by="region")
        if self.wide:
            pipeline = pipeline.apply(Passing(), schema=ROWS, parallelism=2, route_by="id")
        counting = Counting(self.hooks)
        self.query = (
            pipeline.apply(counting, schema=SCORED, name="count", coordinator=self.coordinator)
            .write_parquet(self.folder / "out")
            .open_local(
                self.folder / "ckpt",
                checkpoint_id=checkpoint_id,
                max_failure_ratio=0.9,
                max_consecutive_failures=100,
                max_region_staleness=(1000, timedelta(hours=1)),
                tolerable_failed_checkpoints=8,
                aligned_timeout=timedelta(0) if self.unaligned else None,
            )
        )

    def run(self) -> None:
        publish = CheckpointFolders.publish

        def failing_publish(folders: CheckpointFolders, metadata: CheckpointMetadata) -> None:
            self.may_fail("publish")
            publish(folders, metadata)

        with mock.patch.object(CheckpointFolders, "publish", failing_publish):
            self._run()

    def _run(self) -> None:
        self.open()
        for _ in range(8):
            self.batch()
            if self.random.random() < 0.4:
                self.restart()
        self.hooks.calm()
        self.to_send, self.failing = {}, set()
        self.give(REGIONS)
        self.query.finish()
        self.restart_at(None)
        self.check()
        self.query.close()

    def batch(self) -> None:
        """Run a batch in which regions fail, while events are sent."""
        chosen = [region for region in REGIONS if self.random.random() < 0.7]
        failing = {region for region in chosen if self.random.random() < 0.3}
        late = [region for region in REGIONS if self.random.random() < 0.5]
        self.to_send = {region: self.random.choice((0, 0, 1, 2)) for region in REGIONS}

        def disturb(region: str, ids: Sequence[int]) -> None:
            with self.coordinator.gateway.in_one_step():
                while late:
                    self.coordinator.send(late.pop(), self.number + 1)
            if region in failing:
                failing.discard(region)
                raise RuntimeError(f"{region} is in trouble")

        self.hooks.on_rows = disturb
        self.failing = {step for step in STEPS if self.random.random() < 0.06}
        self.give(chosen)
        self.seen |= {record.outcome for record in self.query.history(last=3)}
        if any(entry.in_flight_bytes for entry in self.query.latest.regions.values()):
            self.seen.add("in flight")

    def give(self, regions: Sequence[str]) -> None:
        self.number = self.query.latest.batch_id + 1
        self.batches[self.number] = rows_of(self.number, regions, each=EACH) if regions else []
        self.query.run_batch(partitions_of(self.batches[self.number], 2), batch_id=self.number)

    def restart(self) -> None:
        """Start again, from the latest checkpoint or an older one."""
        ids = checkpoint_ids(self.folder / "ckpt")
        self.restart_at(self.random.choice(ids) if self.random.random() < 0.3 else None)

    def restart_at(self, checkpoint_id: int | None) -> None:
        self.query.close()
        self.open(checkpoint_id)
        latest = self.query.latest.batch_id
        self.batches = {n: rows for n, rows in self.batches.items() if n <= latest}

    def check(self) -> None:
        before, told = self.coordinator.before, self.coordinator.told
        rows = [row for number in sorted(self.batches) for row in self.batches[number]]
        wanted = sorted(
            (region, row_id, sum(at <= row_id // 1000 for at in before.get(region, ())))
            for region, row_id, _ in rows
        )
        assert output_of(self.folder / "out") == wanted
        for region, batches in before.items():
            of_region = [row_id // 1000 for name, row_id, _ in rows if name == region]
            assert told.get(region, []) == [
                [number, sum(row < at for row in of_region)]
                for number, at in enumerate(batches, start=1)
            ]
