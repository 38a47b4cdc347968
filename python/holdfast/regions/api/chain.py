"""The source of a pipeline and its operators, before the start."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.regions.coordinator.operator_coordinator import OperatorCoordinator
from holdfast.regions.protocol.orders import (
    OutputPlan,
    PipelinePlan,
    StagePlan,
    TaskOptions,
    code_of,
)
from holdfast.regions.sinks.destination import Destination
from holdfast.regions.splits import FileSplits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ChosenOutput:
    """An output that the user chose; `name` of the side output, empty for the main one."""

    name: str
    schema: pa.Schema
    destination: Destination


@dataclass(frozen=True)
class Chain:
    """The source of a pipeline, its operators, first to last, and its side outputs.

    The source is None for a pipeline that is given rows. `region_by` are the columns that identify
    a row's region. Operators are encoded when the pipeline starts. `bad_rows` is the side output
    for rejected rows, if there is one. `coordinators` are by name of their operator.
    """

    source: DataFrame | FileSplits | None
    region_by: tuple[str, ...]
    operators: tuple[StagePlan, ...] = ()
    sides: tuple[ChosenOutput, ...] = ()
    bad_rows: str = ""
    coordinators: Mapping[str, OperatorCoordinator] = field(default_factory=dict)

    def plan(
        self, pipeline: str, outputs: Sequence[OutputPlan], options: TaskOptions
    ) -> PipelinePlan:
        """Return everything that tasks need."""
        independent = all(one.given.row_independent for one in self.operators)
        splits = self.source.reader() if isinstance(self.source, FileSplits) else None
        return PipelinePlan(
            pipeline=pipeline,
            run=uuid.uuid4().hex,
            region_by=self.region_by,
            stages=tuple(replace(one, operator=code_of(one.given)) for one in self.operators),
            outputs=tuple(outputs),
            bad_rows=self.bad_rows,
            options=options,
            splits=splits,
            # Rows of a split are not kept, and a replay would repeat events between other rows.
            finds_bad_rows=bool(
                independent and self.bad_rows and splits is None and not self.coordinators
            ),
        )
