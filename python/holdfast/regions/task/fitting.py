"""Rows in the form that a schema asks for, as far as no value changes by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_UNITS: Final = ("s", "ms", "us", "ns")


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with exactly this schema.

    What says the same in another form is cast: instants in another time zone or a coarser unit,
    smaller integers and floats, other layouts of strings, lists and dictionaries, columns that are
    declared to have nulls or not to have any.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Rows.
    schema : pyarrow.Schema
        What they are to be like.

    Raises
    ------
    TypeError
        If a column is another one, or a cast might change some value; the message is a list of the
        differences, in the form ``column 'v' is int64, expected int32``.
    """
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise TypeError(f"the columns are {batch.schema.names}, expected {schema.names}")
    columns, wrong = [], []
    for column, field in zip(batch.columns, schema, strict=True):
        if not field.nullable and column.null_count:
            wrong.append(
                f"column {field.name!r} has {column.null_count} nulls, expected none, since it is "
                "declared not null"
            )
            continue
        try:
            if not _keeps_values(column.type, field.type):
                raise TypeError
            columns.append(column.cast(field.type))
        except (TypeError, pa.ArrowException) as e:
            why = f" ({e})" if str(e) else ""
            wrong.append(f"column {field.name!r} is {column.type}, expected {field.type}{why}")
    if wrong:
        raise TypeError("; ".join(wrong))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _keeps_values(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether every value of a type is the same value in another one."""
    import pyarrow.types as pat

    if found == wanted or pat.is_null(found):
        return True
    if pat.is_dictionary(found):
        return _keeps_values(found.value_type, wanted)
    for is_kind in (_is_string, _is_binary, pat.is_date):
        if is_kind(found) and is_kind(wanted):
            return True
    if _is_number(found) and _is_number(wanted):
        return _fits_number(found, wanted)
    if pat.is_decimal(found) and pat.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(whole and wanted.scale >= found.scale)
    if pat.is_timestamp(found) and pat.is_timestamp(wanted):
        # An instant is the same one in every zone; without a zone it is not known which it is.
        return (found.tz is None) == (wanted.tz is None) and _finer(found, wanted)
    for is_kind in (pat.is_duration, pat.is_time):
        if is_kind(found) and is_kind(wanted):
            return _finer(found, wanted)
    return _keeps_nested(found, wanted)


def _keeps_nested(found: Any, wanted: Any) -> bool:
    import pyarrow.types as pat

    if _is_list(found) and _is_list(wanted):
        parts = [(found.value_field, wanted.value_field)]
    elif pat.is_map(found) and pat.is_map(wanted):
        parts = [(found.key_field, wanted.key_field), (found.item_field, wanted.item_field)]
    elif pat.is_struct(found) and pat.is_struct(wanted):
        if found.names != wanted.names:
            return False
        parts = list(zip(found.fields, wanted.fields, strict=True))
    else:
        return False
    return all(
        (inner.nullable or not outer.nullable) and _keeps_values(outer.type, inner.type)
        for outer, inner in parts
    )


def _is_string(kind: pa.DataType) -> bool:
    import pyarrow.types as pat

    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow.types as pat

    return bool(pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as pat

    return bool(pat.is_list(kind) or pat.is_large_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as pat

    return bool(pat.is_integer(kind) or pat.is_floating(kind))


def _fits_number(found: Any, wanted: Any) -> bool:
    import pyarrow.types as pat

    if pat.is_floating(found):
        return bool(pat.is_floating(wanted) and wanted.bit_width >= found.bit_width)
    bits = found.bit_width - pat.is_signed_integer(found)
    if pat.is_floating(wanted):
        return bool(bits <= {16: 11, 32: 24, 64: 53}[wanted.bit_width])
    if pat.is_signed_integer(found) and not pat.is_signed_integer(wanted):
        return False
    return bool(wanted.bit_width - pat.is_signed_integer(wanted) >= bits)


def _finer(found: Any, wanted: Any) -> bool:
    return _UNITS.index(wanted.unit) >= _UNITS.index(found.unit)
