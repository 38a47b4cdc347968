"""The two-phase protocol: the methods of a sink, and when each is called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from holdfast._core import Staged
from holdfast.regions.base.callbacks import called

if TYPE_CHECKING:
    import pyarrow as pa


class Stage(ABC):
    """Output of one region in one checkpoint attempt, written by the region's task.

    `TwoPhaseSink.writer` makes it, in the task, when the region has its first rows. The task calls
    `write` for every batch, then `close` and `persist` once, from one thread at a time. After any
    of them it may call `discard`, and then nothing else. A killed task calls nothing, and
    `TwoPhaseSink.sweep` removes the leftovers.

    An exception of any method makes the region fail: its output of this attempt is dropped, and
    its rows are processed again.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, at least one, in the schema given to `writer`; no reader may see them yet."""

    @abstractmethod
    def close(self) -> Staged | None:
        """End the output. It need not be durable before `persist` returns.

        Returns a value with which `TwoPhaseSink.commit` finds the output; None without output.
        """

    def persist(self) -> None:  # noqa: B027 - a stage whose close is durable has nothing to do
        """Make the closed output durable: it outlives this process and its machine.

        Then the region acknowledges the checkpoint, and its rows are never processed again. So
        `TwoPhaseSink.commit` has to find them. Does nothing by default: then `close` has to.
        """

    @abstractmethod
    def discard(self) -> None:
        """Drop the rows, closed or not; may be repeated. Never after an acknowledgement.

        `TwoPhaseSink.sweep` removes the output that a stage cannot remove now.
        """


class OutputStore(Protocol):
    """Writes staged output to file systems that only the JVM of the executor reaches."""

    def stage(self, local_path: str, staged: str, target: str) -> None:
        """Make the content of a local file ready to be published, durable on return.

        `staged`, which no other task uses, and `target` are its URIs before and after publication.
        """


class TwoPhaseSink(ABC):
    """Output that is staged first and committed once a checkpoint contains its region's state.

    Derive from it to write a sink of your own, and give it to ``RegionalPipeline.write_to``. Rows
    reach it exactly once if its methods work as described here.

    ================  ========  ==============================================================
    method            where     when
    ================  ========  ==============================================================
    `writer`          worker    when a region has its first output rows in an attempt
    `persist`         worker    when regions have closed their output, before they acknowledge
    `stage_together`  worker    in place of both, for several regions; only with `shared_bytes`
    `commit`          driver    when the metadata of a checkpoint is durable, before the next
                                attempt begins; not if nothing was staged for it
    `recover`         driver    in place of `commit`, at a start, for the restored checkpoint
    `sweep`           driver    after each `commit` and `recover`, also if nothing was staged
    `withdraw`        driver    at a start with ``checkpoint_id=``, before `recover`
    ================  ========  ==============================================================

    A region has one stage in an attempt. But two tasks of one region and attempt may run at the
    same time, if the first was abandoned and still runs. So put a nonce into the names of staged
    output. Only the output of the acknowledged task is committed.

    Ids of attempts rise and never repeat in a checkpoint folder. A checkpoint has the id of its
    attempt. A regional checkpoint commits only the output of healthy regions. Staged output of a
    failed region is never committed: its rows are processed again, in a later attempt.

    Workers receive the sink by pickling, so it may hold no connection; open connections in `writer`
    or in the stage. Holdfast's own sink for Parquet files is a good example.

    Attributes
    ----------
    can_withdraw : bool, default False
        `withdraw` can take back committed output. Without it, a pipeline that goes back to an
        older checkpoint warns that rows will be written again.

    See Also
    --------
    Apache Flink's ``TwoPhaseCommittingSink`` (FLIP-143), which has the same phases.
    """

    can_withdraw: ClassVar[bool] = False

    @property
    def shared_bytes(self) -> int:
        """About the bytes of rows in memory that a task gives to one call of `stage_together`.

        With 0, the default, each region has a `Stage`. A region with many rows always has one.
        """
        return 0

    @property
    @abstractmethod
    def location(self) -> str:
        """Unique name of the place, the same after restarts. Checkpoints show it: no passwords."""

    @property
    def owned_folder(self) -> str | Path | None:
        """A folder that only this pipeline may use, or None, which is the default.

        A path of a mounted file system, or a URI. Holdfast leaves a file in it that names its
        pipeline, and refuses to start a second pipeline that writes there. Without a folder, the
        sink itself has to keep two pipelines apart.
        """
        return None

    @abstractmethod
    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Stage:
        """Begin the output of a region in a checkpoint attempt, in batches of a schema.

        The name of the region may hold any character.
        """

    def stage_together(
        self,
        rows: Mapping[str, Sequence[pa.RecordBatch]],
        attempt: int,
        schema: pa.Schema,
        store: OutputStore | None,
    ) -> Mapping[str, Staged | BaseException]:
        """Stage all rows of several regions of a task; they are durable on return.

        Called only with `shared_bytes`, when these regions have taken their snapshots. They
        acknowledge together: a checkpoint has all of them or none. After an error of one region it
        is called again for the others, and `sweep` removes output of the first call.

        Parameters
        ----------
        rows : mapping of str to sequence of pyarrow.RecordBatch
            The rows of each region, at least one, in the order of the regions' names.
        store : OutputStore or None
            See `persist`.

        Returns
        -------
        mapping of str to Staged or BaseException
            For each region its output, as `Stage.close` returns it; several may have one `path`. If
            rows of some regions cannot be written, the errors of these regions. If it raises an
            exception instead, all of these regions fail.
        """
        raise NotImplementedError(f"{type(self).__name__}.stage_together")

    def persist(
        self, stages: Sequence[Stage], store: OutputStore | None
    ) -> Sequence[BaseException | None]:
        """Make closed stages durable, so that acknowledgements may depend on them.

        By default it calls `Stage.persist` of each. A sink may do it for all at once, because a
        device takes hardly longer for several than for one. The stages are closed and have
        something to commit. `store` is for Holdfast's own sinks: the way to file systems that this
        process does not reach.

        Returns the error of each stage, in this order. The region discards a stage with an error.
        """
        return [failure_of(partial(called, stage.persist)) for stage in stages]

    @abstractmethod
    def commit(self, checkpoint: int, staged: Sequence[Staged]) -> None:
        """Publish the staged output of a checkpoint's healthy regions.

        On return the output is durable, and readers see all of it. They never see a part of one
        region's output. If the process dies before, the next start calls `recover` with the same
        arguments, so a repeated commit must do no harm: name published output by the checkpoint,
        or keep the number of the last checkpoint with it, in one transaction. An exception ends
        the pipeline. The checkpoint remains, and the next start recovers it.

        Parameters
        ----------
        checkpoint : int
            Its id: above all earlier ones.
        staged : sequence of Staged
            Results of `Stage.close`, in this process or an earlier one. At least one.

        Raises
        ------
        FileNotFoundError
            If something is neither staged nor committed.
        """

    def recover(self, checkpoint: int, staged: Sequence[Staged]) -> None:
        """Commit the staged output of the restored checkpoint, as far as it was not yet.

        Called once at every start that continues from a checkpoint, before any task runs, and also
        if there is nothing to commit. The output may have been committed wholly, in part or not at
        all. By default it is `commit`, if there is something.

        `staged` is the argument of `commit`. It is empty if nothing was staged, or if it is noted
        that `commit` returned: users may take away committed output. Metadata may come from
        elsewhere with a savepoint: check that the sink could have made the names.
        """
        if staged:
            called(self.commit, checkpoint, staged)

    @abstractmethod
    def sweep(self, before_attempt: int) -> None:
        """Abort attempts before `before_attempt`: remove their staged, not committed output.

        Called when no task of these attempts owns its output, and after all output that has to be
        committed was. May be repeated. An exception is a warning: the next sweep tries again.
        """

    def published_after(self, attempt: int) -> Sequence[str]:
        """Return names, for people, of output that later attempts committed; by default none.

        A pipeline does not begin from a savepoint while any of it can be withdrawn.
        """
        return ()

    def withdraw(self, after_attempt: int) -> None:
        """Take back the output that later attempts committed, because the pipeline goes back.

        Output of `after_attempt` stays. Durable on return; may be repeated. Only if `can_withdraw`.
        """
        raise NotImplementedError(f"{type(self).__name__}.withdraw")

    def at(self, location: str) -> Self | None:
        """Return a sink of the same kind for the `location` of another; None if there can be none.

        A pipeline may begin from a checkpoint of one that wrote elsewhere. `unpublished` of the
        result says whether all of the checkpoint was committed.
        """
        return None

    def unpublished(self, staged: Sequence[Staged]) -> Sequence[str]:
        """Return names, for people, of staged output that was not committed. Changes nothing."""
        return [one.target for one in staged]


def sink_name(sink: TwoPhaseSink) -> str:
    """Return the name of a sink in messages."""
    return f"{type(sink).__name__}({sink.location!r})"


def failure_of(step: Callable[[], None]) -> BaseException | None:
    """Do something for one of several regions; return its error, so that the others continue."""
    try:
        step()
    except (Exception, SystemExit) as error:
        return error
    return None
