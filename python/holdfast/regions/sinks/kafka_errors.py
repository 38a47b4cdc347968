"""Errors of brokers and librdkafka as exceptions that say what to do."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Final

from holdfast.regions.base.errors import SinkFencedError
from holdfast.regions.sinks.kafka_marker import group_of

#: Names of errors of librdkafka, see ``confluent_kafka.KafkaError``.
_GONE: Final = (
    "_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
)
_REFUSED: Final = (
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
)
_UNREACHABLE: Final = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_RESOLVE",
    "_MSG_TIMED_OUT",
)
_PASSING: Final = (
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "UNSTABLE_OFFSET_COMMIT",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_WAIT_COORD",
)


@dataclass(frozen=True)
class KafkaTrouble:
    """Makes exceptions for a topic; no option that may be secret is in them."""

    servers: str
    topic: str
    transactional_id: str
    timeout_s: float

    def error(self, error: Any, *, took_s: float = 0.0) -> Exception:
        """Return the exception for an error of the client, in a transaction that took so long."""
        name, told = error.name(), f"{error.name()}: {error.str()}"
        topic, servers = self.topic, self.servers
        if took_s >= self.timeout_s and name in _GONE:
            return TimeoutError(
                f"a transaction of Kafka took {took_s:.0f} s, and the brokers abort it after "
                f"transaction.timeout.ms={self.timeout_s * 1000:.0f}: give write_kafka(options=) "
                f"a larger one ({told})"
            )
        if name in _GONE:
            return SinkFencedError(self.transactional_id, topic)
        if name == "INVALID_TRANSACTION_TIMEOUT":
            return ValueError(
                f"transaction.timeout.ms={self.timeout_s * 1000:.0f} is not allowed: the brokers "
                "allow less (their transaction.max.timeout.ms); give write_kafka(options=) a "
                "smaller one"
            )
        if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return ValueError(f"there is no topic {topic!r} at {servers}: create it ({told})")
        if name in _REFUSED:
            return PermissionError(
                errno.EACCES,
                f"Kafka at {servers} refuses: the principal needs WRITE and DESCRIBE on topic "
                f"{topic!r} and on transactional id {self.transactional_id!r}, and READ on group "
                f"{group_of(self.transactional_id)!r} ({told})",
            )
        if name == "MSG_SIZE_TOO_LARGE":
            return ValueError(
                f"a record is too large for topic {topic!r} at {servers}: write "
                "smaller ones, or raise the topic's max.message.bytes and "
                f"message.max.bytes of write_kafka(options=), and start again ({told})"
            )
        if name in _UNREACHABLE:
            # The client keeps asking for the coordinator of a group that it may not read.
            return ConnectionError(
                f"cannot reach Kafka at {servers}, or the principal has no READ on group "
                f"{group_of(self.transactional_id)!r}: {told}"
            )
        return OSError(errno.EIO, f"Kafka at {servers}, topic {topic!r}: {told}")


def passes(error: Any) -> bool:
    """Say whether the same call may succeed in a moment."""
    return not error.fatal() and (error.retriable() or error.name() in _PASSING)
