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

    `partition` has the task to blame, if known. Others may have been ended with it.
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

        `source` has the rows of the batch, if any, in the runner's form. Regions in `owed` run
        without rows of this batch. If a task does not end by itself, a TasksLostError follows the
        last answer.
        """

    def close_operators(self, order: ClosingOrder) -> None:
        """Notify the operators that are kept between attempts, and close them; best effort."""

    def tell_managers(self, message: NotifyManagers) -> None:
        """Pass a message on to every manager; best effort."""

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Begin with these checkpoints, and delete files that none of them needs."""

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Delete lost managers' files that no checkpoint (`retained`: all) needs; best effort."""

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        """Show figures since the start to monitoring; dots separate levels. Best effort."""

    def show_attempt(self, record: HistoryRecord) -> None:
        """Show the end of an attempt to users who watch the pipeline; best effort."""

    def close(self) -> None:
        """Release resources of the runner."""
