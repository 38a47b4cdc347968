"""A pipeline that writes to a topic, and a reader of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import holdfast as hf
from support.regional.hooks import Hooks
from support.regional.pipelines import Troubled, partitions_of, rows_of

REGIONS = ["r00", "r01", "r02", "r03"]
BATCHES = [rows_of(number, REGIONS) for number in range(5)]
RECORDS = pa.schema([("key", pa.string()), ("value", pa.binary())])
PARTITIONS = 2


class AsRecords(Troubled):
    """Puts out a record for each row: its region, and all of it as JSON."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for rows in super().process(batch):
            values = [json.dumps(list(row.values())).encode() for row in rows.to_pylist()]
            yield pa.RecordBatch.from_pydict(
                {"key": rows.column("region"), "value": values}, schema=RECORDS
            )


def open_pipeline(
    servers: str,
    topic: str,
    checkpoint: Path,
    *,
    transactional_id: str | None = None,
    hooks: Hooks | None = None,
    kafka: dict[str, Any] | None = None,
    unsettled: Any = "fail",
    **options: Any,
) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(AsRecords(hooks), schema=RECORDS, name="count")
        .write_kafka(
            topic,
            bootstrap_servers=servers,
            transactional_id=transactional_id or f"of-{topic}",
            key="key",
            options=kafka,
            unsettled=unsettled,
        )
        .open_local(checkpoint, **options)
    )


def run(query: hf.LocalQuery, count: int, *, first: int = 0) -> None:
    for number in range(first, count):
        query.run_batch(partitions_of(BATCHES[number], 2), batch_id=number)


def new_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)])
    asked[name].result(60)


def read_committed(servers: str, topic: str) -> list[tuple[Any, ...]]:
    """All rows that a consumer with this isolation level sees, in the form of `pipelines.expected`.

    Raises an AssertionError if a key is not the record's region, or a region's rows are out of
    order.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    rows: list[tuple[Any, ...]] = []
    try:
        consumer.assign([TopicPartition(topic, part, 0) for part in range(PARTITIONS)])
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                at_end.add(message.partition())
                continue
            row = tuple(json.loads(message.value()))
            assert message.key().decode() == row[0]
            rows.append(row)
    finally:
        consumer.close()
    return rows


def in_order(rows: Sequence[tuple[Any, ...]]) -> bool:
    """True if each region's rows are in the order of their counts."""
    seen: dict[str, int] = {}
    for region, _, count, _ in rows:
        if count <= seen.get(region, 0):
            return False
        seen[region] = count
    return True
