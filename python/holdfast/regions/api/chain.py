"""The source of a pipeline and its operators, as its user put them together."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.regions.protocol.orders import PipelinePlan, StagePlan, TaskOptions, code_of
from holdfast.regions.sinks import TwoPhaseSink
from holdfast.regions.splits import FileSplits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Chain:
    """The source of a pipeline, and the operators behind it, first to last.

    The source is None for a pipeline that is given rows. `region_by` are the columns that identify
    a row's region. Operators are encoded when the pipeline starts.
    """

    source: DataFrame | FileSplits | None
    region_by: tuple[str, ...]
    operators: tuple[StagePlan, ...] = ()

    def plan(self, pipeline: str, sink: TwoPhaseSink, options: TaskOptions) -> PipelinePlan:
        """Return everything that tasks need."""
        return PipelinePlan(
            pipeline=pipeline,
            run=uuid.uuid4().hex,
            region_by=self.region_by,
            stages=tuple(replace(one, operator=code_of(one.given)) for one in self.operators),
            sink=sink,
            options=options,
            splits=self.source.reader() if isinstance(self.source, FileSplits) else None,
        )
