"""The driver's half of a sink: what the checkpoint coordinator has done with staged output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from holdfast._core import Staged
from holdfast.regions.base.errors import RegionalQueryError, SinkFailedError, Step
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.sinks.delivered import last_delivered
from holdfast.regions.sinks.sink import TwoPhaseSink, sink_name

LOG: Final = logging.getLogger(__name__)


class Publisher(Protocol):
    """The driver's half of a sink, by checkpoint."""

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged; may be repeated (R81)."""

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the restored checkpoint staged, as far as it was not yet (R74)."""
        self.commit(checkpoint, staged)

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


@contextmanager
def named(
    sink: TwoPhaseSink, step: Step, checkpoint: int, *, telling: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Let errors of a sink say which one it is, what it did and for which checkpoint.

    Parameters
    ----------
    sink : TwoPhaseSink
        The sink.
    step : {"commit", "recover", "withdraw"}
        What it is asked to do.
    checkpoint : int
        The checkpoint.
    telling : tuple of classes, optional
        Errors that stay as they are.

    Raises
    ------
    SinkFailedError
        In place of the others.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (RegionalQueryError, *telling)):
            raise
        raise SinkFailedError(sink_name(sink), step, checkpoint, error) from error


class SinkPublisher(Publisher):
    """The driver's half of a sink that tells checkpoints apart by what was staged."""

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged."""
        found = list(staged)
        if not found:
            return
        with named(self._sink, "commit", checkpoint):
            self._sink.commit(checkpoint, found)

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the restored checkpoint staged, as far as it was not yet."""
        with named(self._sink, "recover", checkpoint):
            self._sink.recover(checkpoint, list(staged))

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

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the restored checkpoint staged, as far as it was not yet."""
        self._publisher.recover(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged, as far as storage lets it."""
        try:
            self._publisher.sweep(before_attempt)
        except Exception as error:
            self._warnings.warn(
                "sweep",
                "output that no reader sees cannot be removed yet, and the next checkpoint tries "
                f"again: {type(error).__name__}: {error}",
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

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish what the restored checkpoint staged, as far as it was not yet."""
        self._guard()
        self._publisher.recover(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        """Throw away what earlier attempts staged and did not publish."""
        self._guard()
        self._publisher.sweep(before_attempt)

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publisher.take_over`."""
        self._publisher.take_over(folder, checkpoint, staged)
