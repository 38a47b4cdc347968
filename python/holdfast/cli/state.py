"""``holdfast state`` and ``holdfast diff``: the rows of state, and how they differ."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import folders
from holdfast.cli.output import exported_rows, report
from holdfast.cli.output.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.reading.opened_state import OpenedState


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    _add_store(command)
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="the state after this batch, or of this checkpoint (default: the newest)",
    )
    chosen.add_argument("--tag", metavar="NAME", help="the state of this tag")
    asked = command.add_mutually_exclusive_group()
    asked.add_argument("--where", metavar="EXPRESSION", help="only rows for which this SQL is true")
    asked.add_argument(
        "--sql", metavar="QUERY", help="the rows of this query, which reads the table `state`"
    )


def add_diff_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    _add_store(command)
    for name in ("before", "after"):
        command.add_argument(
            name,
            metavar=name.upper(),
            help="number of a batch, name of a tag, or folder of a branch (with a slash)",
        )


def _add_store(command: argparse.ArgumentParser) -> None:
    folders.add_argument(command, of=" of the query or regional pipeline")
    command.add_argument(
        "--operator",
        metavar="N",
        help="number of a query's operator (default: 0), or name of a pipeline's",
    )
    command.add_argument("--store", metavar="NAME", help="store, for operators with several")
    written = command.add_mutually_exclusive_group()
    written.add_argument("--json", action="store_true", help="print rows as lines of JSON")
    written.add_argument("--parquet", metavar="FILE", help="write rows to a new Parquet file")


def show(arguments: argparse.Namespace) -> None:
    """Print rows of the state, or write them; see `open_state` for errors.

    FileExistsError if the Parquet file exists. ValueError if DuckDB cannot run the query.
    """
    number = None if arguments.batch is None else str(arguments.batch)
    with _opened(arguments, arguments.tag or number) as state:
        print(f"holdfast: state of {state._unit} {state.batch_id}", file=sys.stderr)
        _put_out(_asked(state, arguments.where, arguments.sql), arguments)


def show_differences(arguments: argparse.Namespace) -> None:
    """Print how the state of two batches differs, or write it; errors as in `show` and `diff`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts: Counter[str] = Counter(added=0, removed=0, changed=0)

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in found:
            changes = pc.value_counts(batch.column(len(before.key_names)))
            counts.update({one["values"].as_py(): one["counts"].as_py() for one in changes})
            yield batch

    with (
        _opened(arguments, arguments.before) as before,
        _opened(arguments, arguments.after) as after,
    ):
        found = before.diff(after)
        rows = pa.RecordBatchReader.from_batches(found.schema, counted())
        _put_out(rows, arguments)
        for _ in rows:
            pass  # A table has the first rows only.
    sys.stdout.flush()
    said = ", ".join(f"{count} {change}" for change, count in counts.items())
    print(f"holdfast: batch {before.batch_id} to {after.batch_id}: {said}", file=sys.stderr)


def _opened(arguments: argparse.Namespace, text: str | None) -> OpenedState:
    """Open the state of a batch, by default the newest, of a tag, or of a branch."""
    from holdfast.reading.opening import open_state

    operator: str | None = arguments.operator
    where: dict[str, Any] = {"operator": operator, "store": arguments.store}
    if operator is not None and operator.isdecimal():
        where["operator"] = int(operator)
    folder = arguments.folder
    if text is not None and text.isdecimal():
        where["batch"] = int(text)
    elif text is not None and "/" in text:
        folder = text
    else:
        where["tag"] = text
    return open_state(folder, **where)


def _put_out(rows: pa.RecordBatchReader, arguments: argparse.Namespace) -> None:
    if arguments.json:
        for batch in rows:
            exported_rows.write(_table(batch), "json")
    elif arguments.parquet is not None:
        _write(rows, Path(arguments.parquet))
    else:
        _print(rows)


def _asked(state: OpenedState, where: str | None, sql: str | None) -> pa.RecordBatchReader:
    if where is None and sql is None:
        return state.scan()
    try:
        import duckdb
    except ImportError as error:
        raise OSError("--where and --sql need DuckDB: pip install duckdb") from error
    database = duckdb.connect()
    try:
        rows = database.from_arrow(state.scan())
        found = rows.query("state", sql) if sql is not None else rows.filter(str(where))
        if found is None:
            raise ValueError(f"{sql}: expected a query with rows")
        return found.to_arrow_reader()
    except duckdb.Error as error:
        raise ValueError(f"{sql or where}: {error}") from error


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _write(rows: pa.RecordBatchReader, file: Path) -> None:
    import pyarrow.parquet as pq

    schema = exported_rows.for_parquet(rows.schema.empty_table()).schema
    with file.open("xb") as to:
        try:
            with pq.ParquetWriter(to, schema) as written:
                for batch in rows:
                    written.write_table(exported_rows.for_parquet(_table(batch)))
        except BaseException:
            file.unlink()
            raise


def _print(rows: pa.RecordBatchReader) -> None:
    shown: list[list[str]] = []
    for batch in rows:
        shown += exported_rows.shown(_table(batch.slice(0, report.MAX_LINES + 1 - len(shown))))
        if len(shown) > report.MAX_LINES:
            said = f"the first {report.MAX_LINES} rows; --json and --parquet have all"
            print(f"holdfast: {said}", file=sys.stderr)
            break
    names = rows.schema.names
    report.print_table(Table(names, shown[: report.MAX_LINES], words=frozenset(names)))
