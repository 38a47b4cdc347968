"""Arguments of ``write_kafka`` that can be checked without a broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from holdfast._checks import not_allowed, require_one_of

#: Options that write_kafka sets; others may have any value.
FIXED: Final = (
    "bootstrap.servers",
    "transactional.id",
    "enable.idempotence",
    "acks",
    "group.id",
    "enable.auto.commit",
    "isolation.level",
)

#: Names of Java's clients that users of Spark know, and librdkafka's options in their place.
_JAVA_ONLY: Final = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "value.serializer": "no such option: columns are written as they are, and it",
    "key.serializer": "no such option: columns are written as they are, and it",
}

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)

#: Treatment of output that may or may not have been committed, as far as the marker tells.
Unsettled = Literal["fail", "again", "skip"]


def checked_settings(
    topic: str,
    transactional_id: str,
    given: Mapping[str, Any] | None,
    bootstrap_servers: str,
    unsettled: str,
) -> dict[str, Any]:
    """Return the client's settings. No message contains the value of an option.

    Raises an ImportError without a client, and a ValueError if something is not allowed.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "write_kafka needs the package confluent-kafka on the driver: pip install "
            "'holdfast-spark[kafka]'"
        ) from error
    options = {name: _of_python(value) for name, value in (given or {}).items()}
    for name, text in (
        ("topic", topic),
        ("transactional_id", transactional_id),
        ("bootstrap_servers", bootstrap_servers),
    ):
        if not isinstance(text, str) or not text:
            raise not_allowed(name, text, "a string that is not empty")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise not_allowed("topic", topic, "1 to 249 of letters, digits, '.', '_' and '-'")
    require_one_of("unsettled", unsettled, get_args(Unsettled))
    timeout = options.get("transaction.timeout.ms", 1)
    if not str(timeout).isdecimal():
        raise not_allowed("transaction.timeout.ms", timeout, "a number of milliseconds")
    for name in options:
        if not isinstance(name, str):
            raise ValueError(f"options of write_kafka have names that are strings, found {name!r}")
        if name.startswith("kafka."):
            raise ValueError(
                f"option {name!r} of write_kafka: expected a name of librdkafka, without Spark's "
                f"prefix: {name.removeprefix('kafka.')!r}"
            )
        if name in _JAVA_ONLY or name.startswith(("ssl.truststore.", "ssl.keystore.type")):
            raise ValueError(
                f"option {name!r} of write_kafka is one of Java's clients; librdkafka has "
                f"{_JAVA_ONLY.get(name, 'ssl.ca.location')} in its place"
            )
        if name in FIXED:
            raise ValueError(f"option {name!r} is not allowed: write_kafka sets it itself")
    return {**options, "bootstrap.servers": bootstrap_servers}


def _of_python(value: Any) -> Any:
    """Return a number of NumPy as Python's, which clients in C demand."""
    return value.item() if type(value).__module__ == "numpy" else value
