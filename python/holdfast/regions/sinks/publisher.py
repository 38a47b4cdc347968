"""The driver's half of a sink: the checkpoint coordinator publishes staged output through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Protocol

from holdfast._core import Staged
from holdfast.files.paths import AnyPath
from holdfast.regions.base.callbacks import called
from holdfast.regions.base.errors import RegionalQueryError, SinkFailedError, Step
from holdfast.regions.base.problem import presentable
from holdfast.regions.sinks.delivered import last_delivered
from holdfast.regions.sinks.published import PublishedRecord
from holdfast.regions.sinks.sink import TwoPhaseSink, sink_name


class Publishes(Protocol):
    """Publishes staged output on the driver, checkpoint by checkpoint."""

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish the staged output of a checkpoint's healthy regions; may be repeated (R81)."""

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish the output of the restored checkpoint, as far as it was not yet (R74)."""
        self.commit(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        """Remove output that earlier attempts staged and did not publish."""


class Publisher(Publishes, Protocol):
    """The driver's half of a sink."""

    #: The publisher has its own record of its published output.
    notes_itself: ClassVar[bool] = False

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Call the function with output that another pipeline staged in `folder`.

        Does nothing if that pipeline called its own function, see `BatchFunction`. Raises a
        ValueError if it did not, and there is no function now.
        """


@contextmanager
def named(
    sink: str, step: Step, checkpoint: int, *, telling: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise errors of a sink as `SinkFailedError` with its step, except of classes in `telling`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (RegionalQueryError, *telling)):
            raise
        raise SinkFailedError(sink, step, checkpoint, error) from presentable(error)


class SinkPublisher(Publisher):
    """The driver's half of a two-phase sink."""

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publisher`."""
        if found := list(staged):
            with named(sink_name(self._sink), "commit", checkpoint):
                called(self._sink.commit, checkpoint, found)

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publisher`."""
        with named(sink_name(self._sink), "recover", checkpoint):
            called(self._sink.recover, checkpoint, list(staged))

    def sweep(self, before_attempt: int) -> None:
        """See `Publisher`."""
        called(self._sink.sweep, before_attempt)

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Refuse output that was staged for a function and is still there."""
        if list(staged) and checkpoint > last_delivered(folder):
            raise ValueError(
                f"the function of the old pipeline was not called for checkpoint {checkpoint} yet, "
                "and the new one has no function: start the old pipeline once more and stop it, or "
                "give the new one the function, with foreach_batch()"
            )


class Publishers(Publishes):
    """The driver's half of all outputs of a pipeline, by their names; the main one first.

    Ignores staged output of other names, see `checkpoint.settled_outputs`. Recorded output is the
    user's, so no sink receives it again.
    """

    def __init__(self, of: Mapping[str, Publisher], record: PublishedRecord) -> None:
        self._of = of
        self._record = record

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publishes`."""
        found = list(staged)
        for name, publisher in self._of.items():
            own = [one for one in found if one.output == name]
            publisher.commit(checkpoint, own)
            if own and not publisher.notes_itself:
                self._record.note(name, checkpoint, own)

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """See `Publishes`."""
        found = list(staged)
        for name, publisher in self._of.items():
            own = [one for one in found if one.output == name]
            recorded = bool(own) and self._record.has(name, checkpoint, own)
            publisher.recover(checkpoint, [] if recorded else own)
            if own and not (recorded or publisher.notes_itself):
                self._record.note(name, checkpoint, own)

    def sweep(self, before_attempt: int) -> None:
        """See `Publishes`. A failing sink does not stop the others."""
        with ExitStack() as each:
            for publisher in self._of.values():
                each.callback(publisher.sweep, before_attempt)
