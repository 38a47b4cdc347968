"""Files that tests hand to regions, and the expected work of a pipeline over them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import holdfast
from holdfast._core import CheckpointMetadata
from holdfast.regions.splits import FileSplit, SplitReader
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from support.regional.hooks import Hooked, Hooks

IDS = pa.schema([("id", pa.int64())])
PLACED = pa.schema([("id", pa.int64()), ("region", pa.string()), ("seen", pa.int64())])
GROUP_ROWS = 10


def write_ids(folder: Path, number: int, *, rows: int = 40, schema: pa.Schema = IDS) -> range:
    """Write a file of ids that no other one has, in row groups; returns the ids."""
    ids = range(number * 1000, number * 1000 + rows)
    folder.mkdir(parents=True, exist_ok=True)
    hidden, path = folder / f".{number}", folder / f"{number:04}.parquet"
    pq.write_table(
        pa.table([pa.array(ids, schema.field(0).type)], schema), hidden, row_group_size=GROUP_ROWS
    )
    # A known time, by which files are read in the order of their numbers.
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(path)
    return ids


class Placed(Hooked):
    """Puts out the region that read a row, and its number of rows so far."""

    region_safe = True

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        ids = batch.column("id").to_pylist()
        seen = list(range(self.rows.value + 1, self.rows.value + 1 + len(ids)))
        self.rows.value += len(ids)
        yield pa.RecordBatch.from_pydict(
            {"id": ids, "region": [self.region] * len(ids), "seen": seen}, schema=PLACED
        )


def splits_of(path: Path, **options: Any) -> holdfast.FileSplits:
    """A source whose splits are single row groups."""
    return holdfast.FileSplits(
        path / "in", IDS, **{"regions": 3, "split_bytes": 1, "splits_per_region": 2, **options}
    )


def open_pipeline(
    path: Path,
    source: dict[str, Any] | None = None,
    *,
    hooks: Hooks | None = None,
    **options: Any,
) -> holdfast.LocalQuery:
    """Open a pipeline over `splits_of(path)`, with its checkpoint and output next to the input."""
    return (
        holdfast.regional(splits_of(path, **(source or {})))
        .apply(Placed(hooks), schema=PLACED, name="placed")
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **options)
    )


def fail_on(hooks: Hooks, value: int) -> None:
    """Let every region fail that is given this id."""

    def trouble(region: str, ids: Sequence[int]) -> None:
        if value in ids:
            raise RuntimeError(f"{value} is poison")

    hooks.on_rows = trouble


def output_of(path: Path) -> list[dict[str, Any]]:
    """All rows that a reader of the output sees."""
    rows: list[dict[str, Any]] = ds.dataset(path / "out", format="parquet").to_table().to_pylist()
    return rows


def read_ids(path: Path) -> list[int]:
    """All ids that a reader of the output sees."""
    return sorted(row["id"] for row in output_of(path))


def pool_of(metadata: CheckpointMetadata) -> list[FileSplit]:
    """Splits that no region has in a checkpoint."""
    content = json.loads(metadata.coordinators[SOURCE_OPERATOR])
    return [
        FileSplit.of_json({k: v for k, v in fields.items() if k not in ("failures", "region")})
        for fields in content["pool"]
    ]


def ids_in(path: Path, splits: Sequence[FileSplit]) -> Counter[int]:
    """Ids of all rows of the splits."""
    reader = SplitReader(path / "in", "parquet", IDS)
    return Counter(
        value
        for split in splits
        for _, batch in reader.read(split)
        for value in batch.column(0).to_pylist()
    )


def check_places(path: Path, metadata: CheckpointMetadata, discovered: Sequence[int]) -> None:
    """Every split is in exactly one place of the checkpoint (R32).

    Rows that regions read are in the output: pipelines that wait for all rows have none in flight.
    """
    rows = output_of(path)
    assert not any(entry.in_flight for entry in metadata.regions.values())
    in_states = Counter(row["id"] for row in rows)
    assert in_states + ids_in(path, pool_of(metadata)) == Counter(discovered)
    by_region: dict[str, list[int]] = {}
    for row in rows:
        by_region.setdefault(row["region"], []).append(row["seen"])
    # The state of a region continues the checkpoint: no row twice, none left out.
    for seen in by_region.values():
        assert sorted(seen) == list(range(1, len(seen) + 1))


def gateway(deliver: Callable[[str, bytes], None]) -> holdfast.EventGateway:
    """Make a gateway of a coordinator that no driver runs."""
    return holdfast.EventGateway(deliver, nullcontext(), frozenset)
