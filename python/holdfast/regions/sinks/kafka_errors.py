"""What brokers and librdkafka say, as exceptions that say what to do."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from holdfast.regions.base.errors import SinkFencedError
from holdfast.regions.sinks.kafka_marker import group_of


@dataclass(frozen=True)
class KafkaTrouble:
    """Makes exceptions for a topic; no option that may be secret is in them.

    Parameters
    ----------
    servers : str
        Brokers, as the user named them.
    topic : str
        The topic.
    transactional_id : str
        What the pipeline is known by.
    timeout_s : float
        Seconds after which brokers abort a transaction.
    """

    servers: str
    topic: str
    transactional_id: str
    timeout_s: float

    def error(self, error: Any, *, took_s: float = 0.0) -> Exception:
        """Return the exception for an error of the client.

        Parameters
        ----------
        error : confluent_kafka.KafkaError
            The error.
        took_s : float
            Seconds for which the transaction has lasted.
        """
        from confluent_kafka import KafkaError

        code, told = error.code(), f"{error.name()}: {error.str()}"
        topic, servers = self.topic, self.servers
        if took_s >= self.timeout_s and code in _gone_codes():
            return TimeoutError(
                f"a transaction of Kafka took {took_s:.0f} s, and the brokers abort it after "
                f"transaction.timeout.ms={self.timeout_s * 1000:.0f}: give write_kafka(options=) "
                f"a larger one ({told})"
            )
        if code in _gone_codes():
            return SinkFencedError(self.transactional_id, topic)
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ValueError(
                f"transaction.timeout.ms={self.timeout_s * 1000:.0f} is not allowed: the brokers "
                "allow less (their transaction.max.timeout.ms); give write_kafka(options=) a "
                "smaller one"
            )
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return ValueError(f"there is no topic {topic!r} at {servers}: create it ({told})")
        if code in _refusals():
            return PermissionError(
                errno.EACCES,
                f"Kafka at {servers} refuses: the principal needs WRITE and DESCRIBE on topic "
                f"{topic!r} and on transactional id {self.transactional_id!r}, and READ on group "
                f"{group_of(self.transactional_id)!r} ({told})",
            )
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return ValueError(
                f"a record is too large for topic {topic!r} at {servers}: let the last operator "
                "put out smaller ones, or raise the topic's max.message.bytes and "
                f"message.max.bytes of write_kafka(options=), and start again ({told})"
            )
        if code in _unreachable():
            # The client goes on asking for the coordinator of a group that it may not read.
            return ConnectionError(
                f"cannot reach Kafka at {servers}, or the principal has no READ on group "
                f"{group_of(self.transactional_id)!r}: {told}"
            )
        return OSError(errno.EIO, f"Kafka at {servers}, topic {topic!r}: {told}")


def passes(error: Any) -> bool:
    """Whether what went wrong may be different in a moment."""
    from confluent_kafka import KafkaError

    return not error.fatal() and (
        error.retriable()
        or error.code()
        in (
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.UNSTABLE_OFFSET_COMMIT,
            KafkaError._TIMED_OUT,
            KafkaError._TRANSPORT,
            KafkaError._WAIT_COORD,
        )
    )


def _gone_codes() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )


def _refusals() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    )


def _unreachable() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MSG_TIMED_OUT,
    )
