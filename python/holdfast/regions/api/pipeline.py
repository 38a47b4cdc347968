"""Building a regional pipeline: its operators, and the routes of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from holdfast._checks import whole_number
from holdfast.regions.api.chain import Chain
from holdfast.regions.api.writer import RegionalWriter
from holdfast.regions.base.normal_form import normal_schema
from holdfast.regions.base.owners import IN_FLIGHT_OPERATOR, MAX_NAME_BYTES
from holdfast.regions.base.schemas import arrow_schema, schema_of_columns
from holdfast.regions.base.splitting import column_names, require_keys
from holdfast.regions.graph.spec import ARROW
from holdfast.regions.protocol.orders import StagePlan, instance_name
from holdfast.regions.sinks import (
    DEFAULT_COMPRESSION,
    CheckpointId,
    Compression,
    ParquetSink,
    TwoPhaseSink,
)
from holdfast.regions.sinks.delta import DeltaSink, require_deltalake
from holdfast.regions.sinks.destination import FunctionDestination, SinkDestination
from holdfast.regions.sinks.kafka import KafkaDestination
from holdfast.regions.sinks.kafka_options import Unsettled, require_settings
from holdfast.regions.sinks.kafka_records import RecordColumns
from holdfast.regions.splits import FileSplits
from holdfast.regions.task.operators import Operator


class RegionalPipeline:
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
    ) -> RegionalPipeline:
        """Add an operator behind the others.

        Parameters
        ----------
        operator : Operator
            A template: every region gets instances of its own, made by copying it before it is
            opened.
        schema : pyarrow.Schema, pyspark.sql.types.StructType or str
            Schema of the rows that ``process`` puts out; a str is in Spark's DDL form (``"carrier
            string, mean double"``). Rows are cast to it if no value changes by that: timestamps of
            another time zone, smaller integers, columns that cannot be null. Views and
            run-end-encoded columns of it become plain ones.
        name : str, optional
            Name its state is kept under, unique in the pipeline and the same after every restart.
            By default the name of the class.
        parallelism : int, default 1
            Instances in each region, which share its rows by `route_by`.
        route_by : str or sequence of str
            Columns of the incoming rows; equal values go to the same instance. Required for more
            than one instance. Each instance sees its rows in the order in which they arrive. Behind
            an operator with several instances, the rows of each of them keep that order.

        Raises
        ------
        TypeError
            If `operator` is no `Operator`, or rows cannot go by a column because of its type.
        ValueError
            If the name is taken or not allowed, or the parallelism has no columns to go by, or they
            are not there.
        """
        if not isinstance(operator, Operator):
            raise TypeError(
                f"apply() takes an instance of holdfast.Operator, not {type(operator).__name__}"
            )
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
        added = StagePlan(chosen, b"", declared, instances, columns, operator)
        return RegionalPipeline(replace(self._chain, operators=(*before, added)))

    def start(self, *_: object, **__: object) -> NoReturn:
        """Raise an error: the pipeline has no sink yet, and `RegionalWriter.start` starts it.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            "the pipeline has no sink: call write_parquet(...), write_delta(...), write_to(...), "
            "write_kafka(...) or foreach_batch(...) first, and start() or open_local() on what "
            "that returns"
        )

    open_local = start

    def _require_route(self, operator: str, columns: Sequence[str], *, routed: bool) -> None:
        """Check that the next operator's rows can go by these columns, if the rows are known."""
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
        _require_columns(of, columns, there)
        if routed:
            require_keys(known, columns, of=of)

    def write_parquet(
        self, path: str | Path, *, compression: Compression = DEFAULT_COMPRESSION
    ) -> RegionalWriter:
        """Write the last operator's rows as Parquet files, each row exactly once.

        Parameters
        ----------
        path : str or Path
            Output folder. Readers never see rows of an unfinished checkpoint. A `Path` is mounted
            on driver and executors; a string is a URI, or a path of Spark's default file system.
        compression : str, default "zstd"
            Codec, as in ``pyarrow.parquet.write_table``.

        Notes
        -----
        The start refuses columns that Spark or PyArrow would read as another type, such as
        ``timestamp[ns]`` and durations; see "Types in Parquet files" in docs/regional/sinks.md.
        """
        sink = ParquetSink(path, compression=compression)
        return RegionalWriter(self._chain, SinkDestination(sink, named=path))

    def write_delta(
        self, path: str | Path, *, compression: Compression = DEFAULT_COMPRESSION
    ) -> RegionalWriter:
        """Append the last operator's rows to a Delta table, each row exactly once.

        Workers write the files. The driver adds the files of a checkpoint in one entry of the
        table's log, together with the id of the checkpoint. The first rows create the table. Runs
        on every Spark, because it does not use Delta's connector. Needs deltalake on the driver
        (the extra ``delta``).

        Parameters
        ----------
        path : str or Path
            Folder of the table, on a file system that is mounted on driver and executors. One
            pipeline at a time appends to it with this; others may write to it by other means.
        compression : str, default "zstd"
            Codec, as in ``pyarrow.parquet.write_table``.

        Raises
        ------
        ImportError
            If deltalake is not installed.
        ValueError
            If only Spark reaches the folder. The start checks that rows fit the table.
        """
        require_deltalake()
        sink = DeltaSink(path, compression=compression)
        return RegionalWriter(self._chain, SinkDestination(sink))

    def write_to(self, sink: TwoPhaseSink) -> RegionalWriter:
        """Write the last operator's rows to a two-phase sink, such as one of your own.

        Parameters
        ----------
        sink : TwoPhaseSink
            Stages rows on workers and commits them on the driver, checkpoint by checkpoint.
            `holdfast.TwoPhaseSink` says how each row reaches it exactly once. The sink travels to
            the workers by pickling.

        Raises
        ------
        TypeError
            If it is no `TwoPhaseSink`.
        """
        if not isinstance(sink, TwoPhaseSink):
            raise TypeError(
                f"write_to() takes an instance of holdfast.TwoPhaseSink, not {type(sink).__name__}"
            )
        return RegionalWriter(self._chain, SinkDestination(sink))

    def write_kafka(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        transactional_id: str,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        options: Mapping[str, Any] | None = None,
        unsettled: Unsettled = "fail",
    ) -> RegionalWriter:
        """Write the last operator's rows to a topic of Kafka, each row exactly once.

        The driver writes the rows of a checkpoint in one transaction, so a consumer with
        ``isolation.level=read_committed`` sees all of them or none, and each once. The transaction
        has a marker, too: an offset of the consumer group ``holdfast-<transactional_id>``, which a
        start reads after a crash. Needs confluent-kafka on the driver (the extra ``kafka``).

        Parameters
        ----------
        topic : str
            An existing topic.
        bootstrap_servers : str
            Brokers to ask first: ``host:port``, separated by commas.
        transactional_id : str
            Identity of this pipeline for the brokers, the same after every restart. A second
            pipeline with it is refused; of two starts of this pipeline, the later fences the
            earlier.
        value : str, default "value"
            Column of the values: binary or string. A null is a tombstone.
        key : str, optional
            Column of the keys: binary or string. Rows with equal keys go to the same partition, as
            from Java's producers, and keep the order of their region.
        headers : str, optional
            Column of the headers: ``array<struct<key: string, value: binary>>``.
        partition : str, optional
            Column of the partitions: int. A null lets the key decide.
        options : mapping of str to Any, optional
            Settings of librdkafka for security, compression, sizes and timeouts, such as
            ``{"security.protocol": "SASL_SSL", "compression.type": "zstd"}``. They stay in the
            driver's process: no checkpoint, log or task has them. ``transaction.timeout.ms`` is 5
            minutes unless it is given: the transaction of a checkpoint has to end within it.
        unsettled : {"fail", "again", "skip"}, default "fail"
            How a start treats a checkpoint if nothing says whether it was committed: the
            transactional id is another one than before, or its marker has expired.

        Raises
        ------
        ImportError
            If confluent-kafka is not installed.
        ValueError
            If an argument is not allowed. Columns and the topic are checked at the start.
        """
        columns = RecordColumns(value, key=key, headers=headers, partition=partition)
        given = {name: _of_python(value) for name, value in (options or {}).items()}
        settings = {**given, "bootstrap.servers": bootstrap_servers}
        require_settings(topic, transactional_id, given, bootstrap_servers, unsettled)
        destination = KafkaDestination(topic, transactional_id, columns, settings, unsettled)
        return RegionalWriter(self._chain, destination)

    def foreach_batch(self, function: Callable[[Any, CheckpointId], None]) -> RegionalWriter:
        """Hand the last operator's rows to a function on the driver, checkpoint by checkpoint.

        Parameters
        ----------
        function : callable
            Takes the rows that a completed checkpoint publishes, as a DataFrame (as a
            ``pyarrow.Table`` without Spark), and the checkpoint's id, an ``int`` that also has
            ``batch_id`` and ``pipeline_id``, see `CheckpointId`. The DataFrame can be read until
            the function returns.

        Notes
        -----
        The function is called at least once for every completed checkpoint with rows, one call at
        a time, in the order of ids. It is called again with the same id and the same rows if the
        process ends before it noted the function's return. An exception of the function ends the
        query; the next start calls it again. So every row has its effect once if the function
        ignores calls with ``(pipeline_id, checkpoint)`` that it has seen before.

        After ``start(checkpoint_id=...)`` or ``start(restore=...)`` the rows since that checkpoint
        come again, under new ids; a warning names checkpoints whose rows the function has had.
        """
        return RegionalWriter(self._chain, FunctionDestination(function))


def _may_be_named(name: object, parallelism: int) -> bool:
    """Return whether an operator may have a name: no other owner or channel may have it."""
    if not isinstance(name, str) or name in ("", IN_FLIGHT_OPERATOR) or "#" in name:
        return False
    try:
        longest = instance_name(name, parallelism, parallelism - 1).encode()
    except UnicodeEncodeError:
        return False
    return ARROW not in name and len(longest) <= MAX_NAME_BYTES


def _require_columns(of: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Check that rows have the columns that they are routed by."""
    missing = [column for column in wanted if column not in there]
    if missing:
        raise ValueError(
            f"{of} names {', '.join(missing)}, but its rows have the columns {', '.join(there)}"
        )


def _of_python(value: Any) -> Any:
    """Return a number of NumPy as one of Python, as clients in C demand."""
    return value.item() if type(value).__module__ == "numpy" else value
