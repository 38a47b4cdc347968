"""Errors of regional pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

#: Regions that a message names.
_SHOWN_REGIONS: Final = 5


#: What the driver asks a sink to do.
Step = Literal["commit", "recover", "withdraw"]


class RegionalQueryError(RuntimeError):
    """A regional pipeline ended because it could not go on.

    Everything that a completed checkpoint holds is intact; starting the pipeline again goes on from
    there.
    """


class OperatorFailedError(RegionalQueryError):
    """A regional pipeline ended because of what an operator, a source or a sink raised in a region.

    The message begins with operator, region, checkpoint and place. The cause is an exception of the
    class that was raised, with the trace in a note: ``except RegionalQueryError as e`` finds it in
    ``e.__cause__``.
    """


class SinkFailedError(RegionalQueryError):
    """A sink could not commit a completed checkpoint; the cause is what it raised.

    Parameters
    ----------
    sink : str
        The sink and where it writes.
    step : {"commit", "recover", "withdraw"}
        What it was asked to do.
    checkpoint : int
        The checkpoint.
    cause : Exception
        What it raised.
    regions : sequence of str, optional
        Regions whose output it was to commit, as far as is known.
    """

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
                "The checkpoint is complete and its output is kept: start the pipeline again, and "
                "it is committed first"
            )
        super().__init__(f"sink {sink} could not {what}: {type(cause).__name__}: {cause}. {then}")

    def of_regions(self, regions: Sequence[str]) -> SinkFailedError:
        """Return the same error with the regions that it concerns."""
        return SinkFailedError(*self._made_of, regions)


class SinkFencedError(RegionalQueryError):
    """Another producer has begun with the transactional id of this pipeline.

    Parameters
    ----------
    transactional_id : str
        The id.
    topic : str
        The topic that the pipeline writes to.
    """

    def __init__(self, transactional_id: str, topic: str) -> None:
        super().__init__(
            f"another pipeline, or a newer start of this one, has taken over the transactional id "
            f"{transactional_id!r}, with which this one writes to topic {topic!r}. This one writes "
            "nothing any more; what its last checkpoint staged is committed at its next start, if "
            "the id is its own then. Two pipelines need an id each"
        )


class JvmLostError(RegionalQueryError):
    """The JVM of the driver is gone: it crashed, ran out of memory, or was killed.

    Parameters
    ----------
    pipeline : str
        Name of the pipeline.
    checkpoint : int
        The latest completed checkpoint.
    """

    def __init__(self, pipeline: str, checkpoint: int) -> None:
        super().__init__(
            f"pipeline {pipeline!r} cannot go on: the JVM of its driver is gone (it crashed, ran "
            "out of memory, or was killed). Everything up to checkpoint "
            f"{checkpoint} is safe: start it again in a new application, and it goes on from there"
        )


class StoppedError(RegionalQueryError):
    """The pipeline was stopped between two attempts at the same batch.

    Parameters
    ----------
    batch : int
        Number of the batch.
    reason : str
        Why the last attempt was aborted.
    """

    def __init__(self, batch: int, reason: str) -> None:
        super().__init__(
            f"stopped before batch {batch} was in a checkpoint, which the next start makes up for; "
            f"the last attempt at it was aborted because: {reason}"
        )


class LayoutChangedError(ValueError):
    """A checkpoint cannot be continued by a pipeline with this layout; the message says why."""


class SavepointError(RegionalQueryError):
    """No savepoint could be taken, because some region keeps failing. The pipeline goes on.

    Parameters
    ----------
    path : Path or HadoopPath
        Where it was to be written; nothing is there.
    attempts : int
        Attempts that were made.
    cause : str
        Why the last one was aborted.
    """

    def __init__(self, path: object, attempts: int, cause: str) -> None:
        super().__init__(
            f"no savepoint was written to {path}: a savepoint needs every region, and {attempts} "
            f"attempts were aborted, the last one because: {cause}. The pipeline goes on"
        )


class RegionInTwoTasksError(RegionalQueryError):
    """Rows of one region arrived in two tasks of a batch.

    Parameters
    ----------
    region : str
        Name of the region.
    first, second : int
        Partitions of the tasks.
    """

    def __init__(self, region: str, first: int, second: int) -> None:
        super().__init__(
            f"rows of region {region!r} arrived in two tasks of one batch (partitions {first} and "
            f"{second}). A region must arrive in one task: choose region_by so that it does, or "
            "repartition by these columns before hf.regional(...), which connects all regions, so "
            "that checkpoints are global only. If Spark put the files of several batches into one, "
            "start once with checkpoint_id= of the newest checkpoint, so that it plans them anew"
        )


class RegionFinishedError(RegionalQueryError):
    """Rows arrived for a region after its data had ended.

    Parameters
    ----------
    region : str
        Name of the region.
    finished : int
        The checkpoint in which it finished.
    older : int or None
        The newest retained checkpoint before that; None: there is none.
    """

    def __init__(self, region: str, finished: int, older: int | None) -> None:
        back = (
            "no older checkpoint is retained"
            if older is None
            else f"start with checkpoint_id={older}, which takes back the end of data and the "
            "output since then"
        )
        super().__init__(
            f"rows arrived for region {region!r}, whose data ended in checkpoint {finished}: its "
            "operators have flushed, and do not run again. To process more rows, begin with a new "
            f"checkpoint folder, or go back to before the end of data: {back}"
        )


class FolderInUseError(RegionalQueryError):
    """A running pipeline uses the folder.

    Parameters
    ----------
    folder : Path or HadoopPath
        The folder.
    holder : str
        Who holds its lock, as far as is known.
    """

    def __init__(self, folder: object, holder: str) -> None:
        super().__init__(
            f"{folder} is in use: {holder or 'a pipeline is open already'}. A folder has one "
            "pipeline at a time: stop that one first, or give this one a folder of its own"
        )


class FolderLostError(RegionalQueryError):
    """Another process has taken the folder over, because this one seemed to be dead.

    Parameters
    ----------
    folder : HadoopPath
        The folder.
    holder : str
        Who holds it now, as far as is known.
    """

    def __init__(self, folder: object, holder: str) -> None:
        super().__init__(
            f"{folder} was taken over by another process while this one stood still: "
            f"{holder or 'a pipeline is open there'}. This one publishes nothing any more"
        )
