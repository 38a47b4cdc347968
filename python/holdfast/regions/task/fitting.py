"""Rows in the form of a schema, as far as no value changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat


def batches_of(rows: object) -> list[pa.RecordBatch] | None:
    """Return the batches that a batch or a table is made of; None if it is neither."""
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    return rows.to_batches() if isinstance(rows, pa.Table) else None


def type_name(value: object) -> str:
    """Return the name of a value's class as users know it, such as ``pandas.DataFrame``."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__ if package in ("builtins", "") else f"{package}.{kind.__qualname__}"


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with exactly this schema.

    Equal values in another form are cast: instants in another time zone or unit, smaller integers
    and floats, integers as decimals, other layouts of strings, binary values, lists and
    dictionaries, extension types to their storage or back, columns and fields in another order,
    columns declared with or without nulls.

    Raises a TypeError if a column is another one, or a cast might change some value. Its message
    lists the differences, in the form ``column 'v' is int64, expected int32``.
    """
    from holdfast.regions.base.normal_form import normal_form

    batch = normal_form(batch)
    if batch.schema.equals(schema):
        return batch
    if sorted(batch.schema.names) != sorted(schema.names):
        raise TypeError(f"the columns are {batch.schema.names}, expected {schema.names}")
    columns, wrong = [], []
    for field in schema:
        column = batch.column(field.name)
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
    """Say whether every value of a type that Arrow casts is the same value in another one."""
    if found == wanted or pat.is_null(found):
        return True
    if isinstance(found, pa.BaseExtensionType):
        return _keeps_values(found.storage_type, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return _keeps_values(found, wanted.storage_type)
    if pat.is_dictionary(found) or pat.is_dictionary(wanted):
        return _keeps_values(_values(found), _values(wanted))
    for is_kind in (_is_string, _is_binary, pat.is_date, pat.is_duration, pat.is_time):
        if is_kind(found) and is_kind(wanted):
            return True
    if _is_number(found) and _is_number(wanted):
        return _fits_number(found, wanted)
    if pat.is_integer(found) and pat.is_decimal(wanted):
        digits = {8: 3, 16: 5, 32: 10, 64: 20 - pat.is_signed_integer(found)}[found.bit_width]
        return bool(wanted.precision - wanted.scale >= digits)
    if pat.is_decimal(found) and pat.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(whole and wanted.scale >= found.scale)
    # Even in a coarser unit: Arrow refuses to cast values with a fraction.
    if pat.is_timestamp(found) and pat.is_timestamp(wanted):
        # An instant is the same one in every zone; a time without a zone is no known instant.
        return (found.tz is None) == (wanted.tz is None)
    return _keeps_nested(found, wanted)


def _keeps_nested(found: Any, wanted: Any) -> bool:
    if _is_list(found) and _is_list(wanted):
        parts = [(found.value_field, wanted.value_field)]
    elif pat.is_map(found) and pat.is_map(wanted):
        parts = [(found.key_field, wanted.key_field), (found.item_field, wanted.item_field)]
    elif pat.is_struct(found) and pat.is_struct(wanted):
        names = [part.name for part in wanted]
        if sorted(part.name for part in found) != sorted(names) or len(set(names)) < len(names):
            return False
        parts = [(found.field(name), wanted.field(name)) for name in names]
    else:
        return False
    return all(
        (inner.nullable or not outer.nullable) and _keeps_values(outer.type, inner.type)
        for outer, inner in parts
    )


def _values(kind: Any) -> Any:
    return kind.value_type if pat.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    kinds = (pat.is_list, pat.is_large_list, pat.is_list_view, pat.is_large_list_view)
    return bool(pat.is_fixed_size_list(kind) or any(is_kind(kind) for is_kind in kinds))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind))


def _fits_number(found: Any, wanted: Any) -> bool:
    if pat.is_floating(found):
        return bool(pat.is_floating(wanted) and wanted.bit_width >= found.bit_width)
    bits = found.bit_width - pat.is_signed_integer(found)
    if pat.is_floating(wanted):
        return bool(bits <= {16: 11, 32: 24, 64: 53}[wanted.bit_width])
    if pat.is_signed_integer(found) and not pat.is_signed_integer(wanted):
        return False
    return bool(wanted.bit_width - pat.is_signed_integer(wanted) >= bits)
