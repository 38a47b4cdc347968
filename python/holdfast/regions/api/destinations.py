"""The ways to write rows of a pipeline's last operator, or of a side output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.regions.base.callbacks import require_function, require_methods
from holdfast.regions.sinks import (
    DEFAULT_COMPRESSION,
    DEFAULT_TARGET_FILE_BYTES,
    CheckpointId,
    Compression,
    ParquetSink,
    TwoPhaseSink,
)
from holdfast.regions.sinks.delta import DeltaSink, require_deltalake
from holdfast.regions.sinks.destination import Destination, FunctionDestination, SinkDestination
from holdfast.regions.sinks.kafka import KafkaDestination
from holdfast.regions.sinks.kafka_options import Unsettled, checked_settings
from holdfast.regions.sinks.kafka_records import RecordColumns

T = TypeVar("T")


class Written(ABC, Generic[T]):
    """Rows to write; methods return a `RegionalWriter` for the main output, else the pipeline."""

    @abstractmethod
    def _written_to(self, destination: Destination) -> T:
        """Return the pipeline with this destination."""

    def write_parquet(
        self,
        path: str | Path,
        *,
        compression: Compression = DEFAULT_COMPRESSION,
        per_region: bool = False,
        target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    ) -> T:
        """Write the rows as Parquet files, each row exactly once.

        Parameters
        ----------
        path : str or Path
            Output folder. Readers never see rows of an unfinished checkpoint. A `Path` is mounted
            on driver and executors; a string is a URI, or a path of Spark's default file system.
        compression : str, default "zstd"
            Codec, as in ``pyarrow.parquet.write_table``.
        per_region : bool, default False
            Each region writes a file of its own in each checkpoint. By default, the regions of a
            task write into one file. A region with more than 32 MiB of rows always has its own.
        target_file_bytes : int, default 128 MiB
            Bytes of rows, in Arrow's memory, after which a task begins another file. Compressed
            files are smaller.

        Notes
        -----
        The start refuses columns that Spark or PyArrow would read as another type, such as
        ``timestamp[ns]`` and durations; see "Types in Parquet files" in docs/regional/sinks.md.
        """
        sink = ParquetSink(
            path,
            compression=compression,
            per_region=per_region,
            target_file_bytes=target_file_bytes,
        )
        return self._written_to(SinkDestination(sink, named=path))

    def write_delta(
        self,
        path: str | Path,
        *,
        compression: Compression = DEFAULT_COMPRESSION,
        per_region: bool = False,
        target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    ) -> T:
        """Append the rows to a Delta table, each row exactly once.

        Workers write the files. The driver adds the files of a checkpoint in one entry of the
        table's log, with the id of the checkpoint. The first rows create the table. It runs on
        every Spark without Delta's connector, and needs deltalake on the driver (the extra
        ``delta``).

        Parameters
        ----------
        path : str or Path
            Folder of the table, on a file system that is mounted on driver and executors. One
            pipeline at a time appends to it with this; others may write by other means.
        compression : str, default "zstd"
            Codec, as in ``pyarrow.parquet.write_table``.
        per_region : bool, default False
            Each region writes a file of its own in each checkpoint, see `write_parquet`.
        target_file_bytes : int, default 128 MiB
            Bytes of rows after which a task begins another file, see `write_parquet`.

        Raises
        ------
        ImportError
            If deltalake is not installed.
        ValueError
            If only Spark reaches the folder. The start checks that rows fit the table.
        """
        require_deltalake()
        sink = DeltaSink(
            path,
            compression=compression,
            per_region=per_region,
            target_file_bytes=target_file_bytes,
        )
        return self._written_to(SinkDestination(sink))

    def write_to(self, sink: TwoPhaseSink) -> T:
        """Write the rows to a two-phase sink, such as one of your own.

        Parameters
        ----------
        sink : TwoPhaseSink
            Stages rows on workers and commits them on the driver, checkpoint by checkpoint, each
            row exactly once: see `holdfast.TwoPhaseSink`. It is pickled for the workers.

        Raises
        ------
        TypeError
            If it is no `TwoPhaseSink`, or one of its methods but `TwoPhaseSink.persist` yields, or
            one is ``async``.
        """
        if not isinstance(sink, TwoPhaseSink):
            raise TypeError(
                f"write_to() takes an instance of holdfast.TwoPhaseSink, not {type(sink).__name__}"
            )
        require_methods(sink, TwoPhaseSink, yields=("persist",))
        return self._written_to(SinkDestination(sink))

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
    ) -> T:
        """Write the rows to a topic of Kafka, each row exactly once.

        The driver writes the rows of a checkpoint in one transaction, so a consumer with
        ``isolation.level=read_committed`` sees all of them or none, and each once. A marker in the
        transaction, an offset of the consumer group ``holdfast-<transactional_id>``, is read by a
        start after a crash. Needs confluent-kafka on the driver (the extra ``kafka``).

        Parameters
        ----------
        topic : str
            An existing topic.
        bootstrap_servers : str
            Brokers to ask first: ``host:port``, separated by commas.
        transactional_id : str
            Identity of this pipeline for the brokers, the same after every restart. A second
            pipeline with it is refused; a later start of this pipeline fences an earlier one.
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
            ``{"security.protocol": "SASL_SSL", "compression.type": "zstd"}``. Only the driver's
            process has them: no checkpoint, log or task. ``transaction.timeout.ms``, the limit for
            the transaction of a checkpoint, is 5 minutes by default.
        unsettled : {"fail", "again", "skip"}, default "fail"
            How a start treats a checkpoint whose commit is unknown, because the transactional id
            has changed or its marker has expired.

        Raises
        ------
        ImportError
            If confluent-kafka is not installed.
        ValueError
            If an argument is not allowed. Columns and the topic are checked at the start.
        """
        columns = RecordColumns(value, key=key, headers=headers, partition=partition)
        settings = checked_settings(topic, transactional_id, options, bootstrap_servers, unsettled)
        destination = KafkaDestination(topic, transactional_id, columns, settings, unsettled)
        return self._written_to(destination)

    def foreach_batch(self, function: Callable[[Any, CheckpointId], None]) -> T:
        """Hand the rows to a function on the driver, checkpoint by checkpoint.

        Parameters
        ----------
        function : callable
            Takes the rows that a completed checkpoint publishes, as a DataFrame (without Spark as a
            ``pyarrow.Table``), and the checkpoint's id, an ``int`` with ``batch_id`` and
            ``pipeline_id``, see `CheckpointId`. The DataFrame can be read until the function
            returns. It returns None.

        Raises
        ------
        TypeError
            If the function yields or is ``async``: a call would do nothing.

        Notes
        -----
        The function is called at least once for every completed checkpoint with rows, one call at a
        time, in the order of ids. It is called again with the same id and rows if the process ends
        before it noted the return. An exception of the function ends the query; the next start
        calls it again. Every row has its effect once if the function ignores calls with a
        ``(pipeline_id, checkpoint)`` that it has seen.

        After ``start(checkpoint_id=...)`` or ``start(restore=...)`` the rows since that checkpoint
        have new ids; a warning names checkpoints whose rows the function has had.
        """
        require_function(function, f"foreach_batch: {getattr(function, '__qualname__', function)}")
        return self._written_to(FunctionDestination(function))
