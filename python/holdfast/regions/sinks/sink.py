"""The two-phase protocol: what a sink does, and when it is asked to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from holdfast._core import Staged

if TYPE_CHECKING:
    import pyarrow as pa


class Stage(ABC):
    """Output of one region in one checkpoint attempt, written by the region's task.

    Made by `TwoPhaseSink.writer`, in the task, when the region has its first rows. Then the task
    calls `write` for every batch, `close` once behind the last one, and `persist`, in this order,
    from one thread at a time. After any of them it may call `discard`, and then nothing more. A
    task that is killed calls nothing: what it leaves behind is what `TwoPhaseSink.sweep` is for.

    An exception of any method makes the region fail: its output of this attempt is dropped, and
    its rows come again.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; no reader may see them yet.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows with the schema that `TwoPhaseSink.writer` was given, at least one.
        """

    @abstractmethod
    def close(self) -> Staged | None:
        """End the output. It need not be durable before `persist` returns.

        Returns
        -------
        Staged or None
            What `TwoPhaseSink.commit` finds it by; None if there is nothing to commit.
        """

    def persist(self) -> None:  # noqa: B027 - a stage whose close is durable has nothing to do
        """Make what was closed durable: it outlives this process and its machine.

        The region acknowledges the checkpoint when this has returned. From then on the rows come
        never again, so `TwoPhaseSink.commit` has to find them. By default nothing is done, for
        stages that are durable when `close` returns.
        """

    @abstractmethod
    def discard(self) -> None:
        """Throw the rows away, closed or not; may be repeated. Never after an acknowledgement.

        What cannot be thrown away now is left to `TwoPhaseSink.sweep`.
        """


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


class TwoPhaseSink(ABC):
    """Output that is staged first and committed once a checkpoint contains its region's state.

    Derive from it to write a sink of your own, and give it to ``RegionalPipeline.write_to``. Rows
    reach it exactly once if it keeps to what its methods say.

    ============  ========  ==================================================================
    method        where     when
    ============  ========  ==================================================================
    `writer`      worker    when a region has its first output rows in an attempt
    `persist`     worker    when regions have closed their output, before they acknowledge
    `commit`      driver    when the metadata of a checkpoint is durable, before the next
                            attempt begins; not if nothing was staged for it
    `recover`     driver    in place of `commit`, at a start, for the checkpoint to go on from
    `sweep`       driver    after each `commit` and `recover`, also if nothing was staged
    `withdraw`    driver    at a start with ``checkpoint_id=``, before `recover`
    ============  ========  ==================================================================

    A region has one stage in an attempt, but two tasks of one region and attempt may run at the
    same time, where the first was given up and lives on. So name what is staged by a nonce as
    well. Only what the acknowledged one staged is committed.

    Attempts have ids that rise and never come twice in a checkpoint folder, and a checkpoint
    has that of its attempt. Of a regional checkpoint only the output of healthy regions is
    committed. What a failed region staged is never committed: its rows come again, in a later
    attempt.

    The sink travels to the workers by pickling, so it may hold no connection; open them in
    `writer` or in the stage.

    Its first user is Holdfast's own sink for Parquet files, which is a good example.

    Attributes
    ----------
    can_withdraw : bool, default False
        Whether `withdraw` takes back what was committed. Without it, a pipeline that goes back to
        an older checkpoint warns that rows come again.

    See Also
    --------
    Apache Flink's ``TwoPhaseCommittingSink`` (FLIP-143), which has the same phases.
    """

    can_withdraw: ClassVar[bool] = False

    @property
    @abstractmethod
    def location(self) -> str:
        """Where it writes: the same text after every restart, and another one for another place.

        Every checkpoint records it, where all who read the folder see it: no passwords.
        """

    @property
    def owned_folder(self) -> str | Path | None:
        """A folder that is this pipeline's alone, or None, which is the default.

        A path of a file system that is mounted, or a URI. Holdfast leaves a file in it that names
        its pipeline, and refuses the start of a second one that writes there. Without one, the
        sink itself has to see to it that two pipelines do not meet.
        """
        return None

    # --- on workers -----------------------------------------------------------------------------

    @abstractmethod
    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Stage:
        """Begin the output of a region in a checkpoint attempt.

        Parameters
        ----------
        region : str
            Name of the region. It may hold any character.
        attempt : int
            Id of the attempt.
        schema : pyarrow.Schema
            Of every batch that will be written.
        """

    def persist(
        self, stages: Sequence[Stage], store: OutputStore | None
    ) -> Sequence[BaseException | None]:
        """Make closed stages durable, so that acknowledgements may depend on them.

        By default it calls `Stage.persist` of each. A sink may do it for all at once, because a
        device takes hardly longer for several than for one.

        Parameters
        ----------
        stages : sequence of Stage
            Stages of this sink that were closed and had something to commit.
        store : OutputStore or None
            For Holdfast's own sinks: the way to file systems that this process does not reach.

        Returns
        -------
        sequence of BaseException or None
            For each stage, in this order, what went wrong. Such a stage is discarded by its
            region.
        """
        return [_persisted(stage) for stage in stages]

    # --- on the driver --------------------------------------------------------------------------

    @abstractmethod
    def commit(self, checkpoint: int, staged: Sequence[Staged]) -> None:
        """Publish what the healthy regions of a checkpoint staged.

        When it returns, that is durable, and readers see all of it. They never see a part of what
        one region staged. If the process dies before, `recover` is called with the same arguments
        at the next start, so whatever was done already must do no harm: name what is published by
        the checkpoint, or keep the number of the last one beside it, in one transaction with it.

        An exception ends the pipeline. The checkpoint stays, and the next start recovers it.

        Parameters
        ----------
        checkpoint : int
            Its id: above all earlier ones.
        staged : sequence of Staged
            What stages returned from `Stage.close`, in this process or an earlier one. At least
            one.

        Raises
        ------
        FileNotFoundError
            If something is neither staged nor committed any more.
        """

    def recover(self, checkpoint: int, staged: Sequence[Staged]) -> None:
        """Commit what the restored checkpoint staged, as far as it was not yet.

        Called once at every start that goes on from a checkpoint, before any task runs, and also
        if nothing was staged. It may have been committed wholly, in part or not at all. By default
        it is `commit`, if there is something.

        Parameters
        ----------
        checkpoint : int
            Its id.
        staged : sequence of Staged
            As for `commit`; may be empty. Metadata may come from elsewhere with a savepoint: check
            that names are such as the sink makes.
        """
        if staged:
            self.commit(checkpoint, staged)

    @abstractmethod
    def sweep(self, before_attempt: int) -> None:
        """Abort earlier attempts: throw away what they staged and did not commit.

        Called when no task of these attempts owns its output any more, and after what is owed of
        them was committed. May be repeated. An exception is a warning: the next sweep tries again.

        Parameters
        ----------
        before_attempt : int
            The oldest attempt whose staged output stays.
        """

    # --- going back, and going on elsewhere -----------------------------------------------------

    def published_after(self, attempt: int) -> Sequence[str]:
        """Return what later attempts committed, by names for people; by default nothing is known.

        A pipeline does not begin from a savepoint while there is any that can be withdrawn.

        Parameters
        ----------
        attempt : int
            The newest attempt that is not asked about.
        """
        return ()

    def withdraw(self, after_attempt: int) -> None:
        """Take back what later attempts committed, because the pipeline goes back.

        Durable on return; may be repeated. Called only with `can_withdraw`.

        Parameters
        ----------
        after_attempt : int
            The newest attempt whose output stays.
        """
        raise NotImplementedError(f"{type(self).__name__}.withdraw")

    def at(self, location: str) -> Self | None:
        """Return a sink of the same kind that writes elsewhere; None if that cannot be looked at.

        For a pipeline that begins from a checkpoint of one that wrote elsewhere: `unpublished` is
        asked there whether all of the checkpoint was committed.

        Parameters
        ----------
        location : str
            `location` of a sink of this class.
        """
        return None

    def unpublished(self, staged: Sequence[Staged]) -> Sequence[str]:
        """Return what of it was not committed yet, by names for people. Changes nothing."""
        return [one.target for one in staged]


def sink_name(sink: TwoPhaseSink) -> str:
    """Return what messages call a sink."""
    return f"{type(sink).__name__}({sink.location!r})"


def _persisted(stage: Stage) -> BaseException | None:
    try:
        stage.persist()
    except (Exception, SystemExit) as error:
        # Its region discards it: what goes wrong in that must not reach the others.
        return error
    return None
