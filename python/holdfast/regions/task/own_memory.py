"""Memory of rows: what an operator puts out is as it was at that moment (R90).

Arrow takes over the memory of a NumPy array without a copy. So rows that were made from an array
would change with it as long as they wait: between operators, in the next operator, in the sink and
in the in-flight data of a checkpoint. Whether Python code can still write to some buffer cannot be
asked for: a view that cannot be written to lies on an array that can, and the buffer does not say
whose it is. What is known is the opposite. The buffers of the rows that an operator was given are
written to by no operator: those rows came through here, or from the source. So these pass, and
everything else is copied once, which is little beside what computed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class OwnMemory:
    """Gives rows of one schema memory that only Arrow refers to.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        # A record batch in Arrow's IPC format lacks its dictionaries; a stream has them.
        self._dictionaries = [_has_dictionary(field.type) for field in schema]
        # Arrow names the buffers of a dictionary only where the column itself is one.
        self._hidden = [any(map(_has_dictionary, _parts(field.type))) for field in schema]

    def of(self, batch: pa.RecordBatch, *, given: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the same rows in memory that no operator changes.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows that an operator may go on changing.
        given : pyarrow.RecordBatch or None
            Rows that no operator changes: columns that lie in their buffers are not copied.

        Returns
        -------
        pyarrow.RecordBatch
            `batch` itself where nothing has to be copied.
        """
        import pyarrow as pa

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
    """Copy rows, and nothing that lies around them, into one piece of memory."""
    import pyarrow as pa

    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _through_stream(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        return stream.read_next_batch()


def _lies_in(known: dict[int, int], column: pa.Array) -> bool:
    return all(size <= known.get(address, 0) for address, size in _places([column]))


def _places(columns: Iterable[pa.Array]) -> Iterator[tuple[int, int]]:
    """Return address and size of every buffer that is not empty."""
    import pyarrow as pa

    for column in columns:
        if isinstance(column, pa.DictionaryArray):
            yield from _places([column.indices, column.dictionary])
            continue
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address, buffer.size


def _has_dictionary(kind: pa.DataType) -> bool:
    import pyarrow.types as pat

    return bool(pat.is_dictionary(kind)) or any(map(_has_dictionary, _parts(kind)))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types that a type is made of."""
    import pyarrow as pa
    import pyarrow.types as pat

    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return [kind.value_type]
    return [kind.field(number).type for number in range(kind.num_fields)]
