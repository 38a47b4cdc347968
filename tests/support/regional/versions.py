"""A coordinator that numbers its events, and operators that show the order of rows and events.

Every region counts its rows and events, and puts out both with each row. So the output shows each
event that was lost, repeated, or moved between other rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

import holdfast as hf
from support.regional.hooks import Hooked, Hooks

SCORED = pa.schema([("region", pa.string()), ("id", pa.int64()), ("version", pa.int64())])


class Versions(hf.OperatorCoordinator):
    """Sends a new version to all regions before a batch; learns which region took which version.

    Attributes
    ----------
    taken
        By region, the versions that it reported, in order.
    before_batch
        Called before each batch, with this coordinator and the attempt.
    calls
        Every call, without its arguments.
    """

    supports_fallback = True

    def __init__(self, *, every_batch: bool = True) -> None:
        self.version = 0
        self.taken: dict[str, list[int]] = {}
        self.every_batch = every_batch
        self.before_batch: Callable[[Versions, int], None] | None = None
        self.calls: list[str] = []
        self.completed: list[hf.CheckpointInfo] = []

    def start(self, gateway: hf.EventGateway) -> None:
        self.calls.append("start")
        self.gateway = gateway

    def begin_batch(self, checkpoint: int) -> None:
        self.calls.append("begin_batch")
        if self.every_batch:
            self.send_next()
        if self.before_batch is not None:
            self.before_batch(self, checkpoint)

    def send_next(self) -> None:
        """Send the next version to all regions."""
        self.version += 1
        for region in self.gateway.regions:
            self.gateway.send(region, b"%d" % self.version)

    def handle_event(self, region: str, event: bytes) -> None:
        self.calls.append("handle_event")
        self.taken.setdefault(region, []).append(int(event))

    def checkpoint(self, checkpoint: int) -> bytes:
        self.calls.append("checkpoint")
        return json.dumps([self.version, self.taken]).encode()

    def reset(self, snapshot: bytes | None) -> None:
        self.calls.append("reset")
        self.version, self.taken = (0, {}) if snapshot is None else json.loads(snapshot)

    def region_reset(self, region: str, origin: int) -> None:
        self.calls.append("region_reset")

    def checkpoint_complete(self, info: hf.CheckpointInfo) -> None:
        self.calls.append("checkpoint_complete")
        self.completed.append(info)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self.calls.append("checkpoint_aborted")

    def close(self) -> None:
        self.calls.append("close")


class Scorer(Hooked):
    """Puts out each row with the version that its region has, and reports each new version."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region, self.ctx = ctx.region, ctx
        self.version = ctx.state.value("version", 0)

    def on_event(self, event: bytes) -> None:
        if int(event) <= self.version.value:
            raise AssertionError(f"{self.region} got {event!r} behind {self.version.value}")
        self.version.value = int(event)
        self.ctx.send_event(event)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        version = pa.repeat(self.version.value, batch.num_rows)
        yield pa.RecordBatch.from_arrays(
            [batch.column("region"), batch.column("id"), version.cast(pa.int64())], schema=SCORED
        )


def open_versions(
    folder: Any, coordinator: hf.OperatorCoordinator, hooks: Hooks | None = None, **options: Any
) -> hf.LocalQuery:
    """Open a pipeline of a scorer with its coordinator."""
    given: Mapping[str, Any] = {"max_failure_ratio": 0.5, "tolerable_failed_checkpoints": 5}
    pipeline = hf.regional(region_by="region").apply(
        Scorer(hooks), schema=SCORED, name="score", coordinator=coordinator
    )
    return pipeline.write_parquet(folder / "out").open_local(
        folder / "ckpt", **{**given, **options}
    )
