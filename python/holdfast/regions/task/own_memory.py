"""Memory of rows: the rows that an operator puts out do not change afterwards (R90).

Arrow takes over the memory of a NumPy array without a copy. So rows made from an array would change
with it as long as they wait: between operators, in the next operator, in the sink and in the
in-flight data of a checkpoint. Nothing tells whether Python code can still write to a buffer: a
read-only view may be on a writable array, and the buffer does not name its owner. But no operator
writes to the buffers of its input rows, which went through here, or are from the source. So these
buffers are not copied. Everything else is copied once, which is cheap next to computing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.types as pat

from holdfast.regions.sinks.readable import kinds_of


class OwnMemory:
    """Gives rows of one schema memory that only Arrow refers to."""

    def __init__(self, schema: pa.Schema) -> None:
        kinds = [list(kinds_of(field.type)) for field in schema]
        # A record batch in Arrow's IPC format lacks its dictionaries; a stream has them.
        self._dictionaries = [any(map(pat.is_dictionary, each)) for each in kinds]
        # Arrow names the buffers of a dictionary only if the column itself is one.
        self._hidden = [any(map(pat.is_dictionary, each[1:])) for each in kinds]

    def of(self, batch: pa.RecordBatch, *, given: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the rows in memory that no operator changes: `batch` itself if it needs no copy.

        No operator changes `given`, so columns in its buffers are not copied.
        """
        if batch is given:
            return batch
        known = {} if given is None else dict(_places(given.columns))
        columns = batch.columns
        foreign = [
            number
            for number, column in enumerate(columns)
            if self._hidden[number] or not _lies_in(known, column)
        ]
        if not foreign:
            return batch
        fields = pa.schema([batch.schema.field(number) for number in foreign])
        chosen = pa.RecordBatch.from_arrays([columns[number] for number in foreign], schema=fields)
        dictionaries = any(self._dictionaries[number] for number in foreign)
        copied = _through_stream(chosen) if dictionaries else _through_message(chosen)
        for number, column in zip(foreign, copied.columns, strict=True):
            columns[number] = column
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _through_message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy rows, without other memory around them, into one piece of memory."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _through_stream(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        return stream.read_next_batch()


def _lies_in(known: dict[int, int], column: pa.Array) -> bool:
    return all(size <= known.get(address, 0) for address, size in _places([column]))


def _places(columns: Iterable[pa.Array]) -> Iterator[tuple[int, int]]:
    """Return address and size of every buffer that is not empty."""
    for column in columns:
        if isinstance(column, pa.DictionaryArray):
            yield from _places([column.indices, column.dictionary])
            continue
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address, buffer.size
