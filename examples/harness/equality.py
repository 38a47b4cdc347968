"""Compare two results row by row, without tolerance."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

BATCH_FILE = "batch-{:06d}.parquet"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Outcome of one comparison.

    Attributes
    ----------
    digest_actual, digest_expected
        sha256 of the sorted rows as CSV text, in hexadecimal.
    difference
        First difference in words; empty if the results are equal.
    """

    rows_actual: int
    rows_expected: int
    digest_actual: str
    digest_expected: str
    difference: str

    @property
    def equal(self) -> bool:
        """True if schema and rows are equal."""
        return not self.difference


def write_batch(table: pa.Table, *, sink: Path, batch_id: int) -> None:
    """Write one batch so that writing it again leaves the same single file.

    The file gets its final name only when it is whole, so a killed writer leaves no partial batch.
    """
    target = sink / BATCH_FILE.format(batch_id)
    part = target.with_suffix(".part")
    pq.write_table(table, part)
    part.replace(target)


def read_batches(sink: Path) -> list[pa.Table]:
    """Read back the batches of a sink, oldest first, or raise ValueError without a batch."""
    found = [pq.read_table(path) for path in sorted(sink.glob("batch-*.parquet"))]
    if not found:
        raise ValueError(f"{sink}: expected the parquet file of at least one batch, found none")
    return found


def last_per_key(batches: list[pa.Table], *, key: str) -> pa.Table:
    """Reduce the updates of all batches to the last row of each key (null is a key too)."""
    last: dict[object, tuple[int, int]] = {}
    start = 0
    for number, table in enumerate(batches):
        for row, value in enumerate(table.column(key).to_pylist()):
            last[value] = (number, start + row)
        start += table.num_rows
    return pa.concat_tables(batches).take(pa.array([row for _, row in last.values()], pa.int64()))


def canonical(table: pa.Table) -> pa.Table:
    """Sort by all columns, so that equal sets of rows become equal tables.

    Drops the nullability of columns: a batch plan and a streaming plan may declare it
    differently for the same rows.
    """
    table = table.cast(pa.schema([(field.name, field.type) for field in table.schema]))
    keys = [(name, "ascending") for name in table.column_names]
    return table.sort_by(keys).combine_chunks()


def digest(table: pa.Table) -> str:
    """Return the sha256 of a table's rows as CSV text."""
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def compare(actual: pa.Table, expected: pa.Table) -> Comparison:
    """Compare two results as sets of rows with duplicates; nulls equal nulls."""
    left, right = canonical(actual), canonical(expected)
    return Comparison(
        rows_actual=left.num_rows,
        rows_expected=right.num_rows,
        digest_actual=digest(left),
        digest_expected=digest(right),
        difference=_difference(left, right),
    )


def _difference(actual: pa.Table, expected: pa.Table) -> str:
    if not actual.schema.equals(expected.schema):
        return f"expected columns {_columns(expected)}, found {_columns(actual)}"
    if actual.equals(expected):
        return ""
    for row in range(min(actual.num_rows, expected.num_rows)):
        if not actual.slice(row, 1).equals(expected.slice(row, 1)):
            found, wanted = actual.slice(row, 1).to_pylist(), expected.slice(row, 1).to_pylist()
            return f"sorted row {row}: expected {wanted[0]}, found {found[0]}"
    return f"expected {expected.num_rows} rows, found {actual.num_rows}"


def _columns(table: pa.Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.schema)
