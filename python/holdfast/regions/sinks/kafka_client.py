"""Transactions of Kafka, one for each checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from holdfast.regions.sinks.kafka_errors import KafkaTrouble, passes
from holdfast.regions.sinks.kafka_marker import Marker, group_of

T = TypeVar("T")

#: Seconds for which brokers are asked at the start.
START_S: Final = 60.0

#: Milliseconds after which its coordinator aborts an open transaction, so that readers see later
#: writes of others. Brokers allow 15 minutes by default (transaction.max.timeout.ms).
TRANSACTION_MS: Final = 5 * 60 * 1000

#: Beginnings of the names of options that a consumer has as well.
_SHARED: Final = ("security.", "sasl.", "ssl.", "enable.ssl", "enable.sasl", "oauth", "socket.")
_SHARED_MORE: Final = ("client.", "broker.", "reconnect.", "retry.", "metadata.", "api.", "debug")

#: Ways to read the marker's offset: the current one, or once no open transaction can change it.
_AS_IT_IS: Final = "read_uncommitted"
_SETTLED: Final = "read_committed"

#: Seconds for one question about the marker: brokers answer only when it is decided.
_ASKED_S: Final = 10.0

#: With the other strategy, librdkafka 2.16 forgets all brokers when none answers, and a transaction
#: that waits for its group's coordinator waits in vain.
_STABLE: Final = {"metadata.recovery.strategy": "none"}

_PAUSE_S: Final = 0.2

#: Seconds to wait for an abort. The next start aborts too, so failure is harmless.
_ABORT_S: Final = 5.0


class KafkaTransactions:
    """Writes records to a topic, one transaction per checkpoint, with options of librdkafka."""

    def __init__(self, topic: str, transactional_id: str, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self.transactional_id = transactional_id
        self._options = dict(options)
        self._timeout_s = int(self._options.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000
        self._trouble = KafkaTrouble(
            self._options["bootstrap.servers"], topic, transactional_id, self._timeout_s
        )
        self._producer: Any = None
        self._readers: dict[str, Any] = {}
        self._undelivered: Any = None
        self._used = 0.0

    @property
    def idle_s(self) -> float:
        """Seconds since the last transaction."""
        return time.monotonic() - self._used

    @property
    def opened(self) -> bool:
        """True once others with the transactional id have been fenced."""
        return self._producer is not None

    def open(self) -> None:
        """Fence all others with this transactional id, and resolve their open transaction.

        Raises a ConnectionError if no broker answers, a PermissionError if brokers do not allow
        it, and a ValueError if there is no such topic, or an option is not allowed.
        """
        self.require_topic()
        producer = self._made(
            "Producer",
            {
                "partitioner": "murmur2_random",  # as Java's clients, and so Spark, divide keys
                "queue.buffering.max.kbytes": 65536,
                "linger.ms": 20,
                "transaction.timeout.ms": TRANSACTION_MS,
                **self._options,
                "transactional.id": self.transactional_id,
                "enable.idempotence": True,
            },
        )
        self._patiently(producer.init_transactions)
        self._producer, self._used = producer, time.monotonic()

    def require_topic(self) -> None:
        """Check that the topic is there. Raises the errors of `open`."""
        found = self._patiently(
            lambda left_s: self._reader(_AS_IT_IS).list_topics(self.topic, timeout=left_s)
        ).topics[self.topic]
        if found.error is not None:
            raise self._trouble.error(found.error)

    def read_marker(self) -> Marker | None:
        """Return the marker; None if there is none. Raises the errors of `open`.

        Before `open`, another producer's open transaction may change it. After `open`, this waits
        until no open transaction can change it.
        """
        from confluent_kafka import TopicPartition

        # Not by the AdminClient of 2.16, which dies where a group has no coordinator yet.
        reader = self._reader(_SETTLED if self.opened else _AS_IT_IS)
        place, group = TopicPartition(self.topic, 0), group_of(self.transactional_id)
        (found,) = self._patiently(
            lambda left_s: reader.committed([place], timeout=min(left_s, _ASKED_S))
        )
        if found.error is not None:
            raise self._trouble.error(found.error)
        if found.offset < 0:
            return None
        return Marker.decode(found.metadata or "", group)

    def write(self, records: Iterable[dict[str, Any]], marker: Marker) -> None:
        """Write records and the marker in one transaction; readers see all of them or none.

        Raises a SinkFencedError, and writes nothing, if another one began with the transactional
        id. Raises a ConnectionError, PermissionError, ValueError or OSError if the brokers refuse.
        The marker then says whether it was written.
        """
        from confluent_kafka import KafkaException, TopicPartition

        producer, began = self._producer, time.monotonic()
        self._undelivered = None
        try:
            producer.begin_transaction()
            for record in records:
                self._produce(record)
            place = TopicPartition(
                self.topic, 0, max(marker.checkpoint, marker.after), metadata=marker.encode()
            )
            group = self._reader(_SETTLED).consumer_group_metadata()
            # Both wait for all records, so that the error of a record is known.
            _repeated(
                lambda left_s: producer.send_offsets_to_transaction([place], group, left_s),
                self._timeout_s,
            )
            _repeated(producer.commit_transaction, self._timeout_s)
        except KafkaException as raised:
            # Found before the abort, which fails every record that was not sent.
            error = self._known(self._undelivered or raised.args[0])
            self._abort(raised)
            raise self._trouble.error(error, took_s=time.monotonic() - began) from raised
        except BaseException as raised:
            self._abort(raised)
            raise
        self._used = time.monotonic()

    def close(self) -> None:
        """Close the connections to the brokers."""
        readers, self._readers, self._producer = self._readers, {}, None
        for reader in readers.values():
            reader.close()

    def _produce(self, record: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(self.topic, on_delivery=self._note, **record)
                break
            except BufferError:
                self._producer.poll(_PAUSE_S)
        if self._undelivered is not None:
            from confluent_kafka import KafkaException

            raise KafkaException(self._undelivered)

    def _note(self, error: Any, _message: Any) -> None:
        if error is not None and self._undelivered is None:
            self._undelivered = error

    def _abort(self, raised: BaseException) -> None:
        """Abort the transaction, unless it may have been committed."""
        from confluent_kafka import KafkaException

        kafka = raised.args[0] if isinstance(raised, KafkaException) else None
        if kafka is None or not (kafka.fatal() or kafka.retriable()):
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)

    def _known(self, error: Any) -> Any:
        """Return the reason of a fatal error: the error itself may not say it."""
        from confluent_kafka import KafkaException

        if error.name() == "_FATAL":
            try:
                # Refused, with the reason.
                self._producer.commit_transaction(_ABORT_S)
            except KafkaException as raised:
                return raised.args[0]
        return error

    def _patiently(self, call: Callable[[float], T]) -> T:
        """Repeat a call of the start; its last error says what to do."""
        from confluent_kafka import KafkaException

        try:
            return _repeated(call, START_S)
        except KafkaException as raised:
            raise self._trouble.error(raised.args[0]) from raised

    def _reader(self, isolation: str) -> Any:
        if isolation not in self._readers:
            shared = {
                key: value
                for key, value in self._options.items()
                if key.startswith((*_SHARED, *_SHARED_MORE)) or key == "bootstrap.servers"
            }
            self._readers[isolation] = self._made(
                "Consumer",
                {
                    **shared,
                    "group.id": group_of(self.transactional_id),
                    "enable.auto.commit": False,
                    "isolation.level": isolation,
                },
            )
        return self._readers[isolation]

    def _made(self, kind: str, settings: dict[str, Any]) -> Any:
        import confluent_kafka

        try:
            return getattr(confluent_kafka, kind)({**_STABLE, **settings})
        except confluent_kafka.KafkaException as raised:
            raise ValueError(f"write_kafka: {raised.args[0].str()}") from None


def _repeated(call: Callable[[float], T], within_s: float) -> T:
    """Repeat a call, which is given the seconds left, while its error may pass."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + within_s
    while True:
        try:
            return call(max(0.1, deadline - time.monotonic()))
        except KafkaException as raised:
            if not passes(raised.args[0]) or time.monotonic() + _PAUSE_S >= deadline:
                raise
            time.sleep(_PAUSE_S)
