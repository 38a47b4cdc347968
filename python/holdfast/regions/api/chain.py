"""The source of a pipeline and its operators, as its user put them together."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.regions.protocol.orders import PipelinePlan, StagePlan, TaskOptions, code_of
from holdfast.regions.sinks import TwoPhaseSink
from holdfast.regions.splits import FileSplits
from holdfast.regions.task.operators import Operator

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ChainedOperator:
    """An operator in a pipeline, see `RegionalPipeline.apply`."""

    operator: Operator
    schema: pa.Schema
    name: str
    parallelism: int
    route_by: tuple[str, ...]


@dataclass(frozen=True)
class Chain:
    """What a pipeline reads, and the operators behind it.

    Parameters
    ----------
    source : pyspark.sql.DataFrame, FileSplits or None
        What it reads; None for a pipeline that is given rows.
    region_by : tuple of str
        Columns that identify a row's region.
    operators : tuple of ChainedOperator
        First to last.
    """

    source: DataFrame | FileSplits | None
    region_by: tuple[str, ...]
    operators: tuple[ChainedOperator, ...] = ()

    @property
    def unsafe_operators(self) -> list[str]:
        """Operators that do not declare `region_safe`."""
        return [stage.name for stage in self.operators if not stage.operator.region_safe]

    def plan(self, pipeline: str, sink: TwoPhaseSink, options: TaskOptions) -> PipelinePlan:
        """Put everything together that tasks need."""
        stages = tuple(
            StagePlan(
                stage.name,
                code_of(stage.operator),
                stage.schema,
                stage.parallelism,
                stage.route_by,
            )
            for stage in self.operators
        )
        return PipelinePlan(
            pipeline=pipeline,
            run=uuid.uuid4().hex,
            region_by=self.region_by,
            stages=stages,
            sink=sink,
            options=options,
            splits=self.source.reader() if isinstance(self.source, FileSplits) else None,
        )
