"""Rows that an instance of an operator emits to side outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.regions.task.fitting import batches_of, fitted, type_name
from holdfast.regions.task.own_memory import OwnMemory

if TYPE_CHECKING:
    from holdfast.regions.protocol.orders import PipelinePlan

#: Calls of an operator that belong to a checkpoint: its state, its rows and its events do, too.
AT_WORK = "process(), on_watermark(), on_event() and on_end_of_data()"

#: Column of rejected rows that says why they were rejected.
REASON = "reason"


class SideRows:
    """Keeps emitted rows until the region writes them, after the step in which they were emitted.

    The side output `bad_rows`, if not empty, takes rejected rows. While `open`, the operator is at
    work on the rows `given`, so rows that it emits belong to the checkpoint of its state.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema] | None = None, bad_rows: str = "") -> None:
        self._schemas = schemas or {}
        self._bad_rows = bad_rows
        self._memory: dict[str, OwnMemory] = {}
        self._emitted: list[tuple[str, pa.RecordBatch]] = []
        self.open = False
        self.given: pa.RecordBatch | None = None

    @classmethod
    def of(cls, plan: PipelinePlan) -> SideRows:
        """Return the side rows of an instance of a pipeline's operator."""
        return cls({output.name: output.schema for output in plan.outputs[1:]}, plan.bad_rows)

    def emit(self, side: str, rows: object) -> None:
        """See `OperatorContext.emit`."""
        if not self.open:
            raise RuntimeError(
                f"emit({side!r}, ...) is allowed in {AT_WORK}: at other times nothing tells which "
                "checkpoint the rows belong to"
            )
        if side not in self._schemas:
            known = ", ".join(self._schemas) or "none"
            raise ValueError(
                f"emit({side!r}, ...): the pipeline has no such side output (declared: {known}); "
                f"declare it with .side({side!r}, schema=...)"
            )
        if (batches := batches_of(rows)) is None:
            raise TypeError(
                f"emit({side!r}, ...) takes a pyarrow.RecordBatch or pyarrow.Table, not "
                f"{type_name(rows)}"
            )
        schema = self._schemas[side]
        memory = self._memory.setdefault(side, OwnMemory(schema))
        for batch in batches:
            try:
                fit = fitted(batch, schema)
            except TypeError as e:
                raise TypeError(f"rows do not fit the side output {side!r}: {e}") from None
            if fit.num_rows:
                self._emitted.append((side, memory.of(fit, given=self.given)))

    def reject(self, rows: object, reason: str | Sequence[str]) -> None:
        """See `OperatorContext.reject`."""
        if (batches := batches_of(rows)) is None:
            raise TypeError(
                f"reject() takes a pyarrow.RecordBatch or pyarrow.Table, not {type_name(rows)}"
            )
        count = sum(batch.num_rows for batch in batches)
        reasons = [reason] * count if isinstance(reason, str) else list(reason)
        if len(reasons) != count:
            raise ValueError(f"reject() got {len(reasons)} reasons for {count} rows")
        if not count:
            return
        if not self._bad_rows:
            raise ValueError(
                f"{count} rows were rejected, the first because of {reasons[0]!r}, and the "
                "pipeline has no on_bad_row(), which names the side output that takes such rows"
            )
        table = pa.Table.from_batches(batches)
        self.emit(self._bad_rows, table.append_column(REASON, pa.array(reasons, pa.string())))

    def take(self) -> list[tuple[str, pa.RecordBatch]]:
        """Return the rows that were emitted since the last call, with the side outputs' names."""
        taken, self._emitted = self._emitted, []
        return taken
