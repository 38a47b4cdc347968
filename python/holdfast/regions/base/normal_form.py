"""The form in which rows are divided, joined and stored.

Arrow has several layouts for the same values, and not all of its functions take all of them: `take`
fails on views and run-end-encoded arrays, and IPC cannot send a dictionary of dictionaries. So rows
are brought into one form where they enter a pipeline and where an operator puts them out: strings
and binary values with offsets, one value for each row, lists without views, and dictionaries of
plain values that are not null, with indices of at least 32 bits. An extension type is kept if its
storage has this form; otherwise it becomes its storage.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types that its rows have in normal form."""
    fields = [field.with_type(normal_type(field.type)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def normal_form(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same values in normal form; the batch itself if it has that form.

    A column is unchanged if Arrow has no cast for it, such as a map of run-end-encoded values, or
    its offsets would not fit.
    """
    found = batch.schema.types
    wanted = [normal_type(kind) for kind in found]
    if wanted == found and not any(map(pat.is_dictionary, found)):
        return batch
    given = batch.columns
    columns = [normal_array(column) for column in given]
    if all(map(is_, columns, given)):
        return batch
    fields = [
        field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)
    ]
    schema = pa.schema(fields, metadata=batch.schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def normal_array(array: Any) -> pa.Array:
    """Return the same values in normal form, see `normal_form`."""
    return _cast(array, normal_type(array.type))


def normal_type(kind: Any) -> pa.DataType:
    """Return the normal form of a type."""
    if pat.is_primitive(kind) or pat.is_string(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        storage = normal_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_run_end_encoded(kind):
        return normal_type(kind.value_type)
    if pat.is_dictionary(kind):
        values = normal_type(kind.value_type)
        if values.num_fields or pat.is_dictionary(values):
            return values
        # Small indices would overflow where dictionaries of many batches are joined.
        index = pa.int32() if kind.index_type.bit_width < 32 else kind.index_type
        return pa.dictionary(index, values, ordered=kind.ordered)
    if pat.is_map(kind):
        return pa.map_(_normal(kind.key_field), _normal(kind.item_field), kind.keys_sorted)
    if pat.is_fixed_size_list(kind):
        return pa.list_(_normal(kind.value_field), kind.list_size)
    if pat.is_list(kind) or pat.is_list_view(kind):
        return pa.list_(_normal(kind.value_field))
    if pat.is_large_list(kind) or pat.is_large_list_view(kind):
        return pa.large_list(_normal(kind.value_field))
    return pa.struct([_normal(field) for field in kind]) if pat.is_struct(kind) else kind


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a batch by their numbers."""
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowException:
        # Every layout has slices. They are the second choice: there may be one for each row.
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        runs = np.split(rows, ends)
        return pa.concat_batches([batch.slice(int(run[0]), len(run)) for run in runs])


def _normal(field: pa.Field) -> pa.Field:
    return field.with_type(normal_type(field.type))


def _cast(array: Any, wanted: Any) -> pa.Array:
    kind = array.type
    try:
        if kind == wanted:
            if not pat.is_dictionary(kind) or not array.dictionary.null_count:
                return array
            # Arrow neither joins dictionaries with nulls nor writes them to Parquet files.
            return array.dictionary.take(array.indices).dictionary_encode().cast(kind)
        if isinstance(kind, pa.BaseExtensionType):
            return _cast(array.storage, wanted)
        if pat.is_run_end_encoded(kind):
            rows = np.arange(array.offset, array.offset + len(array))
            runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
            return _cast(array.values, wanted).take(pa.array(runs))
        if pat.is_struct(kind):
            parts = [_cast(array.field(at), wanted[at].type) for at in range(kind.num_fields)]
            fields = [of.with_type(part.type) for of, part in zip(kind, parts, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
        if pat.is_list(kind) or pat.is_large_list(kind):
            # The offsets of a slice cannot be combined with a mask.
            return _lists(array, array.offsets.to_numpy(), _cast(array.values, wanted.value_type))
        if pat.is_list_view(kind) or pat.is_large_list_view(kind):
            sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), array.sizes, 0)
            ends = np.cumsum(sizes)
            rows = np.arange(sizes.sum()) + np.repeat(array.offsets - (ends - sizes), sizes)
            values = _cast(array.values, wanted.value_type).take(pa.array(rows))
            return _lists(array, np.insert(ends, 0, 0), values)
        if not pat.is_dictionary(kind):
            return array.cast(wanted)
        if pat.is_dictionary(wanted) and not pat.is_dictionary(kind.value_type):
            values = _cast(array.dictionary, wanted.value_type)
            indices = array.indices.cast(wanted.index_type)
            made = pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)
            return _cast(made, made.type)
        return _cast(array.dictionary, wanted).take(array.indices)
    except pa.ArrowException:
        return array


def _lists(array: Any, offsets: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    """Return lists of these values, null where the lists of the array are null."""
    field = array.type.value_field.with_type(values.type)
    large = pat.is_large_list(array.type) or pat.is_large_list_view(array.type)
    made: Any = pa.LargeListArray if large else pa.ListArray
    kind, index = (pa.large_list, pa.int64()) if large else (pa.list_, pa.int32())
    return made.from_arrays(pa.array(offsets, index), values, kind(field), mask=array.is_null())
