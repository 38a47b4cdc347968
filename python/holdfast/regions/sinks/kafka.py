"""A sink that writes records to a topic of Kafka, each checkpoint in one transaction.

Kafka has no prepared transactions: a producer that dies loses its uncommitted records. So workers
stage rows in the checkpoint folder. When the metadata of a checkpoint is durable, the driver writes
its rows in one transaction, with a marker that identifies the output. After a crash the next start
takes over the transactional id, which resolves the open transaction. The marker then says whether
the output was committed.
"""

from __future__ import annotations

import errno
import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import Staged
from holdfast.files.paths import AnyPath
from holdfast.regions.base.errors import RegionalQueryError, SinkFencedError
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks.batch_function import BatchFunction
from holdfast.regions.sinks.destination import Delivery, Destination, Output
from holdfast.regions.sinks.kafka_client import KafkaTransactions
from holdfast.regions.sinks.kafka_marker import Marker
from holdfast.regions.sinks.kafka_options import Unsettled
from holdfast.regions.sinks.kafka_records import RecordColumns
from holdfast.regions.sinks.layout import output_id
from holdfast.regions.sinks.owner import Candidate, OutputOwner, Ownership
from holdfast.regions.sinks.publisher import named

if TYPE_CHECKING:
    import pyarrow as pa

#: Seconds without a transaction after which the next one is prepared for. Brokers forget a producer
#: that wrote nothing for transactional.id.expiration.ms (7 days by default).
IDLE_S: Final = 3600.0

#: Rows decoded at a time.
_BATCH_ROWS: Final = 8192


@dataclass(frozen=True)
class KafkaDestination(Destination):
    """A topic to write to. It remains on the driver: workers learn nothing of brokers.

    - `options`: settings of librdkafka, ``bootstrap.servers`` among them.
    - `unsettled`: treatment of output that may or may not have been committed.
    """

    topic: str
    transactional_id: str
    columns: RecordColumns
    options: Mapping[str, Any] = field(repr=False)
    unsettled: Unsettled

    def begin(
        self, name: str, folders: CheckpointFolders, delivery: Delivery, opened: ExitStack
    ) -> Output:
        """See `Destination`."""
        latest = max(folders.ids(), default=0) if folders.metadata.is_dir() else 0
        transactions = KafkaTransactions(self.topic, self.transactional_id, self.options)
        opened.callback(transactions.close)
        topic = KafkaTopic(transactions, self.columns, self.unsettled, latest)
        publisher = KafkaPublisher(folders.output(name), topic)
        return Output(name, publisher.staging, publisher, topic)

    def require_fit(self, schema: pa.Schema) -> None:
        """See `Destination`."""
        self.columns.require_fit(schema)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"transactional_id {self.transactional_id!r}"

    @property
    def stays(self) -> str:
        """See `Destination`."""
        return f"what was committed to {_named(self.topic)}"


class KafkaTopic(Ownership):
    """A topic, and the transactional id that a running pipeline has to itself.

    `latest` is the latest checkpoint of the pipeline; 0 if there is none.
    """

    def __init__(
        self,
        transactions: KafkaTransactions,
        columns: RecordColumns,
        unsettled: Unsettled,
        latest: int,
    ) -> None:
        self._transactions = transactions
        self._columns = columns
        self._unsettled = unsettled
        self._latest = latest
        self.name = _named(transactions.topic)
        # Valid since `take`: another producer changes it only after it fenced this pipeline.
        self._marker: Marker | None = None

    def require_free_for(self, candidate: Candidate) -> None:
        """See `Ownership`. Does not fence another producer with the transactional id."""
        self._transactions.require_topic()
        marker = self._transactions.read_marker()
        self._require_own(marker, candidate)
        restored = candidate.restored
        if marker is not None and restored is not None and marker.checkpoint > restored:
            warnings.warn(
                f"checkpoints after {restored}, up to {marker.checkpoint}, were committed to "
                f"{self.name} and cannot be taken back: rows since then come again",
                stacklevel=2,
            )

    def take(self, candidate: Candidate) -> AbstractContextManager[object]:
        """See `Ownership`: others with the transactional id are fenced from now on."""
        if not self._transactions.opened:
            self._transactions.open()
        marker = self._transactions.read_marker()
        self._require_own(marker, candidate)
        if marker is None or marker.owner.id != candidate.owner.id:
            # No output of a predecessor is pending, and its ids may be used again.
            claimed = Marker(candidate.owner, after=self._latest)
        else:
            claimed = replace(marker, owner=candidate.owner)
        if claimed != marker:
            self._transactions.write((), claimed)
        self._marker = claimed
        return nullcontext()

    def require_still(self, owner: OutputOwner) -> None:
        """See `Ownership`. The brokers refuse writes of a producer that was fenced."""

    def _require_own(self, marker: Marker | None, candidate: Candidate) -> None:
        if marker is None or marker.owner.id in (candidate.owner.id, candidate.before):
            return
        found = marker.owner
        raise FileExistsError(
            errno.EEXIST,
            f"transactional id {self._transactions.transactional_id!r} belongs to pipeline "
            f"{found.pipeline!r} with its checkpoints in {found.checkpoint}, which would be fenced:"
            " give this one a transactional_id of its own, start with that checkpoint folder, or "
            f"begin from it with restore=holdfast.restore({found.checkpoint!r}). It has committed "
            f"up to checkpoint {marker.checkpoint} to",
            self._transactions.topic,
        )

    def publish(
        self, pipeline: str | None, checkpoint: int, output: str, files: Sequence[AnyPath]
    ) -> None:
        """Write rows of files that `pipeline` staged, unless the marker says that it was done."""
        if not self._transactions.opened:
            self._transactions.open()
        elif self._marker is not None and self._transactions.idle_s > IDLE_S:
            self._renew(self._marker)
        marker = self._marker or self._transactions.read_marker()
        if marker is not None and marker.output == output:
            return
        first = 0 if marker is None else max(marker.after + 1, marker.checkpoint)
        known = marker is not None and marker.owner.id == pipeline and checkpoint >= first
        if not known and self._unsettled == "fail":
            raise RegionalQueryError(
                f"nothing says whether checkpoint {checkpoint} was committed to {self.name}: "
                f"transactional id {self._transactions.transactional_id!r} is new, its marker is "
                "gone (brokers forget offsets of a group that commits none for "
                "offsets.retention.minutes), or it names a later one. Start with the id that the "
                "pipeline had, or look into the topic and start once with unsettled='again' or "
                "'skip' of write_kafka"
            )
        if not known and self._unsettled == "skip":
            return
        if marker is None:
            marker = Marker(OutputOwner(pipeline or "", "", ""), after=checkpoint)
        committed = replace(marker, checkpoint=checkpoint, output=output)
        self._transactions.write(self._records(files), committed)
        if self._marker is not None:
            self._marker = committed

    def _renew(self, known: Marker) -> None:
        """Take the transactional id again: brokers forget one that is unused for long.

        Raises a SinkFencedError, and changes nothing, if it has another owner by now.
        """
        found = self._transactions.read_marker()
        if found is not None and found.owner.id != known.owner.id:
            raise SinkFencedError(self._transactions.transactional_id, self._transactions.topic)
        self._transactions.open()
        self._marker = self._transactions.read_marker() or known

    def _records(self, files: Sequence[AnyPath]) -> Iterator[dict[str, Any]]:
        import pyarrow.parquet as pq

        for file in files:
            with pq.ParquetFile(file.local or io.BytesIO(file.read_bytes())) as content:
                for batch in content.iter_batches(_BATCH_ROWS):
                    yield from self._columns.of(batch)


def _named(topic: str) -> str:
    return f"Kafka topic {topic!r}"


class KafkaPublisher(BatchFunction):
    """Writes the output of a checkpoint in one transaction, exactly once."""

    def __init__(self, folder: AnyPath, topic: KafkaTopic) -> None:
        super().__init__(folder, self._publish)
        self._topic = topic
        self._output = ""
        self._pipeline: str | None = None

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Write the rows of a checkpoint, unless they were written before."""
        files = list(staged)
        self._output = output_id(checkpoint, files)
        with named(self._topic.name, "commit", checkpoint):
            super().commit(checkpoint, files)

    def of(self, folder: AnyPath) -> KafkaPublisher:
        """See `BatchFunction`."""
        return KafkaPublisher(folder, self._topic)

    def _publish(self, files: Sequence[AnyPath], checkpoint: int) -> None:
        if self._pipeline is None:
            self._pipeline = CheckpointFolders(self.staging.root.parent).read_identity()
        self._topic.publish(self._pipeline, checkpoint, self._output, files)
