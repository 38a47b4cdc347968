"""Rows on their way to the operators of a region: new ones, and those it owes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import InFlight
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import DEFAULT_SLICE_ROWS
from holdfast.regions.state.segments import SegmentReader, read_in_flight

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a region that come in small pieces are gathered: every batch costs the same hundreds of
# microseconds, in the operator and around it. Rows, bytes and pieces at which they are handed on:
# pieces too, since the bytes are an estimate and an Arrow array of strings holds 2 GiB.
GATHER_ROWS: Final = DEFAULT_SLICE_ROWS
GATHER_BYTES: Final = 8 * 1024 * 1024
GATHER_PIECES: Final = 1024


class RegionFeed:
    """Rows that wait for a region's graph, in the order in which it takes them.

    `add`, `end` and `fail` may be called from another thread than the rest.

    Parameters
    ----------
    store : SegmentReader
        Where the rows lie that the region owes.
    owners : RegionOwners
        Of the region's segments.
    step_size : StepSize
        How many rows the graph is given at once.
    keeps_rows : bool
        Whether rows of the batch are kept until the region has answered; else its source has them
        still.

    Attributes
    ----------
    source_rows : list of pyarrow.RecordBatch
        What came in this batch, if it is kept.
    ended : bool
        No more rows come in this batch.
    error : Exception or None
        Why the source's rows cannot be read.
    """

    def __init__(
        self, store: SegmentReader, owners: RegionOwners, step_size: StepSize, *, keeps_rows: bool
    ) -> None:
        self._store = store
        self._owners = owners
        self._step_size = step_size
        self._keeps_rows = keeps_rows
        self.source_rows: list[pa.RecordBatch] = []
        self.ended = False
        self.error: Exception | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        # Rows of earlier batches that no operator has seen, read or still stored.
        self._owed: deque[pa.RecordBatch | InFlight] = deque()
        self._unfed: deque[pa.RecordBatch] = deque()

    # --- in -------------------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch, nbytes: int) -> bool:
        """Take rows of this batch, in order.

        They are kept until the region has answered, unless its source has them still.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows.
        nbytes : int
            Their size in memory, about: asking Arrow takes longer than all else that is done here.

        Returns
        -------
        bool
            Whether there is something new for `advance`; else more rows are waited for.
        """
        gathered = self._gathered
        if gathered and (nbytes >= GATHER_BYTES or not gathered[0].schema.equals(batch.schema)):
            self._hand_on()
        gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += nbytes
        if (
            self._gathered_rows < GATHER_ROWS
            and self._gathered_bytes < GATHER_BYTES
            and len(gathered) < GATHER_PIECES
        ):
            return False
        self._hand_on()
        return True

    def end(self) -> None:
        """No more rows come in this batch: the barrier follows."""
        self._hand_on()
        self.ended = True

    def fail(self, error: Exception) -> None:
        """Let the region fail: its source has rows that cannot be read. `end` follows."""
        self.error = error

    def owe(self, rows: Iterable[pa.RecordBatch | InFlight]) -> None:
        """Take rows that come in front of those of the batch."""
        self._owed.extend(rows)

    def _hand_on(self) -> None:
        import pyarrow as pa

        gathered = self._gathered
        if not gathered:
            return
        batch = pa.concat_batches(gathered) if len(gathered) > 1 else gathered[0]
        gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0
        if self._keeps_rows:
            self.source_rows.append(batch)
        self._unfed.append(batch)

    # --- out ------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether there are rows for the graph."""
        return bool(self._owed or self._unfed)

    def next_rows(self) -> pa.RecordBatch:
        """Take as many rows as the graph is given at once."""
        waiting: deque[Any] = self._owed or self._unfed
        batch = waiting.popleft()
        if isinstance(batch, InFlight):
            # Not before it is its turn: a region that fails for long owes ever more, and may fail
            # at the first row again.
            first, *rest = self._read_owed(batch)
            waiting.extendleft(reversed(rest))
            batch = first
        rows = self._step_size.rows
        if batch.num_rows > rows:
            waiting.appendleft(batch.slice(rows))
        return batch.slice(0, rows)

    def _read_owed(self, data: InFlight) -> list[pa.RecordBatch]:
        channels = read_in_flight(self._store, self._owners, data)
        return [batch for channel in channels for batch in channel.batches]

    def all_waiting(self) -> list[pa.RecordBatch]:
        """Read what is owed, and return it with the rows of this batch that were not fed."""
        owed: list[pa.RecordBatch] = []
        for data in self._owed:
            owed += self._read_owed(data) if isinstance(data, InFlight) else [data]
        self._owed = deque(owed)
        return [*owed, *self._unfed]
