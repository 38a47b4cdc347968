"""What a pipeline writes to, as its user named it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import any_folder
from holdfast.regions.sinks.batch_function import BatchFunction
from holdfast.regions.sinks.checkpoint_id import CheckpointId
from holdfast.regions.sinks.local_owner import LocalOutputFolder
from holdfast.regions.sinks.owner import OutputFolder, Ownership
from holdfast.regions.sinks.publisher import PatientPublisher, Publisher, SinkPublisher
from holdfast.regions.sinks.remote_owner import RemoteOutputFolder
from holdfast.regions.sinks.sink import TwoPhaseSink, sink_name

#: Makes of a user's function what `BatchFunction` calls.
Delivery = Callable[[Callable[[Any, CheckpointId], None]], Callable[..., None]]


class Destination(ABC):
    """Gives a pipeline that starts both halves of its sink."""

    @abstractmethod
    def halves(
        self, folders: CheckpointFolders, delivery: Delivery
    ) -> tuple[TwoPhaseSink, Publisher]:
        """Return what travels to workers, and what stays on the driver.

        Parameters
        ----------
        folders : CheckpointFolders
            The pipeline's checkpoint folder.
        delivery : callable
            How rows are handed to a function.
        """

    def ownership(self) -> Ownership | None:
        """Return what has to be this pipeline's alone outside of its checkpoint folder."""
        return None

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
    """

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink

    def halves(
        self, folders: CheckpointFolders, delivery: Delivery
    ) -> tuple[TwoPhaseSink, Publisher]:
        """See `Destination`."""
        return self._sink, PatientPublisher(SinkPublisher(self._sink))

    def ownership(self) -> OutputFolder | None:
        """See `Destination`."""
        folder = self._sink.owned_folder
        if folder is None:
            return None
        root = any_folder(folder)
        if isinstance(root, HadoopPath):
            return RemoteOutputFolder(root, self._sink.published_after)
        return LocalOutputFolder(root, self._sink.published_after)

    @property
    def spark_only(self) -> str:
        """See `Destination`."""
        folder = self._sink.owned_folder
        remote = folder is not None and isinstance(any_folder(folder), HadoopPath)
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

    def halves(
        self, folders: CheckpointFolders, delivery: Delivery
    ) -> tuple[TwoPhaseSink, Publisher]:
        """See `Destination`."""
        function = BatchFunction(folders.output, delivery(self._function))
        return function.staging, PatientPublisher(function)
