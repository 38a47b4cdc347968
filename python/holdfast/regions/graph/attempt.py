"""The instances of a graph, and the one checkpoint attempt that may be open in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.regions.graph.data import ChannelData, InstanceKey, RegionSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.regions.graph.channel import Channel, Outlet
    from holdfast.regions.graph.spec import StageOperator


@dataclass(eq=False, slots=True)
class Instance:
    """One instance of an operator with the channels it reads from and writes to.

    The last stage has no `outlet`. `snapshotted` is the newest attempt for which it took its
    snapshot, complete or not. Once `finished`, it has flushed, and its end is in its outlet.
    """

    key: InstanceKey
    operator: StageOperator
    inputs: Sequence[Channel]
    outlet: Outlet | None = None
    snapshotted: int | None = None
    finished: bool = False


@dataclass(eq=False, slots=True)
class Attempt:
    """A checkpoint attempt, with the parts that were collected so far.

    Its barrier may overtake at `due_ms`; None for never. Once it is `overtaking`, the next steps
    take the missing snapshots. `captured` are the batches that it overtook, by channel.
    """

    checkpoint: int
    due_ms: int | None
    overtaking: bool = False
    states: dict[InstanceKey, object] = field(default_factory=dict)
    finished: set[InstanceKey] = field(default_factory=set)
    captured: dict[str, tuple[pa.RecordBatch, ...]] = field(default_factory=dict)

    def overdue(self, now_ms: int) -> bool:
        """Say whether the barrier is past its timeout."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def snapshot(self, source: Outlet, instances: Sequence[Instance]) -> RegionSnapshot:
        """Put the parts together, in-flight data in the order of the graph."""
        in_flight = tuple(
            ChannelData(channel.name, batches, "input" if channel in source.channels else "output")
            for instance in instances
            for channel in instance.inputs
            if (batches := self.captured.get(channel.name))
        )
        return RegionSnapshot(
            self.checkpoint, self.states, in_flight, not self.overtaking, frozenset(self.finished)
        )
