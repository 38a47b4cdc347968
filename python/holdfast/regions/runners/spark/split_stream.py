"""The streaming source of a pipeline over file splits, in PySpark's Data Source API.

Spark decides when a batch runs, and the enumerator decides its content. The stream has one row for
each region and batch, which makes the region's task run, and its offsets only count batches. Only
the pipeline's checkpoints say which files were read.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from holdfast.regions.splits.file_splits import REGION_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.regions.splits import SplitEnumerator

LOG: Final = logging.getLogger(__name__)

#: Bound on an answer of the driver, which only lists a folder.
TIMEOUT_S: Final = 600

#: Bound on a connected process's question. The next process and the pipeline's end wait for it.
QUESTION_TIMEOUT_S: Final = 20


class SplitStream:
    """Answers questions of Spark's side of the source to the enumerator.

    Spark runs that side in another process than the driver. They talk over a socket in a folder
    that only this user can enter. Raises an OSError if the system's temporary folder has no
    sockets.
    """

    def __init__(self, enumerator: SplitEnumerator) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
        self._path = self._folder / "source"
        try:
            self._server = _Server(str(self._path), _Handler)
        except OSError as e:
            self._folder.rmdir()
            raise OSError(
                f"cannot listen on {self._path}: {e}; TMPDIR must be on a file system that has "
                "sockets, and its name not longer than some 80 bytes"
            ) from e
        self._server.enumerator = enumerator
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="holdfast-source", daemon=True
        )
        self._thread.start()

    def rows(self, session: SparkSession, regions: Sequence[str]) -> DataFrame:
        """Return the stream: one row for each region and batch."""
        session.dataSource.register(FileSplitsSource)
        return (
            session.readStream.format(FileSplitsSource.name())
            .option("socket", str(self._path))
            .option("regions", json.dumps(list(regions)))
            .load()
        )

    def close(self) -> None:
        """Stop to answer; may be repeated."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Server(socketserver.UnixStreamServer):
    enumerator: SplitEnumerator

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.warning("Spark's side of the source could not be answered", exc_info=True)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = QUESTION_TIMEOUT_S

    def handle(self) -> None:
        question = self.rfile.readline().decode().strip()
        try:
            if question == "freeze":
                self.server.enumerator.freeze()
            answer: dict[str, Any] = {"work": self.server.enumerator.has_work()}
        except BaseException as e:  # The thread that answers must not end.
            answer = {"error": f"{type(e).__name__}: {e}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class FileSplitsSource(DataSource):  # type: ignore[misc]  # PySpark is not typed here
    """The source for Spark."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "holdfast_file_splits"

    def schema(self) -> str:
        """Return the columns of the stream."""
        return f"{REGION_COLUMN} string"

    def streamReader(self, schema: Any) -> SplitStreamReader:  # noqa: N802 - as in PySpark
        """Return the reader."""
        return SplitStreamReader(self.options["socket"], json.loads(self.options["regions"]))


class SplitStreamReader(
    DataSourceStreamReader,  # type: ignore[misc]  # PySpark is not typed here
    SupportsTriggerAvailableNow,  # type: ignore[misc]
):
    """Tells Spark when there is work, and to run a task for every region."""

    def __init__(self, path: str, regions: Sequence[str]) -> None:
        self._path = path
        self._regions = list(regions)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - as in PySpark
        """Return the offset before the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the next offset if some split waits, else `start`."""
        return {"batch": start["batch"] + 1} if self._ask("work") else start

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as in PySpark
        """Ignore files that appear later."""
        self._ask("freeze")

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return one partition for each region."""
        if start == end:
            return []
        return [InputPartition(region) for region in self._regions]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yield the row that names the region."""
        yield (partition.value,)

    def _ask(self, question: str) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(self._path)
            connection.sendall(question.encode() + b"\n")
            with connection.makefile() as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise RuntimeError(f"the enumerator of the source failed: {answer['error']}")
        return bool(answer["work"])
