"""Parked rows that the command line writes have the values, in every type and format of Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.cli.output import exported_rows
from support import environment
from support.spark.isolation_runs import found
from support.spark.typed_rows import VALUES


def in_json(line: bytes | str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(line, parse_float=_number)
    return read


def _number(text: str) -> Any:
    return Decimal(text) if len(text) > 20 else float(text)


def same(row: dict[str, Any], *, as_json: bool) -> None:
    for name, (_, of_json, of_arrow) in VALUES.items():
        wanted = of_json if as_json else of_arrow
        # Arrow names the class of a zone in its own way; NaN is not itself.
        assert row[name] == wanted or str(row[name]) == wanted, name


def test_rows_of_spark_are_written_as_they_are(
    spark: SparkSession, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in VALUES}
    full = [f"{value} AS {quoted[name]}" for name, (value, _, _) in VALUES.items()]
    frame = spark.range(1).selectExpr(*full)
    nothing = [F.when(F.lit(False), F.col(quoted[name])).alias(name) for name in VALUES]
    rows = frame.union(frame.select(*nothing))

    exported_rows.write_frame(rows, "json")
    first, last = (in_json(line) for line in capsysbinary.readouterr().out.splitlines())
    same(first, as_json=True)
    assert last == dict.fromkeys(VALUES)

    exported_rows.write_frame(rows, "arrow")
    whole = pa.ipc.open_stream(capsysbinary.readouterr().out).read_all()
    first, last = whole.to_pylist()
    same(first, as_json=False)
    assert last == dict.fromkeys(VALUES)

    exported_rows.write_frame(rows, "parquet")
    again = pq.read_table(pa.BufferReader(capsysbinary.readouterr().out))
    assert again.schema == whole.schema
    assert str(again.to_pylist()) == str(whole.to_pylist())


@pytest.mark.full
def test_parked_rows_are_written_as_they_are(tmp_path: Path) -> None:
    found(tmp_path / "parked", "--query", "typed", "bad:0-3")
    folder, letters = tmp_path / "parked" / "checkpoint", tmp_path / "letters"

    def holdfast(*arguments: object) -> bytes:
        command = [sys.executable, "-m", "holdfast", "parked", folder, *map(str, arguments)]
        return subprocess.run(command, env=environment(), check=True, capture_output=True).stdout

    lines = [in_json(line) for line in holdfast("--rows", "json").splitlines()]
    assert {row["key"] for row in lines} >= {"bad"}
    for row in lines:
        same(row, as_json=True)
    whole = pa.ipc.open_stream(holdfast("--rows", "arrow")).read_all()
    again = pq.read_table(pa.BufferReader(holdfast("--rows", "parquet")))
    (partition,) = {row["_partition"] for row in lines}
    holdfast("skip", "--partition", partition, "--where", "true", "--dead-letter", letters, "--yes")
    for table in (whole, again, pq.read_table(letters)):
        assert table.num_rows == len(lines)
        for row in table.to_pylist():
            same(row, as_json=False)
