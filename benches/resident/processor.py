"""The stateful processor whose state is looked at; Python workers of Spark import it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

OUTPUT = "number long, rows long, total long"

_Result = Row("number", "rows", "total")

#: A key takes as much time in Python whatever its size: a large state of such keys is made in
#: minutes.
NOTE_BYTES = 480


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put out the rows that come in."""
    return batches


class Accounts(StatefulProcessor):
    """Count and sum of amounts for each key, and a text beside them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._account = handle.getValueState("account", "rows long, total long, note string")

    # Spark passes these by the names it documents.
    def handleInputRows(  # noqa: N802
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        # Spark warns of each key whose value is asked for and is not there.
        count, total = self._account.get()[:2] if self._account.exists() else (0, 0)
        for row in rows:
            count += 1
            total += row["amount"]
        self._account.update((count, total, f"{key[0]:0{NOTE_BYTES}d}"))
        yield _Result(key[0], count, total)

    def close(self) -> None:
        """Nothing is held beside the state."""


class Histories(StatefulProcessor):
    """All rows of each key in a list, and their count and sum of amounts."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._history = handle.getListState("history", "amount long, note string")

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        note = f"{key[0]:0{NOTE_BYTES}d}"
        self._history.appendList([(row["amount"], note) for row in rows])
        count = total = 0
        for amount, _ in self._history.get():
            count += 1
            total += amount
        yield _Result(key[0], count, total)

    def close(self) -> None:
        """Nothing is held beside the state."""
