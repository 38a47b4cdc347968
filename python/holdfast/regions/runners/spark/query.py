"""A regional pipeline that runs in Structured Streaming."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.files.paths import any_folder
from holdfast.regions.base.errors import JvmLostError, RegionalQueryError
from holdfast.regions.base.problem import in_words, message_of, presentable
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.base.turns import Turns
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.driver.history import history_rows, print_history
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.driver.pipeline_query import PipelineQuery
from holdfast.regions.runners.spark.plan import batch_exchanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

#: Default number of attempts that `RegionalQuery.print_history` prints.
PRINTED_ATTEMPTS: Final = 100


class _BatchFailedError(Exception):
    """The error of a failed batch for Spark: a line, because Spark repeats it."""


def _hide_failed_batches(record: logging.LogRecord) -> bool:
    """Keep the trace of a failed batch out of py4j's log: the query raises the error itself."""
    return not (record.exc_info and isinstance(record.exc_info[1], _BatchFailedError))


def _in_a_line(error: BaseException) -> str:
    return next(iter(message_of(error).splitlines()), type(error).__name__)


def _as_error(raised: BaseException) -> Exception:
    """Return an error that ends the query, also for exceptions that end a thread or the process."""
    if isinstance(raised, Exception):
        return raised
    error = RegionalQueryError(
        f"code that the pipeline calls on the driver raised {in_words(raised)}, such as the "
        "function of foreach_batch by sys.exit(): that ends the query with this error, and not the "
        "process. Call stop() from outside of the pipeline to end it without an error"
    )
    error.__cause__ = presentable(raised)
    return error


def _jvm_answers(context: Any) -> bool:
    """Say whether the JVM answers after a failed call: py4j's error does not tell if it died."""
    try:
        context._jvm.System.currentTimeMillis()
    except Exception:
        return False
    return True


class RegionalQuery(PipelineQuery):
    """A running pipeline, much like a ``pyspark.sql.streaming.StreamingQuery``.

    Made by ``RegionalWriter.start``. Any thread may call its methods. The pipeline's own code, such
    as the function of ``foreach_batch``, and a forked child must not call methods that wait for a
    batch: they raise. `name` is the name of the pipeline.
    """

    def __init__(
        self,
        source: DataFrame,
        driver: PipelineDriver,
        trigger: Mapping[str, Any],
        *,
        regional: bool,
        bounded: bool,
        max_file_bytes: int,
        opened: ExitStack,
    ) -> None:
        super().__init__(driver, max_file_bytes=max_file_bytes)
        self.name = driver.plan.pipeline
        self._bounded = bounded
        self._stopped = False
        self._session = source.sparkSession
        self._regional = regional
        self._error: BaseException | None = None
        self._batch_error: Exception | None = None
        self._done = threading.Event()
        self._turns = Turns(uuid.uuid4().hex)
        logging.getLogger("py4j.clientserver").addFilter(_hide_failed_batches)
        writer = (
            source.writeStream.foreachBatch(self._run_batch)
            .queryName(self.name)
            .option("checkpointLocation", driver.folders.stream.spark_name)
        )
        if trigger:
            writer = writer.trigger(**trigger)
        self._query: StreamingQuery = writer.start()
        # From here on, the end of the pipeline closes everything that was opened for it.
        self._opened = opened.pop_all()
        threading.Thread(target=self._watch, name=f"holdfast-{self.name}", daemon=True).start()

    @property
    def stream(self) -> StreamingQuery:
        """Spark's query: id, progress, its page in the UI."""
        return self._query

    @property
    def isActive(self) -> bool:  # noqa: N802 - as in PySpark
        """True while the pipeline runs, or drains."""
        return not self._done.is_set()

    def status(self) -> dict[str, Any]:
        """Return the state of the pipeline.

        Returns
        -------
        dict
            ``active`` (bool), ``checkpoint`` and ``batch`` (int: the latest completed ones),
            ``regions`` (int: known), ``finished`` (int: those whose data has ended), ``failed``
            (dict: region to origin of its state), ``quarantined`` (list: regions in quarantine),
            ``in_flight_rows`` (int: pending rows), ``message`` (Spark's words; empty if its JVM is
            gone).
        """
        latest = self.latest
        regions = latest.regions
        message = ""
        with suppress(JvmLostError):
            message = self._ask(lambda: self._query.status["message"])
        return {
            "active": self.isActive,
            "checkpoint": latest.id,
            "batch": latest.batch_id,
            "regions": len(regions),
            "finished": sum(entry.finished for entry in regions.values()),
            "failed": dict(latest.failed),
            "quarantined": [region for region, entry in regions.items() if in_quarantine(entry)],
            "in_flight_rows": sum(map(in_flight_rows, regions.values())),
            "message": message,
        }

    def print_history(self, *, last: int = PRINTED_ATTEMPTS) -> None:
        """Print `history` as a table: outcome, failed regions, in-flight rows, size, time.

        Parameters
        ----------
        last : int, default 100
            Print at most this number of the newest ones.
        """
        print_history(history_rows(self.history(last=last), checkpoint=self._driver.folders.root))

    def exception(self) -> BaseException | None:
        """Return the error that ended the pipeline, if any."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - as in PySpark
        """Wait until the pipeline ended.

        Parameters
        ----------
        timeout : float, optional
            In seconds; by default without end.

        Returns
        -------
        bool
            True if it ended in this time.

        Raises
        ------
        RegionalQueryError
            If it ended by an error.
        """
        self._turns.require_outside("awaitTermination()")
        if not self._done.wait(timeout):
            return False
        self._raise_error()
        return True

    def processAllAvailable(self) -> None:  # noqa: N802 - as in PySpark
        """Wait until all rows that exist now are in a checkpoint; for tests.

        Raises
        ------
        RegionalQueryError
            If the pipeline ended by an error.
        """
        from pyspark.errors import StreamingQueryException

        self._turns.require_outside("processAllAvailable()")
        try:
            self._ask(self._query.processAllAvailable)
        except StreamingQueryException:
            # The pipeline ends after Spark's query, with a better reason.
            self.awaitTermination()
        if not self.isActive:
            self._raise_error()

    def stop(self) -> None:
        """End the pipeline: no further batch, then replay pending rows of failed regions.

        A batch that waits for another attempt is left to the next start. A second call ends the
        pipeline without regions that have pending rows and keep failing.

        Raises
        ------
        RegionalQueryError
            If a region fails for longer than ``global_timeout``. Its pending rows stay in the
            checkpoint.
        """
        self._turns.require_outside("stop()")
        self._stopped = True
        self._driver.interrupt()
        self._stop_spark()
        self.awaitTermination()

    def stop_with_savepoint(self, path: str | Path) -> None:
        """Write a savepoint, then end the pipeline.

        A savepoint is a checkpoint of every region without pending rows, with all it needs and with
        Spark's position in the stream, in a folder of its own that nothing deletes or refers to. A
        pipeline begins from it with ``start(restore=holdfast.restore(path))``. It is taken between
        two batches; the folder appears at once and whole.

        Parameters
        ----------
        path : str or Path
            Folder to create: a `Path` that the driver can write to, or as a string the URI of a
            folder on a file system that Spark reaches, or a path of Spark's default one.

        Raises
        ------
        FileExistsError
            If the path exists. The pipeline continues.
        SavepointError
            If some region keeps failing. The pipeline continues, perhaps without this region.
        OSError
            If the savepoint cannot be written. The pipeline continues.
        RegionalQueryError
            If the pipeline ended by an error.
        """
        self._turns.require_outside("stop_with_savepoint()")
        self._raise_error()
        folder = any_folder(path)
        self._ask(
            lambda: self._driver.stop_with_savepoint(folder, max_file_bytes=self._max_file_bytes)
        )
        self._stop_spark()
        self.awaitTermination()

    def _state(self) -> str:
        if self.isActive:
            return "it runs"
        return "it has ended" if self._error is None else f"it ended with {in_words(self._error)}"

    def _run_batch(self, rows: DataFrame, batch_id: int) -> None:
        # Spark plans every batch again, and may exchange rows in only some of them.
        found = batch_exchanges(rows, session=self._session)
        if found and self._regional:
            LOG.warning(
                "batch %d: rows of different regions meet in %s, so its checkpoint must be global",
                batch_id,
                found[0].description,
            )
        try:
            with self._turns.at_work():
                self._driver.run_batch(batch_id, rows, global_only=bool(found))
        except BaseException as e:
            # Py4j answers the JVM only for exceptions of this class: others end its thread, and the
            # query would wait for ever.
            self._batch_error = _as_error(e)
            # Spark and py4j log every line of it, so they get one line.
            raise _BatchFailedError(_in_a_line(self._batch_error)) from None

    def _raise_error(self) -> None:
        if isinstance(self._error, RegionalQueryError):
            # The message is enough; the driver's trace does not help the caller.
            raise self._error.with_traceback(None)
        if self._error is not None:
            raise RegionalQueryError(message_of(self._error)) from presentable(self._error)

    def _ask(self, call: Callable[[], T]) -> T:
        """Make a call that needs the JVM; JvmLostError instead of py4j's error if it is gone."""
        try:
            return call()
        except Exception as e:
            if _jvm_answers(self._session.sparkContext):
                raise
            raise JvmLostError(self.name, self.latest.id) from e

    def _stop_spark(self) -> None:
        # Without the JVM the pipeline ends by itself.
        with suppress(JvmLostError):
            self._ask(self._query.stop)

    def _watch(self) -> None:
        """Spark's query ends by itself, by an error, or by `stop`; the pipeline after it."""
        try:
            self._ask(self._wait_and_drain)
        except BaseException as e:
            # The batch after a savepoint is refused, which is an error to Spark.
            if not self._driver.saved:
                # The trace of this thread does not help the caller.
                error = _as_error(e)
                is_known = isinstance(error, RegionalQueryError)
                self._error = error.with_traceback(None) if is_known else error
                LOG.error("pipeline %r ended: %s", self.name, _in_a_line(error))
        finally:
            self._close()

    def _wait_and_drain(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception:
            # A batch that was abandoned for a stop is an error only to Spark.
            if self._driver.stopped:
                LOG.info("%s", self._batch_error)
            elif self._batch_error is not None and _jvm_answers(self._session.sparkContext):
                raise self._batch_error from self._batch_error.__cause__
            else:
                raise
        if self._bounded and self._has_read_everything():
            self._driver.end_of_data()
        else:
            self._driver.finish()

    def _close(self) -> None:
        """Close everything, and wake the threads that wait for the end, also after an error."""
        try:
            self._opened.close()
        except BaseException:
            LOG.warning("pipeline %r may not have let go of all it held", self.name, exc_info=True)
        finally:
            self._done.set()

    def _has_read_everything(self) -> bool:
        """Say whether the query ended because its source did, not by `stream` or its session."""
        stream: Any = self._query
        return not self._stopped and bool(stream._jsq.streamingQuery().noNewData())
