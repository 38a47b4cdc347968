"""What a pipeline writes to, as its user named it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import any_folder, owned_folder, spark_name
from holdfast.regions.sinks.batch_function import BatchFunction
from holdfast.regions.sinks.checkpoint_id import CheckpointId
from holdfast.regions.sinks.local_owner import LocalOutputFolder
from holdfast.regions.sinks.owner import OutputFolder, Ownership
from holdfast.regions.sinks.publisher import PatientPublisher, Publisher, SinkPublisher
from holdfast.regions.sinks.remote_owner import RemoteOutputFolder
from holdfast.regions.sinks.sink import TwoPhaseSink, sink_name

if TYPE_CHECKING:
    import pyarrow as pa

#: Makes of a user's function what `BatchFunction` calls.
Delivery = Callable[[Callable[[Any, CheckpointId], None]], Callable[..., None]]


@dataclass(frozen=True)
class Output:
    """What a pipeline that starts writes to.

    Parameters
    ----------
    sink : TwoPhaseSink
        The half that travels to workers.
    publisher : Publisher
        The half that stays on the driver.
    ownership : Ownership or None
        What has to be this pipeline's alone outside of its checkpoint folder.
    """

    sink: TwoPhaseSink
    publisher: Publisher
    ownership: Ownership | None


class Destination(ABC):
    """Gives a pipeline that starts its sink. One may be started several times, also at once."""

    @abstractmethod
    def begin(self, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack) -> Output:
        """Return the sink for a start of the pipeline.

        Parameters
        ----------
        folders : CheckpointFolders
            The pipeline's checkpoint folder.
        delivery : callable
            How rows are handed to a function.
        opened : ExitStack
            Takes what is to be closed when the pipeline ends.
        """

    def require_fit(self, schema: pa.Schema) -> None:  # noqa: B027 - most take any columns
        """Check that rows of a schema can be written there.

        Raises
        ------
        ValueError
            If they cannot.
        """

    def require_place(self) -> None:  # noqa: B027 - most are told of one place only
        """Check that Spark takes the user's words for the place that they were taken for before.

        Raises
        ------
        ValueError
            If it does not.
        """

    @property
    def spark_only(self) -> str:
        """Name of what only Spark reaches; empty if this process writes there."""
        return ""

    @property
    def stays(self) -> str:
        """What cannot be taken back when a pipeline goes back, for people; empty if all can."""
        return ""


class SinkDestination(Destination):
    """A two-phase sink.

    Parameters
    ----------
    sink : TwoPhaseSink
        The sink.
    named : str or path-like, optional
        Its folder, as the user named it.
    """

    def __init__(self, sink: TwoPhaseSink, *, named: str | os.PathLike[str] | None = None) -> None:
        self._sink = sink
        self._named = named

    def begin(self, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack) -> Output:
        """See `Destination`."""
        publisher = PatientPublisher(SinkPublisher(self._sink))
        return Output(self._sink, publisher, self._folder())

    def require_place(self) -> None:
        """See `Destination`. There may have been no Spark session before."""
        owned = self._sink.owned_folder
        if self._named is None or owned is None:
            return
        now, before = any_folder(self._named), owned_folder(owned)
        if now != before:
            raise ValueError(
                f"the output folder {str(self._named)!r} is {now} for Spark, whose default file "
                f"system that is, but there was no session yet when it was taken for {before}: "
                f"name it {str(now)!r} or {spark_name(before)!r}"
            )

    def _folder(self) -> OutputFolder | None:
        folder = self._sink.owned_folder
        if folder is None:
            return None
        root = owned_folder(folder)
        if isinstance(root, HadoopPath):
            return RemoteOutputFolder(root, self._sink.published_after)
        return LocalOutputFolder(root, self._sink.published_after)

    @property
    def spark_only(self) -> str:
        """See `Destination`."""
        folder = self._sink.owned_folder
        remote = folder is not None and isinstance(owned_folder(folder), HadoopPath)
        return sink_name(self._sink) if remote else ""

    @property
    def stays(self) -> str:
        """See `Destination`."""
        return "" if self._sink.can_withdraw else f"what {sink_name(self._sink)} has committed"


class FunctionDestination(Destination):
    """A function on the driver, see `BatchFunction`.

    Parameters
    ----------
    function : callable
        Takes rows and the id of a checkpoint.
    """

    def __init__(self, function: Callable[[Any, CheckpointId], None]) -> None:
        self._function = function

    def begin(self, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack) -> Output:
        """See `Destination`."""
        function = BatchFunction(folders.output, delivery(self._function))
        return Output(function.staging, PatientPublisher(function), None)
