"""Rows as records of Kafka: the columns that make a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RecordColumns:
    """Columns that a record is made of, as Spark's sink for Kafka has them.

    `value` and `key` are strings or bytes; null is a tombstone, or no key. `headers` are lists of
    structs with a string `key` and bytes or a string `value`. `partition` is a 32-bit number; null
    lets the partitioner choose.
    """

    value: str
    key: str | None = None
    headers: str | None = None
    partition: str | None = None

    def require_fit(self, schema: pa.Schema) -> None:
        """Raise ValueError if a column is not there, has another type, or goes nowhere."""
        import pyarrow as pa

        allowed = {
            "value": (self.value, _is_text, "binary or string"),
            "key": (self.key, _is_text, "binary or string"),
            "partition": (self.partition, pa.types.is_int32, "int32 (Spark's int)"),
            "headers": (self.headers, _is_headers, "list<struct<key: string, value: binary>>"),
        }
        for what, (column, fits, expected) in allowed.items():
            if column is None:
                continue
            if column not in schema.names:
                raise ValueError(
                    f"{what}={column!r} of write_kafka is not among the columns of its "
                    f"rows: {', '.join(schema.names)}"
                )
            found = schema.field(column).type
            if not fits(found):
                raise ValueError(
                    f"column {column!r} has the type {found}, and as the {what} of records it must "
                    f"have {expected}: cast it, or encode it before"
                )
        named = [column for column, _, _ in allowed.values() if column is not None]
        if len(set(named)) < len(named):
            raise ValueError(f"write_kafka names a column twice: {', '.join(named)}")
        if left := [name for name in schema.names if name not in named]:
            raise ValueError(
                f"columns {', '.join(left)} would not be in any record: name them as key, value, "
                "headers or partition of write_kafka, or leave them out"
            )

    def of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Yield the rows as arguments of ``confluent_kafka.Producer.produce``."""

        def listed(column: str | None) -> list[Any]:
            return [None] * batch.num_rows if column is None else batch.column(column).to_pylist()

        values, keys = listed(self.value), listed(self.key)
        if self.headers is None and self.partition is None:
            for value, key in zip(values, keys, strict=True):
                yield {"value": value, "key": key}
            return
        headers = listed(self.headers)
        for value, key, header, part in zip(
            values, keys, headers, listed(self.partition), strict=True
        ):
            record: dict[str, Any] = {"value": value, "key": key}
            if header:
                record["headers"] = [(one["key"], one["value"]) for one in header]
            if part is not None:
                record["partition"] = part
            yield record


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    return found in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())


def _is_headers(found: pa.DataType) -> bool:
    import pyarrow as pa

    if not pa.types.is_list(found) or not pa.types.is_struct(found.value_type):
        return False
    fields = {field.name: field.type for field in found.value_type}
    return (
        fields.keys() == {"key", "value"}
        and fields["key"] in (pa.string(), pa.large_string())
        and _is_text(fields["value"])
    )
