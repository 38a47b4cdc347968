"""Rows on their way to the operators of a region: new and pending ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from holdfast._core import InFlight
from holdfast.regions.base.problem import Problem
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import DEFAULT_SLICE_ROWS, RegionEvent
from holdfast.regions.splits.file_split import FileSplit
from holdfast.regions.task.suspects import Suspects

# Small pieces of a region's rows are gathered, because every batch costs hundreds of microseconds,
# in the operator and around it. They are handed on at so many rows, bytes or pieces. Pieces count
# because the bytes are an estimate, and an Arrow array of strings holds 2 GiB.
GATHER_ROWS: Final = DEFAULT_SLICE_ROWS
GATHER_BYTES: Final = 8 * 1024 * 1024
GATHER_PIECES: Final = 1024

#: Splits whose rows are named where a region fails.
NAMED_SPLITS: Final = 3


class _Pieces:
    """Small pieces of rows that are handed on together."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def fits(self, batch: pa.RecordBatch, nbytes: int) -> bool:
        """Return whether a batch may be joined with the others here."""
        here = self.batches
        return not here or (nbytes < GATHER_BYTES and here[0].schema.equals(batch.schema))

    def add(self, batch: pa.RecordBatch, nbytes: int) -> bool:
        """Take a piece; returns True if that is enough."""
        self.batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += nbytes
        return (
            self._rows >= GATHER_ROWS
            or self._bytes >= GATHER_BYTES
            or len(self.batches) >= GATHER_PIECES
        )


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return rows of one schema, in one batch if Arrow can do that."""
    try:
        return [pa.concat_batches(batches)] if len(batches) > 1 else batches
    except pa.ArrowException:
        # Dictionaries that need a wider index together, or that Arrow cannot unite.
        return batches


class UnderWay:
    """Counts of the rows that the graph received, and of the rows that are through it."""

    def __init__(self) -> None:
        # Origins of the rows of this batch.
        self.origins: list[tuple[FileSplit, int, int]] = []
        self.begin()

    def begin(self) -> None:
        """Begin with the first row."""
        self.given = self.passed = 0
        # The same counts without pending rows.
        self._taken = self._through = 0

    def give(self, rows: int, *, is_new: bool) -> None:
        """Note that the graph received some rows; `is_new`: of this batch."""
        self.given += rows
        self._taken += rows if is_new else 0

    def pass_all(self) -> None:
        """Note that all of them are through."""
        self.passed, self._through = self.given, self._taken

    def named(self) -> str:
        """Name the rows that are not through; empty if their origin is unknown."""
        found: list[str] = []
        end = 0
        for split, first, rows in self.origins:
            begin, end = end, end + rows
            skipped = max(0, self._through - begin)
            count = min(end, self._taken) - begin - skipped
            if count > 0:
                found.append(split.rows(first + skipped, count))
        more = len(found) - NAMED_SPLITS
        return " and ".join(found[:NAMED_SPLITS]) + (f" and {more} more" if more > 0 else "")


class RegionFeed:
    """Rows that wait for a region's graph, in the order in which it takes them.

    Another thread may call `add` and `end`, and set `error` before `end`.

    - `read`: reads pending rows.
    - `step_size`: how many rows the graph receives at once.
    - `keeps_rows`: keep the rows of the batch until the region has answered; else its source does.
    - `suspects`: finds rows that fail; None if an error is one of the region.
    - `source_rows`: rows of this batch, if they are kept.
    - `ended`: this batch has no more rows.
    - `error`: the reason why the source's rows cannot be read, so that the region fails.
    - `events`: events that wait.
    - `sent`: events of the source's reader to coordinators, each with the name of its operator.
    """

    def __init__(
        self,
        read: Callable[[InFlight], Sequence[pa.RecordBatch]],
        step_size: StepSize,
        *,
        keeps_rows: bool,
        suspects: Suspects | None = None,
    ) -> None:
        self._read = read
        self.step_size = step_size
        self._keeps_rows = keeps_rows
        self.suspects = suspects
        self.source_rows: list[pa.RecordBatch] = []
        self.ended = False
        self.error: Exception | None = None
        self.sent: list[tuple[str, bytes]] = []
        self._pieces = _Pieces()
        # Rows of earlier batches that no operator has seen, read or still stored, and events.
        self._owed: deque[pa.RecordBatch | InFlight | RegionEvent] = deque()
        self.events = 0
        self._unfed: deque[pa.RecordBatch] = deque()
        self.under_way = UnderWay()

    def add(
        self, batch: pa.RecordBatch, nbytes: int, *, origin: tuple[FileSplit, int] | None = None
    ) -> bool:
        """Take rows of this batch, in order.

        `nbytes` is their rough size in memory: asking Arrow takes longer than everything else here.
        `origin` is their split, and the number of the first one in its file. Returns True if there
        is something new for `RegionRun.step`; else more rows are gathered.
        """
        if origin is not None:
            self.under_way.origins.append((*origin, batch.num_rows))
        if not self._pieces.fits(batch, nbytes):
            self._hand_on()
        enough = self._pieces.add(batch, nbytes)
        if enough:
            self._hand_on()
        return enough

    def end(self) -> None:
        """No more rows follow in this batch; the barrier is next."""
        self._hand_on()
        self.ended = True

    def owe(self, owed: Iterable[pa.RecordBatch | InFlight | RegionEvent]) -> None:
        """Take pending rows, and events, that precede the rows of the batch, in order."""
        for one in owed:
            self._owed.append(one)
            self.events += isinstance(one, RegionEvent)

    def _hand_on(self) -> None:
        pieces, self._pieces = self._pieces, _Pieces()
        if pieces.batches:
            batches = joined(pieces.batches)
            if self._keeps_rows:
                self.source_rows.extend(batches)
            self._unfed.extend(batches)

    @property
    def waits(self) -> bool:
        """True if there are rows or events."""
        return bool(self._owed or self._unfed)

    @property
    def event_is_next(self) -> bool:
        """True if an event is next, when all rows before it are through the graph."""
        return bool(self._owed) and isinstance(self._owed[0], RegionEvent)

    def next_event(self) -> RegionEvent:
        """Take the event that is next."""
        event = self._owed.popleft()
        if not isinstance(event, RegionEvent):
            raise AssertionError("no event comes next")
        self.events -= 1
        return event

    def next_rows(self) -> pa.RecordBatch:
        """Take as many rows as the graph receives at once; no event may be next."""
        waiting: deque[Any] = self._owed or self._unfed
        is_new = waiting is self._unfed
        batch = waiting.popleft()
        if isinstance(batch, InFlight):
            # Read only now: a region that fails for long has ever more pending rows, and may fail
            # at the first row again.
            first, *rest = self._read(batch)
            waiting.extendleft(reversed(rest))
            batch = first
        rows = self.step_size.rows
        if self.suspects and (room := self.suspects.room(self.under_way.given)) is not None:
            rows = min(rows, room)
        if batch.num_rows > rows:
            waiting.appendleft(batch.slice(rows))
        batch = batch.slice(0, rows)
        self.under_way.give(batch.num_rows, is_new=is_new)
        return batch

    def next_bad(self) -> tuple[pa.RecordBatch, str] | None:
        """Take the next row if it fails, with the reason."""
        why = self.suspects.bad.get(self.under_way.given) if self.suspects else None
        if why is None:
            return None
        row = self.next_rows()
        self.under_way.passed = self.under_way.given
        return row, why

    def suspect(self, error: Exception) -> bool:
        """Search the graph's rows for rows that fail; False if there are none, or too many runs."""
        begin, end = self.under_way.passed, self.under_way.given
        return (
            self.suspects is not None
            and begin < end
            and self.suspects.failed(begin, end, Problem.of(error).text)
        )

    def begin_again(self) -> None:
        """Give all rows again. `end` was called, and the caller adds pending rows again."""
        self._owed.clear()
        self.events = 0
        self._unfed = deque(self.source_rows)
        self.under_way.begin()

    def all_waiting(self) -> list[pa.RecordBatch]:
        """Read pending rows, and return them with rows of this batch that were not fed.

        No barrier overtakes an event, so there are none.
        """
        owed: list[pa.RecordBatch] = []
        for data in self._owed:
            if isinstance(data, RegionEvent):
                raise AssertionError("a barrier overtook an event")
            owed += self._read(data) if isinstance(data, InFlight) else [data]
        self._owed = deque(owed)
        return [*owed, *self._unfed]
