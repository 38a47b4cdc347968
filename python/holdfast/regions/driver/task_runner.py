"""The interface through which a pipeline's driver runs tasks."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from holdfast._core import CheckpointMetadata
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder


class TasksLostError(RuntimeError):
    """Tasks of an attempt ended, or were ended, without an answer for all of their regions.

    `partition` is that of the task to blame, if known. Others may have been ended along with it.
    """

    def __init__(self, cause: str, *, partition: int | None = None) -> None:
        super().__init__(cause)
        self.partition = partition


class TaskRunner(Protocol):
    """Runs region tasks somewhere, and reaches the managers there."""

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[answers.Answer, None, None]:
        """Run the tasks of an attempt; yields answers while they run. Closing it ends the tasks.

        `source` has the rows of the batch, in the runner's own form; None: there are none. Regions
        of `owed` run without rows of this batch. If some task comes to no end of its own, a
        TasksLostError follows the last answer.
        """

    def close_operators(self, order: ClosingOrder) -> None:
        """Notify the operators that are kept between attempts, and close them; best effort."""

    def tell_managers(self, message: NotifyManagers) -> None:
        """Pass a message on to every manager; best effort."""

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Begin with these checkpoints, and delete files that none of them needs."""

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Delete files of managers that are gone, if no checkpoint needs them; best effort.

        Called with all retained checkpoints while no attempt is under way.
        """

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        """Show figures since the start to monitoring, dots between levels of names; best effort."""

    def show_attempt(self, record: HistoryRecord) -> None:
        """Show the end of an attempt to those who watch the pipeline; best effort."""

    def close(self) -> None:
        """Release resources of the runner."""
