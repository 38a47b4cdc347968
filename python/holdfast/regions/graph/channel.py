"""A bounded queue between two instances, and the channels that one producer writes to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.regions.graph.spec import Route


@dataclass(eq=False, slots=True)
class Channel:
    """FIFO queue of batches with at most one barrier between them and one end after them.

    One attempt is open at a time, so there is never a second barrier. Its place is a number, not an
    item of the queue, so overtaking moves no data.

    Attributes
    ----------
    measured
        Count bytes. That takes longer than everything else with a batch, so channels count 0 in a
        graph whose barriers never overtake.
    barrier
        A barrier is in the queue. Without a batch before it, the channel is blocked until the
        consumer takes the barrier.
    ending, ended
        The producer has ended, and the end follows everything; the consumer has taken it.
    """

    name: str
    capacity: int
    measured: bool
    barrier: bool = False
    ending: bool = False
    ended: bool = False
    nbytes: int = 0
    _queue: deque[tuple[pa.RecordBatch, int]] = field(default_factory=deque)
    _ahead: int = 0
    _ahead_bytes: int = 0

    @property
    def room(self) -> int:
        """Batches until the channel is full; 0 also above its capacity."""
        return max(0, self.capacity - len(self._queue))

    @property
    def holds_rows(self) -> bool:
        """A batch is queued."""
        return bool(self._queue)

    @property
    def readable(self) -> bool:
        """A batch is at the head."""
        return bool(self._queue) and not (self.barrier and self._ahead == 0)

    @property
    def at_end(self) -> bool:
        """The end is at the head and was not taken yet."""
        return self.ending and not self.ended and not self._queue and not self.barrier

    @property
    def aligned(self) -> bool:
        """No batch is before the barrier, or the end, which counts as one (R54)."""
        if self.barrier:
            return self._ahead == 0
        return self.ending and not self._queue

    @property
    def bytes_ahead(self) -> int:
        """Bytes of the batches that the barrier would have to overtake."""
        return self._ahead_bytes if self.barrier else self.nbytes

    def push(self, batch: pa.RecordBatch) -> None:
        """Queue a batch, even into a full channel: its sender checks the room."""
        nbytes = batch.nbytes if self.measured else 0
        self._queue.append((batch, nbytes))
        self.nbytes += nbytes

    def pop(self) -> pa.RecordBatch:
        """Take the batch at the head; the channel must be readable."""
        batch, nbytes = self._queue.popleft()
        self.nbytes -= nbytes
        if self.barrier:
            self._ahead -= 1
            self._ahead_bytes -= nbytes
        return batch

    def put_barrier(self) -> None:
        """Put a barrier after everything; the end is one, if it is queued already."""
        if not self.ending:
            self.barrier = True
            self._ahead = len(self._queue)
            self._ahead_bytes = self.nbytes

    def overtake(self) -> tuple[pa.RecordBatch, ...]:
        """Put the barrier first; returns the overtaken batches, not those after it."""
        count = self._ahead if self.barrier else len(self._queue)
        overtaken = tuple(batch for batch, _ in islice(self._queue, count))
        self.barrier = True
        self._ahead = 0
        self._ahead_bytes = 0
        return overtaken

    def drop_barrier(self) -> None:
        """Drop a barrier that was taken or whose attempt ended; unblocks the channel (R53)."""
        self.barrier = False


@dataclass(eq=False, slots=True)
class Outlet:
    """The channels that one producer writes to, by instance of `stage`, or one without a route."""

    stage: str
    channels: Sequence[Channel]
    route: Route | None

    @property
    def room(self) -> int:
        """Batches that can be sent until a channel is full on any route."""
        return min(channel.room for channel in self.channels)

    def send(self, batch: pa.RecordBatch) -> None:
        """Split a batch and queue the parts that have rows."""
        parts = [batch] if self.route is None else self.route(batch, len(self.channels))
        if len(parts) != len(self.channels):
            raise ValueError(
                f"route of stage {self.stage}: expected {len(self.channels)} parts, "
                f"one per instance, found {len(parts)}"
            )
        for channel, part in zip(self.channels, parts, strict=True):
            if part is not None and part.num_rows:
                channel.push(part)

    def end(self) -> None:
        """Put the end after everything."""
        for channel in self.channels:
            channel.ending = True
