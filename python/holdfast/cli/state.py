"""``holdfast state``: the rows of a query's state, and queries of them in SQL."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import folders
from holdfast.cli.output import exported_rows, report
from holdfast.cli.output.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.queries.opened_state import OpenedState


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    folders.add_argument(command, of=" of the query")
    command.add_argument(
        "--operator", type=int, default=0, metavar="N", help="number of the operator (default: 0)"
    )
    command.add_argument("--store", metavar="NAME", help="store, for operators with several")
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument(
        "--batch", type=int, metavar="N", help="the state after this batch (default: the newest)"
    )
    chosen.add_argument("--tag", metavar="NAME", help="the state of this tag")
    asked = command.add_mutually_exclusive_group()
    asked.add_argument("--where", metavar="EXPRESSION", help="only rows for which this SQL is true")
    asked.add_argument(
        "--sql", metavar="QUERY", help="the rows of this query, which reads the table `state`"
    )
    written = command.add_mutually_exclusive_group()
    written.add_argument("--json", action="store_true", help="print rows as lines of JSON")
    written.add_argument("--parquet", metavar="FILE", help="write rows to a new Parquet file")


def show(arguments: argparse.Namespace) -> None:
    """Print rows of the state, or write them; see `open_state` for errors.

    FileExistsError if the Parquet file exists. ValueError if DuckDB cannot run the query.
    """
    from holdfast.queries.opened_state import open_state

    with open_state(
        arguments.folder,
        batch=arguments.batch,
        operator=arguments.operator,
        store=arguments.store,
        tag=arguments.tag,
    ) as state:
        print(f"holdfast: state of batch {state.batch_id}", file=sys.stderr)
        rows = _asked(state, arguments.where, arguments.sql)
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
