"""The destination of a pipeline, as its user named it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.files.paths import any_folder, owned_folder
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks.batch_function import BatchFunction
from holdfast.regions.sinks.checkpoint_id import CheckpointId
from holdfast.regions.sinks.owner import OutputFolder, Ownership
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.publisher import Publisher, SinkPublisher
from holdfast.regions.sinks.readable import require_readable
from holdfast.regions.sinks.sink import TwoPhaseSink, sink_name

if TYPE_CHECKING:
    import pyarrow as pa

#: Turns a user's function into the callable for `BatchFunction`.
Delivery = Callable[[Callable[[Any, CheckpointId], None]], Callable[..., None]]


@dataclass(frozen=True)
class Output:
    """The sink of a pipeline that starts; `name` is empty for the main output.

    Workers get the sink; the driver keeps the publisher. The ownership is of a place outside of the
    checkpoint folder that only this pipeline may use.
    """

    name: str
    sink: TwoPhaseSink
    publisher: Publisher
    ownership: Ownership | None


class Destination(ABC):
    """Gives each start of a pipeline its sink. Starts may be concurrent."""

    @abstractmethod
    def begin(
        self, name: str, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack
    ) -> Output:
        """Return the sink of the output `name` for a start of the pipeline."""

    def require_fit(self, schema: pa.Schema) -> None:  # noqa: B027 - most take any columns
        """Check that rows of a schema can be written there."""

    def require_place(self) -> None:  # noqa: B027 - most are told of one place only
        """Check that Spark still understands the user's path in the same way."""

    @property
    def place(self) -> str:
        """The place, which only one output of a pipeline may use; empty if no other output can."""
        return ""

    @property
    def spark_only(self) -> str:
        """Name of a place that only Spark reaches; empty if this process writes there."""
        return ""

    @property
    def stays(self) -> str:
        """Output that remains when a pipeline goes back, for people; empty if none does."""
        return ""


@dataclass(frozen=True)
class SinkDestination(Destination):
    """A two-phase sink; `named` is its folder, as the user named it."""

    sink: TwoPhaseSink
    named: str | os.PathLike[str] | None = None

    def begin(
        self, name: str, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack
    ) -> Output:
        """See `Destination`."""
        folder, ownership = self.sink.owned_folder, None
        if folder is not None:
            ownership = OutputFolder(owned_folder(folder), self.sink.published_after)
        return Output(name, self.sink, SinkPublisher(self.sink), ownership)

    def require_fit(self, schema: pa.Schema) -> None:
        """See `Destination`. A sink of the user's own takes any columns."""
        if isinstance(self.sink, ParquetSink):
            self.sink.require_fit(schema)

    def require_place(self) -> None:
        """See `Destination`. Without a Spark session, a path may have been read differently."""
        owned = self.sink.owned_folder
        if self.named is None or owned is None:
            return
        now, before = any_folder(self.named), owned_folder(owned)
        if now != before:
            raise ValueError(
                f"the output folder {str(self.named)!r} is {now} for Spark, whose default file "
                f"system that is, but there was no session yet when it was taken for {before}: "
                f"name it {str(now)!r} or {before.spark_name!r}"
            )

    @property
    def place(self) -> str:
        """See `Destination`."""
        return self.sink.location

    @property
    def spark_only(self) -> str:
        """See `Destination`."""
        folder = self.sink.owned_folder
        is_mounted = folder is None or owned_folder(folder).local is not None
        return "" if is_mounted else sink_name(self.sink)

    @property
    def stays(self) -> str:
        """See `Destination`."""
        return "" if self.sink.can_withdraw else f"what {sink_name(self.sink)} has committed"


@dataclass(frozen=True)
class FunctionDestination(Destination):
    """A function on the driver, see `BatchFunction`."""

    function: Callable[[Any, CheckpointId], None]

    def begin(
        self, name: str, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack
    ) -> Output:
        """See `Destination`."""
        function = BatchFunction(folders.output(name), delivery(self.function))
        return Output(name, function.staging, function, None)

    def require_fit(self, schema: pa.Schema) -> None:
        """See `Destination`. The function's rows come from Parquet files."""
        require_readable(schema, by="foreach_batch")
