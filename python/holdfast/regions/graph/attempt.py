"""The instances of a graph, and the one checkpoint attempt that may be open in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.regions.graph.data import ChannelData, InstanceKey, RegionSnapshot
from holdfast.regions.graph.naming import instance_name

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.regions.graph.channel import Channel, Outlet
    from holdfast.regions.graph.spec import StageOperator


@dataclass(eq=False, slots=True)
class Instance:
    """One instance of an operator with the channels it reads from and writes to.

    Attributes
    ----------
    outlet
        None in the last stage.
    snapshotted
        The newest attempt of which it took its snapshot, whatever became of the attempt.
    finished
        It has flushed, and its end stands in the channels it writes to.
    """

    key: InstanceKey
    operator: StageOperator
    inputs: Sequence[Channel]
    outlet: Outlet | None = None
    snapshotted: int | None = None
    finished: bool = False

    @property
    def name(self) -> str:
        """Its part of the names of channels."""
        return instance_name(self.key)


@dataclass(eq=False, slots=True)
class Attempt:
    """A checkpoint attempt: what has been collected of it so far.

    Attributes
    ----------
    due_ms
        When its barrier may overtake; None for never.
    overtaking
        Its barrier has overtaken; the snapshots that are missing are owed at once.
    captured
        Per channel what the barrier overtook there.
    """

    checkpoint: int
    due_ms: int | None
    overtaking: bool = False
    states: dict[InstanceKey, object] = field(default_factory=dict)
    finished: set[InstanceKey] = field(default_factory=set)
    captured: dict[str, tuple[pa.RecordBatch, ...]] = field(default_factory=dict)

    def overdue(self, now_ms: int) -> bool:
        """Whether the barrier is past its timeout."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def snapshot(self, source: Outlet, instances: Sequence[Instance]) -> RegionSnapshot:
        """Put the parts together, in-flight data in the order of the graph."""
        from_source = {channel.name for channel in source.channels}
        channels = [channel.name for instance in instances for channel in instance.inputs]
        return RegionSnapshot(
            checkpoint=self.checkpoint,
            states=self.states,
            in_flight=tuple(
                ChannelData(name, batches, "input" if name in from_source else "output")
                for name in channels
                if (batches := self.captured.get(name))
            ),
            aligned=not self.overtaking,
            finished=frozenset(self.finished),
        )
