"""Errors of regional pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, Literal, ParamSpec, TypeVar

from holdfast.regions.base.problem import in_words

#: Bound on the regions that a message names.
_SHOWN_REGIONS: Final = 5

#: The driver's calls of a sink.
Step = Literal["commit", "recover", "withdraw"]

P = ParamSpec("P")
T = TypeVar("T")


class RegionalQueryError(RuntimeError):
    """A regional pipeline ended by an error.

    Completed checkpoints are intact. The next start continues from the latest one.
    """


class OperatorFailedError(RegionalQueryError):
    """An operator, a source or a sink raised an exception in a region, and the pipeline ended.

    The message begins and ends with operator, region, checkpoint, place and the exception. The
    cause, ``e.__cause__``, has the class and ``args`` of that exception, its attributes that are
    numbers, strings or lists of these, and the trace in a note. It is a RuntimeError if the driver
    has not imported the class, or cannot make an instance of it.
    """

    def __repr__(self) -> str:
        # A literal would escape quotes.
        return f"<{type(self).__name__}: {self}>"


class SinkFailedError(RegionalQueryError):
    """A sink could not commit a completed checkpoint; the cause is the exception that it raised."""

    def __init__(
        self, sink: str, step: Step, checkpoint: int, cause: Exception, regions: Sequence[str] = ()
    ) -> None:
        self._made_of = (sink, step, checkpoint, cause)
        shown = ", ".join(map(repr, regions[:_SHOWN_REGIONS]))
        more = f" and {len(regions) - _SHOWN_REGIONS} more" if len(regions) > _SHOWN_REGIONS else ""
        of = f", which has output of region {shown}{more}" if regions else ""
        if step == "withdraw":
            what = f"withdraw what was committed after checkpoint {checkpoint}"
            then = "Nothing of that is lost: start the pipeline again, which goes on going back"
        else:
            what = f"{step} checkpoint {checkpoint}{of}"
            then = (
                "The checkpoint is complete, and nothing says that this output is published. If "
                "somebody has taken published output away, put it back and start the pipeline "
                "again, and take it then. If it is lost, go back to an older checkpoint with "
                "checkpoint_id=, and the rows since then come again"
                if isinstance(cause, FileNotFoundError)
                else "The checkpoint is complete and its output is kept: start the pipeline again, "
                "and it is committed first"
            )
        super().__init__(f"sink {sink} could not {what}: {in_words(cause)}. {then}")

    def of_regions(self, regions: Sequence[str]) -> SinkFailedError:
        """Return the same error with these regions."""
        return SinkFailedError(*self._made_of, regions)


class SinkFencedError(RegionalQueryError):
    """Another producer has begun with the transactional id of this pipeline."""

    def __init__(self, transactional_id: str, topic: str) -> None:
        super().__init__(
            f"another pipeline, or a newer start of this one, has taken over the transactional id "
            f"{transactional_id!r}, with which this one writes to topic {topic!r}. This one writes "
            "nothing any more; what its last checkpoint staged is committed at its next start, if "
            "the id is its own then. Two pipelines need an id each"
        )


class JvmLostError(RegionalQueryError):
    """The JVM of the driver is gone: it crashed, ran out of memory, or was killed."""

    def __init__(self, pipeline: str, checkpoint: int) -> None:
        super().__init__(
            f"pipeline {pipeline!r} cannot go on: the JVM of its driver is gone (it crashed, ran "
            "out of memory, or was killed). Everything up to checkpoint "
            f"{checkpoint} is safe: start it again in a new application, and it goes on from there"
        )


class StoppedError(RegionalQueryError):
    """The pipeline was stopped between two attempts at the same batch."""

    def __init__(self, batch: int, reason: str) -> None:
        super().__init__(
            f"stopped before batch {batch} was in a checkpoint, which the next start makes up for; "
            f"the last attempt at it was aborted because: {reason}"
        )


class LayoutChangedError(ValueError):
    """A checkpoint cannot be continued by a pipeline with this layout; the message says why."""


class SavepointError(RegionalQueryError):
    """No savepoint could be taken, because some region keeps failing. The pipeline continues."""

    def __init__(self, path: object, attempts: int, cause: str) -> None:
        super().__init__(
            f"no savepoint was written to {path}: a savepoint needs every region, and {attempts} "
            f"attempts were aborted, the last one because: {cause}. The pipeline goes on"
        )


class RegionInTwoTasksError(RegionalQueryError):
    """Rows of one region arrived in two tasks of a batch."""

    def __init__(self, region: str, first: int, second: int) -> None:
        super().__init__(
            f"rows of region {region!r} arrived in two tasks of one batch (partitions {first} and "
            f"{second}). A region must arrive in one task: choose region_by so that it does, or "
            "repartition by these columns before hf.regional(...), which connects all regions, so "
            "that checkpoints are global only. If Spark put the files of several batches into one, "
            "start once with checkpoint_id= of the newest checkpoint, so that it plans them anew"
        )


class RegionFinishedError(RegionalQueryError):
    """Rows arrived for a region after its data had ended."""

    def __init__(self, region: str, finished: int, older: int | None) -> None:
        back = (
            "no older checkpoint is retained"
            if older is None
            else f"start with checkpoint_id={older}, which takes back the end of data and the "
            "output since then"
        )
        super().__init__(
            f"rows arrived for region {region!r}, whose data ended in checkpoint {finished}: its "
            "operators have flushed, and do not run again. To process more rows, start with "
            "on_rows_after_finish='restart', which begins the region anew, without state; begin "
            f"with a new checkpoint folder; or go back to before the end of data: {back}"
        )


class FolderInUseError(RegionalQueryError):
    """A running pipeline uses the folder."""

    def __init__(self, folder: object, holder: str) -> None:
        super().__init__(
            f"{folder} is in use: {holder or 'a pipeline is open already'}. A folder has one "
            "pipeline at a time: stop that one first, or give this one a folder of its own"
        )


class FolderLostError(RegionalQueryError):
    """Another process took the folder over, because this one seemed dead."""

    def __init__(self, folder: object, holder: str) -> None:
        super().__init__(
            f"{folder} was taken over by another process while this one stood still: "
            f"{holder or 'a pipeline is open there'}. This one publishes nothing any more"
        )


def traced_from_the_call(function: Callable[P, T]) -> Callable[P, T]:
    """End the trace of a RegionalQueryError at the user's call: the driver's frames do not help."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RegionalQueryError as error:
            raise error.with_traceback(None) from error.__cause__

    return call
