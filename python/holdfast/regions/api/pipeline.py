"""Building a regional pipeline: its operators, and the routes of their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from holdfast._checks import duration, not_allowed, whole_number
from holdfast.regions.api.chain import Chain, ChosenOutput
from holdfast.regions.api.destinations import Written
from holdfast.regions.api.writer import RegionalWriter
from holdfast.regions.base.callbacks import require_methods
from holdfast.regions.base.normal_form import normal_schema
from holdfast.regions.base.owners import IN_FLIGHT_OPERATOR, MAX_NAME_BYTES
from holdfast.regions.base.schemas import arrow_schema, schema_of_columns
from holdfast.regions.base.splitting import column_names, require_keys
from holdfast.regions.coordinator.event_record import record_name
from holdfast.regions.coordinator.operator_coordinator import (
    OperatorCoordinator,
)
from holdfast.regions.graph.spec import ARROW
from holdfast.regions.protocol.orders import StagePlan, instance_name
from holdfast.regions.sinks.destination import Destination
from holdfast.regions.splits import FileSplits
from holdfast.regions.task.operators import PUT_OUT, Operator
from holdfast.regions.task.watermark import MAX_DELAY_US, WATERMARK, Watermark

_SIDE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)


class RegionalPipeline(Written[RegionalWriter]):
    """A chain of operators over the rows of a stream, with checkpoints by region.

    Made by `holdfast.regional`. Every method returns a new pipeline.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def apply(
        self,
        operator: Operator,
        *,
        schema: Any,
        name: str | None = None,
        parallelism: int = 1,
        route_by: str | Sequence[str] = (),
        coordinator: OperatorCoordinator | None = None,
    ) -> RegionalPipeline:
        """Add an operator after the others.

        Parameters
        ----------
        operator : Operator
            A template: every region gets copies of its own, made before they are opened.
        schema : pyarrow.Schema, pyspark.sql.types.StructType or str
            Schema of the rows that ``process`` puts out; a str is in Spark's DDL form (``"carrier
            string, mean double"``). Rows are cast to it if no value changes: timestamps of another
            time zone, smaller integers, columns that cannot be null. Its views and run-end-encoded
            columns become plain ones.
        name : str, optional
            Name its state is kept under, unique in the pipeline and the same after every restart.
            By default the name of the class.
        parallelism : int, default 1
            Instances in each region, which share its rows by `route_by`.
        route_by : str or sequence of str
            Columns of the incoming rows; equal values go to the same instance. Required for more
            than one instance. Each instance sees its rows in the order of their arrival. After an
            operator with several instances, the rows of each of them keep that order.
        coordinator : OperatorCoordinator, optional
            Runs on the driver next to the operator, with state of its own and events in both
            directions. It serves one running pipeline at a time.

        Raises
        ------
        TypeError
            If `operator` is no `Operator`, or `coordinator` no `OperatorCoordinator`, or one of
            their methods is ``async``, or yields and does not put out rows, or the type of a column
            cannot route rows.
        ValueError
            If the name is used or not allowed, or `route_by` is missing or names missing columns.
        """
        if not isinstance(operator, Operator):
            raise TypeError(
                f"apply() takes an instance of holdfast.Operator, not {type(operator).__name__}"
            )
        if coordinator is not None and not isinstance(coordinator, OperatorCoordinator):
            raise TypeError(
                "coordinator= of apply() takes an instance of holdfast.OperatorCoordinator, not "
                f"{type(coordinator).__name__}"
            )
        require_methods(operator, Operator, yields=PUT_OUT)
        if coordinator is not None:
            require_methods(coordinator, OperatorCoordinator)
        before = self._chain.operators
        chosen = name if name is not None else type(operator).__name__
        columns = column_names(route_by, of=f"route_by of operator {chosen!r}")
        instances = whole_number(parallelism)
        if instances is None or instances < 1 or (instances > 1 and not columns):
            raise ValueError(
                f"operator {chosen!r} with parallelism={parallelism!r}: an integer of at least 1, "
                "and more than 1 needs route_by, the columns that say which instance a row goes to"
            )
        if not _may_be_named(chosen, instances) or chosen in (other.name for other in before):
            raise ValueError(
                f"an operator cannot be named {chosen!r}: names are unique in a pipeline, not "
                f"empty, not {IN_FLIGHT_OPERATOR!r}, without '#' and {ARROW!r}, and have at most "
                f"{MAX_NAME_BYTES} bytes of UTF-8; give apply(name=...)"
            )
        if columns:
            self._require_route(chosen, columns, routed=instances > 1)
        declared = normal_schema(arrow_schema(schema))
        coordinators = dict(self._chain.coordinators)
        if coordinated := coordinator is not None:
            if len(record_name(chosen).encode()) > MAX_NAME_BYTES:
                raise ValueError(
                    f"an operator with a coordinator cannot be named {chosen!r}: its name has at "
                    f"most {MAX_NAME_BYTES - len(record_name(''))} bytes of UTF-8; give "
                    "apply(name=...)"
                )
            coordinators[chosen] = coordinator
        added = StagePlan(
            chosen,
            b"",
            declared,
            instances,
            columns,
            operator,
            coordinated,
            on_retire=type(operator).on_retire is not Operator.on_retire,
            on_timers=type(operator).on_timers is not Operator.on_timers,
            has_watermark=any(one.name == WATERMARK for one in before),
        )
        operators = (*before, added)
        return RegionalPipeline(
            replace(self._chain, operators=operators, coordinators=coordinators)
        )

    def side(self, name: str, *, schema: Any) -> SideOutput:
        """Declare a side output, which takes the rows that operators give to `ctx.emit`.

        Its rows are published with the same checkpoint as the main output, each exactly once, as
        with Flink's `OutputTag`.

        Parameters
        ----------
        name : str
            Unique in the pipeline, at most 64 letters, digits, ``_`` and ``-``, a letter first.
        schema : pyarrow.Schema, pyspark.sql.types.StructType or str
            Schema of its rows, as in `apply`.

        Returns
        -------
        SideOutput
            Its ``write_...`` methods say where the rows go, and return the pipeline.

        Raises
        ------
        ValueError
            If the name is used or not allowed.

        Examples
        --------
        >>> pipeline = pipeline.side("late", schema="device string, ts timestamp").write_parquet(
        ...     "out/late"
        ... )
        """
        if not isinstance(name, str) or not _SIDE_NAME.fullmatch(name):
            raise ValueError(
                f"a side output cannot be named {name!r}: expected a letter, and up to 63 letters, "
                "digits, '_' and '-' behind it"
            )
        if name in (side.name for side in self._chain.sides):
            raise ValueError(f"the pipeline has a side output {name!r} already")
        return SideOutput(self._chain, name, normal_schema(arrow_schema(schema)))

    def on_bad_row(self, side: str) -> RegionalPipeline:
        """Let a side output take the rows that operators give to `ctx.reject`.

        Without a side output, an operator that rejects rows fails, and its region falls back.

        Parameters
        ----------
        side : str
            Name of a declared side output, with the schema of the rejected rows and one more
            column, ``reason``, of strings.

        Raises
        ------
        ValueError
            If no side output has this name, or it lacks that column.
        """
        found = self._side(side, of="on_bad_row")
        if "reason" not in found.schema.names or not pat.is_string(
            found.schema.field("reason").type
        ):
            raise ValueError(
                f"on_bad_row({side!r}): its schema needs a column 'reason' of strings, beside the "
                "columns of the rows that are rejected"
            )
        return RegionalPipeline(replace(self._chain, bad_rows=side))

    def with_watermark(
        self,
        column: str,
        delay: timedelta | str,
        *,
        late: str | None = None,
        watermark_idle: timedelta | str | None = None,
        schema: Any = None,
    ) -> RegionalPipeline:
        """Give each region a watermark, and hold back rows that are too late for it.

        The watermark of a region is the newest event time of its rows so far, minus `delay`. It is
        state of the region and needs no other region. Rows older than it are late. Spark's
        ``withWatermark`` has one watermark for all partitions instead.

        Parameters
        ----------
        column : str
            Event times of the rows: a timestamp. Rows without one are never late.
        delay : datetime.timedelta or str
            A text is a number and a unit, from ``microseconds`` to ``weeks``, or several.
        late : str, optional
            Declared side output for late rows, with the columns of the rows. By default late rows
            are dropped. The metric ``late_rows`` counts them in both cases.
        watermark_idle : datetime.timedelta or str, optional
            Regions without rows for this time run without rows, and their watermark moves by the
            time that has passed. Time counts as for ``retire_idle``, by the driver's clock from one
            checkpoint to the next. By default the watermark waits for rows.
        schema : pyarrow.Schema, pyspark.sql.types.StructType or str, optional
            Schema of the rows, as in `apply`. Needed only before the first operator of a pipeline
            that is given rows.

        Raises
        ------
        ValueError
            If the column, the side output or the schema of the rows is missing, the pipeline has a
            watermark already, or `delay` is no time.
        TypeError
            If the column is no timestamp.

        Examples
        --------
        >>> pipeline = holdfast.regional(readings, region_by="device").with_watermark(
        ...     "time", "10 minutes"
        ... )
        """
        if any(one.name == WATERMARK for one in self._chain.operators):
            raise ValueError("the pipeline has a watermark, or an operator of that name, already")
        delay_us = duration("delay", delay) // timedelta(microseconds=1)
        if delay_us > MAX_DELAY_US:
            raise not_allowed("delay", delay, "at most 53 million days, which fit 64 bits")
        idle_ms = None
        if watermark_idle is not None:
            idle_ms = duration("watermark_idle", watermark_idle) // timedelta(milliseconds=1)
            if not idle_ms:
                raise not_allowed("watermark_idle", watermark_idle, "a time of at least 1 ms")
        rows = self._rows(schema)
        if column not in rows.names:
            raise ValueError(
                f"with_watermark({column!r}): the rows have the columns {', '.join(rows.names)}"
            )
        if not pat.is_timestamp(kind := rows.field(column).type):
            raise TypeError(f"with_watermark({column!r}) needs a timestamp, and {column} is {kind}")
        if late is not None:
            there = self._side(late, of="late").schema.names
            if sorted(there) != sorted(rows.names):
                raise ValueError(
                    f"the side output {late!r} has the columns {', '.join(there)}, and late rows "
                    f"have the columns {', '.join(rows.names)}"
                )
        operator = Watermark(column, delay_us, late or "", has_zone=kind.tz is not None)
        chain = self.apply(operator, schema=rows, name=WATERMARK)._chain
        *before, added = chain.operators
        operators = (*before, replace(added, watermark_idle_ms=idle_ms))
        return RegionalPipeline(replace(chain, operators=operators))

    def _rows(self, schema: Any) -> pa.Schema:
        """Return the schema of the rows of the next operator."""
        source, before = self._chain.source, self._chain.operators
        if before:
            return before[-1].schema
        if source is not None:
            return normal_schema(arrow_schema(source.schema))
        if schema is None:
            raise ValueError("a pipeline that is given rows needs their schema: schema=...")
        return normal_schema(arrow_schema(schema))

    def _side(self, name: str, *, of: str) -> ChosenOutput:
        """Return a side output that was declared before."""
        found = next((one for one in self._chain.sides if one.name == name), None)
        if found is None:
            known = ", ".join(one.name for one in self._chain.sides) or "none"
            raise ValueError(
                f"{of}={name!r}: there is no such side output (declared: {known}); declare it "
                f"first, with .side({name!r}, schema=...)"
            )
        return found

    def start(self, *_: object, **__: object) -> NoReturn:
        """Raise a ValueError: the pipeline has no sink yet. `RegionalWriter.start` starts it."""
        raise ValueError(
            "the pipeline has no sink: call write_parquet(...), write_delta(...), write_to(...), "
            "write_kafka(...) or foreach_batch(...) first, and start() or open_local() on what "
            "that returns"
        )

    open_local = start

    def _written_to(self, destination: Destination) -> RegionalWriter:
        return RegionalWriter(self._chain, destination)

    def _require_route(self, operator: str, columns: Sequence[str], *, routed: bool) -> None:
        """Check that these columns can route the next operator's rows, if the rows are known."""
        of = f"route_by of operator {operator!r}"
        source, before = self._chain.source, self._chain.operators
        if before:
            known = before[-1].schema
            there = known.names
        elif source is None:
            return
        elif isinstance(source, FileSplits):
            known = arrow_schema(source.schema)
            there = known.names
        else:
            known = schema_of_columns(source, columns, of=of)
            there = source.columns
        if missing := [column for column in columns if column not in there]:
            raise ValueError(
                f"{of} names {', '.join(missing)}, but its rows have the columns {', '.join(there)}"
            )
        if routed:
            require_keys(known, columns, of=of)


class SideOutput(Written[RegionalPipeline]):
    """A side output, made by `RegionalPipeline.side`; its methods return the pipeline."""

    def __init__(self, chain: Chain, name: str, schema: pa.Schema) -> None:
        self._chain = chain
        self._name = name
        self._schema = schema

    def _written_to(self, destination: Destination) -> RegionalPipeline:
        side = ChosenOutput(self._name, self._schema, destination)
        return RegionalPipeline(replace(self._chain, sides=(*self._chain.sides, side)))


def _may_be_named(name: object, parallelism: int) -> bool:
    """Return whether an operator may have a name that no other owner or channel has."""
    if not isinstance(name, str) or name in ("", IN_FLIGHT_OPERATOR) or "#" in name:
        return False
    try:
        longest = instance_name(name, parallelism, parallelism - 1).encode()
    except UnicodeEncodeError:
        return False
    return ARROW not in name and len(longest) <= MAX_NAME_BYTES
