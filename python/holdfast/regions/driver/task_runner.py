"""What runs the tasks of a pipeline, as its driver sees it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from holdfast._core import CheckpointMetadata
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder


class TasksLostError(RuntimeError):
    """Tasks of an attempt ended, or were ended, without an answer for all of their regions.

    Parameters
    ----------
    cause : str
        Why.
    partition : int, optional
        Partition of the task that was to blame, if one was and it is known. Others may have been
        ended along with it.
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

        Parameters
        ----------
        order : AttemptOrder
            What every task does.
        source : object or None
            Rows of the batch, in the runner's own form; None: there are none.
        owed : sequence of str
            Regions to run without rows of this batch.

        Raises
        ------
        TasksLostError
            After the last answer, if some task came to no end of its own.
        """

    def close_operators(self, order: ClosingOrder) -> None:
        """Notify the operators that are kept between attempts, and close them; best effort."""

    def tell_managers(self, message: NotifyManagers) -> None:
        """Pass a message on to every manager; best effort."""

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Begin with these checkpoints, and delete files that none of them needs."""

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Delete files of managers that are gone, if no checkpoint needs them; best effort.

        Parameters
        ----------
        retained : sequence of CheckpointMetadata
            All retained checkpoints. No attempt is under way.
        """

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        """Hand what a pipeline did since its start to those who monitor it; best effort.

        Parameters
        ----------
        sums : mapping of str to int or float
            The figures, by names that dots divide into levels.
        """

    def show_attempt(self, record: HistoryRecord) -> None:
        """Hand the end of an attempt to those who watch the pipeline; best effort."""

    def close(self) -> None:
        """Let go of what the runner holds."""
