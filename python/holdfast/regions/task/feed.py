"""Rows on their way to the operators of a region: new ones, and rows that it owes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from holdfast._core import InFlight
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import DEFAULT_SLICE_ROWS, RegionEvent
from holdfast.regions.splits.file_split import FileSplit
from holdfast.regions.state.segments import SegmentReader, read_in_flight
from holdfast.regions.task.suspects import Suspects

# Small pieces of a region's rows are gathered, because every batch costs hundreds of microseconds,
# in the operator and around it. They are handed on at so many rows, bytes or pieces. Pieces count
# because the bytes are an estimate, and an Arrow array of strings holds 2 GiB.
GATHER_ROWS: Final = DEFAULT_SLICE_ROWS
GATHER_BYTES: Final = 8 * 1024 * 1024
GATHER_PIECES: Final = 1024

#: Splits whose rows are named where a region fails.
NAMED_SPLITS: Final = 3


class RegionFeed:
    """Rows that wait for a region's graph, in the order in which it takes them.

    `add`, `end` and `fail` may be called from another thread than the rest.

    Parameters
    ----------
    store : SegmentReader
        Has the rows that the region owes.
    keeps_rows : bool
        Keep the rows of the batch until the region has answered; else its source has them still.
    skipped : mapping of int to sequence of (int, int)
        Ranges of owed rows that are left out, by the checkpoint that stored the rows.

    Attributes
    ----------
    source_rows : list of pyarrow.RecordBatch
        Rows of this batch, if they are kept.
    ended : bool
        No more rows come in this batch.
    error : Exception or None
        The reason why the source's rows cannot be read.
    """

    def __init__(
        self,
        store: SegmentReader,
        owners: RegionOwners,
        step_size: StepSize,
        *,
        keeps_rows: bool,
        skipped: Mapping[int, Sequence[tuple[int, int]]],
    ) -> None:
        self._skipped = skipped
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
        # Rows of earlier batches that no operator has seen, read or still stored, and events.
        self._owed: deque[pa.RecordBatch | InFlight | RegionEvent] = deque()
        self._events = 0
        self._unfed: deque[pa.RecordBatch] = deque()
        # Origins of this batch's rows, how many the graph was given, and how many are through.
        self._origins: list[tuple[FileSplit, int, int]] = []
        self._taken = 0
        self._through = 0
        # The same, with rows that were owed.
        self._given = 0
        self._passed = 0
        self._suspects: Suspects | None = None

    # --- in -------------------------------------------------------------------------------------

    def add(
        self, batch: pa.RecordBatch, nbytes: int, *, origin: tuple[FileSplit, int] | None = None
    ) -> bool:
        """Take rows of this batch, in order.

        Parameters
        ----------
        nbytes : int
            Their size in memory, roughly: asking Arrow takes longer than everything else here.
        origin : (FileSplit, int), optional
            Split that they come from, and number of the first one in its file.

        Returns
        -------
        bool
            True if there is something new for `advance`; else more rows are gathered.
        """
        if origin is not None:
            self._origins.append((*origin, batch.num_rows))
        gathered = self._gathered
        if gathered and (nbytes >= GATHER_BYTES or not gathered[0].schema.equals(batch.schema)):
            self._hand_on()
        gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += nbytes
        enough = (
            self._gathered_rows >= GATHER_ROWS
            or self._gathered_bytes >= GATHER_BYTES
            or len(gathered) >= GATHER_PIECES
        )
        if enough:
            self._hand_on()
        return enough

    def end(self) -> None:
        """No more rows come in this batch: the barrier follows."""
        self._hand_on()
        self.ended = True

    def fail(self, error: Exception) -> None:
        """Let the region fail: its source has rows that cannot be read. `end` follows."""
        self.error = error

    def owe(self, rows: Iterable[pa.RecordBatch | InFlight]) -> None:
        """Take rows that come in front of those of the batch."""
        self._owed.extend(one for one in rows if not self._is_skipped(one))

    def owe_event(self, event: RegionEvent) -> None:
        """Take an event that comes behind the rows so far, and in front of those of the batch."""
        self._owed.append(event)
        self._events += 1

    def _hand_on(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        try:
            batches = [pa.concat_batches(gathered)] if len(gathered) > 1 else gathered.copy()
        except pa.ArrowException:
            # Dictionaries that need a wider index together, or that Arrow cannot unite.
            batches = gathered.copy()
        gathered.clear()
        self._gathered_rows = self._gathered_bytes = 0
        if self._keeps_rows:
            self.source_rows.extend(batches)
        self._unfed.extend(batches)

    # --- out ------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if there are rows or events."""
        return bool(self._owed or self._unfed)

    @property
    def has_events(self) -> bool:
        """True if there are events."""
        return self._events > 0

    @property
    def event_is_next(self) -> bool:
        """True if an event comes next, when all rows before it are through the graph."""
        return bool(self._owed) and isinstance(self._owed[0], RegionEvent)

    def next_event(self) -> RegionEvent:
        """Take the event that comes next."""
        event = self._owed.popleft()
        if not isinstance(event, RegionEvent):
            raise AssertionError("no event comes next")
        self._events -= 1
        return event

    def next_rows(self) -> pa.RecordBatch:
        """Take as many rows as the graph is given at once; no event may come next."""
        waiting: deque[Any] = self._owed or self._unfed
        is_new = waiting is self._unfed
        batch = waiting.popleft()
        if isinstance(batch, InFlight):
            # Read only now: a region that fails for long owes ever more, and may fail at the first
            # row again.
            first, *rest = self._read_owed(batch)
            waiting.extendleft(reversed(rest))
            batch = first
        rows = self._step_size.rows
        if self._suspects is not None and (room := self._suspects.room(self._given)) is not None:
            rows = min(rows, room)
        if batch.num_rows > rows:
            waiting.appendleft(batch.slice(rows))
        batch = batch.slice(0, rows)
        self._taken += batch.num_rows if is_new else 0
        self._given += batch.num_rows
        return batch

    def next_bad(self) -> tuple[pa.RecordBatch, str] | None:
        """Take the row that comes next if it fails, with the reason."""
        if self._suspects is None or (why := self._suspects.bad.get(self._given)) is None:
            return None
        row = self.next_rows()
        self._passed = self._given
        return row, why

    def begin_anew(self, suspects: Suspects) -> None:
        """Give all rows once more. `end` was called, and rows that are owed come again."""
        self._suspects = suspects
        self._owed.clear()
        self._unfed = deque(self.source_rows)
        self._taken = self._through = self._given = self._passed = 0

    @property
    def at_work(self) -> tuple[int, int]:
        """Numbers of the first row that the graph has, and of the one behind the last."""
        return self._passed, self._given

    def passed(self) -> None:
        """Note that all rows which the graph was given are through it."""
        self._through = self._taken
        self._passed = self._given

    def under_way(self) -> str:
        """Name the rows that the graph was given and that are not through; empty if unknown."""
        found: list[str] = []
        end = 0
        for split, first, rows in self._origins:
            begin, end = end, end + rows
            skipped = max(0, self._through - begin)
            count = min(end, self._taken) - begin - skipped
            if count > 0:
                found.append(split.rows(first + skipped, count))
        more = len(found) - NAMED_SPLITS
        return " and ".join(found[:NAMED_SPLITS]) + (f" and {more} more" if more > 0 else "")

    def _is_skipped(self, data: pa.RecordBatch | InFlight) -> bool:
        """Return whether all rows of a piece are left out."""
        if not isinstance(data, InFlight):
            return False
        return sum(end - begin for begin, end in self._skipped.get(data.created, ())) >= data.rows

    def _read_owed(self, data: InFlight) -> list[pa.RecordBatch]:
        skipped = self._skipped.get(data.created, ())
        channels = read_in_flight(self._store, self._owners, data, skipped=skipped)
        return [batch for channel in channels for batch in channel.batches]

    def all_waiting(self) -> list[pa.RecordBatch]:
        """Read rows that are owed, and return them with rows of this batch that were not fed.

        No barrier overtakes an event, so there are none.
        """
        owed: list[pa.RecordBatch] = []
        for data in self._owed:
            if isinstance(data, RegionEvent):
                raise AssertionError("a barrier overtook an event")
            owed += self._read_owed(data) if isinstance(data, InFlight) else [data]
        self._owed = deque(owed)
        return [*owed, *self._unfed]
