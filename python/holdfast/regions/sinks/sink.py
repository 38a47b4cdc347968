"""What the checkpoint coordinator and the region tasks expect of a sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import pyarrow as pa

from holdfast._core import Staged
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.sinks.delivered import last_delivered

LOG: Final = logging.getLogger(__name__)


class Stage(Protocol):
    """Output of one region in one checkpoint attempt, written by the region's task.

    As a context manager it discards what was not closed.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. If that fails, the stage is discarded."""

    def close(self) -> Staged | None:
        """End the output. It is not durable before `TwoPhaseSink.persist`.

        Returns
        -------
        Staged or None
            What `TwoPhaseSink.commit` needs; None if there were no rows.
        """

    def discard(self) -> None:
        """Throw the rows away, closed or not. Never after they were acknowledged."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class OutputStore(Protocol):
    """Writes staged output to file systems that only the JVM of the executor reaches."""

    def stage(self, local_path: str, staged: str, target: str) -> None:
        """Make the content of a local file ready to be published, durable on return.

        Parameters
        ----------
        local_path : str
            The file.
        staged : str
            URI that says until then what was staged; no other task uses it.
        target : str
            URI that it is published under.
        """


class Publisher(Protocol):
    """The driver's half of a sink, by checkpoint."""

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged; may be repeated (R81)."""

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged and did not publish."""

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Call the function with what another pipeline staged, unless that called it.

        Parameters
        ----------
        folder : Path or HadoopPath
            Where the other pipeline staged it, see `BatchFunction`.
        checkpoint : int
            Id of the checkpoint.
        staged : iterable of Staged
            What its healthy regions staged.

        Raises
        ------
        ValueError
            If the function was not called, and there is none now.
        """


class SinkPublisher(Publisher):
    """The driver's half of a sink that tells checkpoints apart by what was staged."""

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged."""
        self._sink.commit(staged)

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged and did not publish."""
        self._sink.sweep(before_attempt)

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Refuse what was staged for a function and is still there."""
        if list(staged) and checkpoint > last_delivered(folder):
            raise ValueError(
                f"the function of the old pipeline was not called for checkpoint {checkpoint} yet, "
                "and the new one has no function: start the old pipeline once more and stop it, or "
                "give the new one the function, with foreach_batch()"
            )


class PatientPublisher(Publisher):
    """A publisher whose sweeps end no query: what storage refuses to throw away, it keeps.

    No reader sees it, and every later sweep tries again.

    Parameters
    ----------
    publisher : Publisher
        Who does it.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._warnings = SparingLog(LOG)

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged."""
        self._publisher.commit(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged, as far as storage lets it."""
        try:
            self._publisher.sweep(before_attempt)
        except OSError as error:
            self._warnings.warn(
                "sweep",
                "output that no reader sees cannot be removed yet, and the next checkpoint tries "
                f"again: {error}",
            )

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publisher.take_over`."""
        self._publisher.take_over(folder, checkpoint, staged)


class GuardedPublisher(Publisher):
    """A publisher that asks before it publishes, or throws away, whether it may.

    Parameters
    ----------
    publisher : Publisher
        Who does it.
    guard : callable
        Raises an exception if it may not.
    """

    def __init__(self, publisher: Publisher, guard: Callable[[], None]) -> None:
        self._publisher = publisher
        self._guard = guard

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged."""
        self._guard()
        self._publisher.commit(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged and did not publish."""
        self._guard()
        self._publisher.sweep(before_attempt)

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publisher.take_over`."""
        self._publisher.take_over(folder, checkpoint, staged)


class TwoPhaseSink(Protocol):
    """Output that is staged first and published once a checkpoint contains its region's state.

    `writer` and `persist` are called on workers, the rest on the driver. A sink travels to the
    workers by pickling.
    """

    @property
    def location(self) -> str:
        """Where it writes, as a text that `at` understands."""

    def at(self, location: str) -> TwoPhaseSink:
        """Return a sink of the same kind that writes elsewhere."""

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Stage:
        """Begin the output of a region in a checkpoint attempt."""

    def persist(
        self, stages: Sequence[Stage], store: OutputStore | None
    ) -> Sequence[OSError | None]:
        """Make closed stages durable, so that acknowledgements may depend on them (R3).

        Several at once, because a device takes hardly longer for them than for one.

        Parameters
        ----------
        stages : sequence of Stage
            Stages of this sink that were closed and had rows.
        store : OutputStore or None
            The way to file systems that this process does not reach; None without Spark.

        Returns
        -------
        sequence of OSError or None
            For each stage, in this order, what went wrong. Such a stage is discarded.
        """

    def commit(self, staged: Iterable[Staged]) -> None:
        """Publish what was staged: all of one region and checkpoint at once, and only once.

        Called when the metadata of the checkpoint is durable, with the output of its healthy
        regions (R80, R81). May be repeated after a crash at any moment.
        """

    def recover(self, staged: Iterable[Staged]) -> None:
        """Publish what the restored checkpoint staged, as far as it was not yet (R74, R81)."""

    def unpublished(self, staged: Iterable[Staged]) -> Sequence[str]:
        """Return what of it was not published yet, by names for people. Changes nothing."""

    def published_after(self, attempt: int) -> Sequence[str]:
        """Return what later attempts published, by names for people."""

    def withdraw(self, after_attempt: int) -> None:
        """Take back what later attempts published, because the pipeline goes back (R75).

        May be repeated.
        """

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged and did not publish.

        To be called when no task of these attempts owns its output any more (R80), and after
        what is owed of them was committed.
        """
