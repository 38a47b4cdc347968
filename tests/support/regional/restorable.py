"""A pipeline with state that does not fit into metadata, for tests of savepoints and restore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast._core import CheckpointMetadata
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Row, Troubled, partitions_of, rows_of

REGIONS = [f"r{number:02}" for number in range(4)]
ITEMS = 1_000


class Counting(Troubled):
    """Counts rows also in every item of an array of 8,000 bytes."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.copies = ctx.state.array("copies", shape=(ITEMS,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield from super().process(batch)
        self.copies += batch.num_rows
        if self.copies[0] != self.rows.value or self.copies[-1] != self.rows.value:
            raise AssertionError(f"{self.region}: an array is not as old as a value")


def open_pipeline(
    path: Path, *, checkpoint: str = "ckpt", hooks: Hooks | None = None, **options: Any
) -> hf.LocalQuery:
    """The pipeline with its folders in `path`."""
    output = options.pop("output", "out")
    return (
        hf.regional(region_by="region")
        .apply(Counting(hooks), schema=COUNTED, name="count")
        .write_parquet(path / output)
        .open_local(path / checkpoint, **options)
    )


def batches(count: int) -> list[list[Row]]:
    """Rows of `count` batches."""
    return [rows_of(number, REGIONS) for number in range(count)]


def run(query: hf.LocalQuery, rows: Sequence[Sequence[Row]], *, first: int = 0) -> None:
    """Run these batches, from `first` to the end."""
    for number in range(first, len(rows)):
        query.run_batch(partitions_of(rows[number], 2), batch_id=number)


def damage(folder: Path) -> Path:
    """Change one byte of a segment that the latest checkpoint of a folder wrote."""
    latest = CheckpointMetadata.list(folder / "metadata")[-1]
    metadata = CheckpointMetadata.read(folder / "metadata" / f"{latest:016x}.hfc")
    pipeline = metadata.properties["pipeline"]
    _, origin, ref = metadata.segments(pipeline)[-1]
    assert origin == latest
    file = folder / "segments" / ref.file
    content = bytearray(file.read_bytes())
    content[ref.offset + ref.length // 2] ^= 1
    file.write_bytes(content)
    return file
