"""What comes out of a graph: outputs, snapshots, in-flight data, and how far a step got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "source"
"""As the channel of a `ChannelData`: input rows that have not been split over stage 0 yet."""

InstanceKey: TypeAlias = tuple[str, int]
"""Stage name, number of the instance in its stage."""


class Progress(Enum):
    """What `RegionGraph.step` found to do."""

    WORKED = "worked"
    """One unit of work was done."""

    IDLE = "idle"
    """Nothing is queued: the graph waits for input, a barrier or the end."""

    ENDED = "ended"
    """Every instance has flushed, and no snapshot is owed."""


@dataclass(frozen=True)
class ChannelData:
    """In-flight data of one channel, oldest batch first.

    Parameters
    ----------
    channel
        Name of the channel, such as ``source->stats.0`` or ``stats.1->join.0``, or `SOURCE`.
    batches
        Rows that are not reflected in the state of the channel's consumer.
    kind
        ``"input"`` if the region's source put them into the channel, ``"output"`` if an operator
        did. Both ends of a channel share one queue, so what a barrier overtakes there is at once
        output of the producer and input of the consumer. It is captured once: as output where
        there is an operator whose output it is, else as input.
    """

    channel: str
    batches: tuple[pa.RecordBatch, ...]
    kind: Literal["input", "output"]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory, slices counted by their own rows."""
        return sum(batch.nbytes for batch in self.batches)


@dataclass(frozen=True)
class Output:
    """One batch that reached the end of the graph.

    Attributes
    ----------
    batch
        At least one row.
    instance
        The instance of the last stage that emitted it.
    follows
        The newest checkpoint of which this instance had taken its snapshot before it emitted the
        batch; None if there was none.
    """

    batch: pa.RecordBatch
    instance: InstanceKey
    follows: int | None

    def precedes(self, checkpoint: int) -> bool:
        """Whether the batch belongs in front of the barrier of ``checkpoint``."""
        return self.follows is None or self.follows < checkpoint


@dataclass(frozen=True)
class RegionSnapshot:
    """A complete snapshot of one region.

    Attributes
    ----------
    checkpoint
        Id of the attempt.
    states
        What the snapshot of every instance returned.
    in_flight
        Rows between those states, one entry per channel that had any, in the order of the graph.
    aligned
        True if the barrier overtook nothing; then there is no in-flight data.
    finished
        Instances that had flushed at the end of their data before their snapshot (R60).
    """

    checkpoint: int
    states: Mapping[InstanceKey, object]
    in_flight: tuple[ChannelData, ...]
    aligned: bool
    finished: frozenset[InstanceKey]
