"""The state of one variable of `transformWithState` in Avro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from holdfast._core import CorruptSegmentError
from holdfast.queries.store_forms import Fields, StoreForm
from holdfast.reading.opened_state import OpenedState
from holdfast.reading.spark_types import arrow_type
from holdfast.reading.state_differences import distinct
from holdfast.reading.store_state import OperatorState, open_store

#: Types of Arrow as Spark has them in Avro (``SchemaConverters.toAvroTypeWithDefaults``).
_SIMPLE: Final[Mapping[Any, str]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.date32(): "int",
    pa.int64(): "long",
    pa.timestamp("us", tz="UTC"): "long",
    pa.timestamp("us"): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}

#: A zero and the number of a schema (2 bytes, little-endian) precede a record.
_HEADER: Final = 3


class AvroState(OpenedState):
    """The state of one variable of `transformWithState` in Avro; see `OpenedState`.

    Values have the newest schema of the batch.
    """

    def __init__(self, of: OperatorState, name: str) -> None:
        form = of.description.form(name)
        self._keys, self._values = _struct(form.keys), _struct(form.values)
        schema = pa.schema([*distinct([*self._keys, *self._values])])
        super().__init__(of.folder, of.batch_id, schema, len(form.keys))
        self._records = _Records(form)
        self._entries = open_store(of, name, whole=True)

    def close(self) -> None:
        """See `OpenedState`."""
        super().close()
        self._entries.close()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._entries)

    def _scanned(self, prefix: list[Any] | None) -> Iterator[Any]:
        # The scan may outlive this object, so it begins now.
        return map(self._batch, self._entries.scan())

    def _batch(self, entries: Any) -> Any:
        keys, values = (column.to_pylist() for column in entries.columns)
        try:
            rows = [*map(self._records.key, keys)], [*map(self._records.value, values)]
        except UnicodeDecodeError:
            said = f"{self._folder}: a text is not UTF-8, and Arrow has no other text"
            raise NotImplementedError(said) from None
        except (EOFError, IndexError, ValueError) as error:
            raise CorruptSegmentError(
                f"{self._folder}: a row in Avro is not one of its schema ({error!r}): put the "
                "checkpoint back from a copy"
            ) from None
        kinds = (self._keys, self._values)
        structs = [pa.array(found, kind) for found, kind in zip(rows, kinds, strict=True)]
        arrays = [column for struct in structs for column in struct.flatten()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Records:
    """Reads keys and values. Raises an ImportError without fastavro."""

    def __init__(self, form: StoreForm) -> None:
        try:
            from fastavro import parse_schema, schemaless_reader
        except ImportError as error:
            raise ImportError(
                "state in Avro needs the package fastavro: pip install 'holdfast-spark[avro]'"
            ) from error

        def record(fields: Fields) -> Any:
            return parse_schema(_avro_type("row", _struct(fields))[1])

        self._read: Callable[..., Any] = schemaless_reader
        self._prefix = form.prefix and record(form.keys[: form.prefix])
        self._key = record(form.keys[form.prefix or 0 :])
        newest = record(form.values)
        # The schema that wrote a value, and the one to read it with if that is another one.
        self._values = {
            number: (record(fields), newest if fields != form.values else None)
            for number, fields in form.versions.items()
        }

    def key(self, key: bytes) -> Any:
        """Read a key. Columns that the store keeps together for scans are by themselves."""
        if not self._prefix:
            return self._record(key, _HEADER, self._key)
        end = 4 + int.from_bytes(key[:4], "little")
        first = self._record(key[4:end], 1, self._prefix)
        return first | self._record(key[end:], _HEADER, self._key)

    def value(self, value: bytes) -> Any:
        """Read a value. Fields that its schema did not have yet are null."""
        number = int.from_bytes(value[1:_HEADER], "little")
        if number not in self._values:
            raise ValueError(f"no schema of values has the number {number}")
        return self._record(value, _HEADER, *self._values[number])

    def _record(self, row: bytes, start: int, written: Any, wanted: Any = None) -> Any:
        if row[:1] != b"\0":
            raise ValueError("unknown version")
        stream = BytesIO(row[start:])
        found = self._read(stream, written, wanted)
        if stream.read(1):
            raise ValueError("bytes follow it")
        return found


def _struct(fields: Fields) -> Any:
    return pa.struct([(one["name"], arrow_type(one["name"], one["type"])[0]) for one in fields])


def _avro_type(path: str, kind: Any) -> Any:
    """Return the type of Avro for a type of Arrow, with the names of fields as names of records.

    Raises a NotImplementedError, with the path of the field, for a type that Spark does not write.
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        size = ((10**kind.precision).bit_length() + 8) // 8
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": path, "size": size, "logicalType": "decimal", **digits}
    if pa.types.is_struct(kind):
        fields = []
        for field in kind:
            found = _avro_type(f"{path}.{field.name}", field.type)
            found = found if found == "null" or isinstance(found, list) else ["null", found]
            fields.append({"name": field.name, "type": found, "default": None})
        return ["null", {"type": "record", "name": path, "fields": fields}]
    if pa.types.is_list(kind):
        return ["null", {"type": "array", "items": _avro_type(f"{path}.item", kind.value_type)}]
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return ["null", {"type": "map", "values": _avro_type(f"{path}.value", kind.item_type)}]
    raise NotImplementedError(f"{path}: state in Avro cannot have the type {kind}")
