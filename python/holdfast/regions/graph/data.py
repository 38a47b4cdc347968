"""Results of a graph: outputs, snapshots, in-flight data, and the progress of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.regions.graph.spec import ARROW

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "source"
"""Channel of a `ChannelData` with input rows not yet split over stage 0."""

InstanceKey: TypeAlias = tuple[str, int]
"""Stage name, number of the instance in its stage."""


def instance_name(key: InstanceKey) -> str:
    """Return the name of an instance, a part of the names of its channels."""
    stage, number = key
    return f"{stage}.{number}"


def channel_name(producer: InstanceKey | None, consumer: InstanceKey) -> str:
    """Return the name of the channel between two instances; None: from the region's source."""
    before = SOURCE if producer is None else instance_name(producer)
    return f"{before}{ARROW}{instance_name(consumer)}"


class Progress(Enum):
    """The result of `RegionGraph.step`."""

    WORKED = "worked"
    """One unit of work was done."""

    IDLE = "idle"
    """Nothing is queued: the graph waits for input, a barrier or the end."""

    ENDED = "ended"
    """Every instance has flushed, and no snapshot is pending."""


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
        ``"input"`` from the region's source, ``"output"`` from an operator. Both ends share one
        queue, so an overtaken batch is captured once.
    """

    channel: str
    batches: tuple[pa.RecordBatch, ...]
    kind: Literal["input", "output"]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory, slices counted by their own rows."""
        return sum(batch.nbytes for batch in self.batches)


def redistribute(
    data: Iterable[ChannelData],
    channels_of: Callable[[str, pa.RecordBatch], Sequence[tuple[str, pa.RecordBatch]]],
) -> tuple[ChannelData, ...]:
    """Divide in-flight data over other channels, by a function applied to each row (R57).

    `channels_of` splits a batch in a channel into new channels and rows in their order. Every row
    goes to exactly one channel, and rows from one old to one new channel keep their order. Returns
    an entry for each given one and each channel that got rows of it, in the order given. Raises a
    ValueError if ``channels_of`` loses or doubles rows.
    """
    divided: list[ChannelData] = []
    for entry in data:
        parts: dict[str, list[pa.RecordBatch]] = {}
        for batch in entry.batches:
            found = 0
            for channel, rows in channels_of(entry.channel, batch):
                found += rows.num_rows
                if rows.num_rows:
                    parts.setdefault(channel, []).append(rows)
            if found != batch.num_rows:
                raise ValueError(
                    f"in-flight data of channel {entry.channel}: expected the new channels of a "
                    f"batch to have its {batch.num_rows} rows, found {found}"
                )
        divided += (
            ChannelData(channel, tuple(batches), entry.kind) for channel, batches in parts.items()
        )
    return tuple(divided)


@dataclass(frozen=True)
class Output:
    """A batch at the graph's end; `follows` is its instance's newest snapshot before it, if any."""

    batch: pa.RecordBatch
    instance: InstanceKey
    follows: int | None

    def precedes(self, checkpoint: int) -> bool:
        """Say whether the batch precedes the barrier of ``checkpoint``."""
        return self.follows is None or self.follows < checkpoint


@dataclass(frozen=True)
class RegionSnapshot:
    """A complete snapshot of one region.

    Attributes
    ----------
    states
        The result of `StageOperator.snapshot` of each instance.
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
