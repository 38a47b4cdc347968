"""A pipeline whose data ends, for tests of flushes and of finished regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Row, Troubled, expected, partitions_of, rows_of

REGIONS = [f"r{number:02}" for number in range(4)]

#: In a summary, in place of a row's id and of a count.
NONE = -1


class Summed(Troubled):
    """Puts out every row, and at the end of data one with the number of all rows."""

    hooks: Hooks

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.note("opened")

    def on_end_of_data(self) -> Iterator[pa.RecordBatch]:
        self.note("flushed")
        if self.hooks.on_flush is not None:
            self.hooks.on_flush(self.region)
        row = {"region": [self.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        # State that is changed by the flush is in the last checkpoint.
        self.rows.value = NONE
        yield pa.RecordBatch.from_pydict(row, schema=COUNTED)

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        self.note("told", checkpoint)

    def close(self) -> None:
        self.note("closed")

    def note(self, what: str, number: int = 0) -> None:
        self.hooks.seen.append((what, self.region, number))


def pipeline(path: Path, hooks: Hooks, **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Summed(hooks), schema=COUNTED, name="sum")
        .write_parquet(path / options.pop("output", "out"))
        .open_local(path / options.pop("checkpoint", "ckpt"), **options)
    )


def run(query: hf.LocalQuery, batches: Sequence[Sequence[Row]], *, first: int = 0) -> None:
    for number, rows in enumerate(batches[first:], start=first):
        query.run_batch(partitions_of(rows, 2), batch_id=number)


def batches_of(count: int) -> list[list[Row]]:
    return [rows_of(number, REGIONS) for number in range(count)]


def summaries(batches: Sequence[Sequence[Row]]) -> list[tuple[str, int, int, int]]:
    """The flushed rows of operators after these rows."""
    regions = sorted({row[0] for rows in batches for row in rows})
    return [
        (region, NONE, sum(row[0] == region for rows in batches for row in rows), NONE)
        for region in regions
    ]


def all_of(batches: Sequence[Sequence[Row]]) -> list[tuple[str, int, int, int]]:
    return sorted(expected(batches) + summaries(batches))


def finished(query: hf.LocalQuery) -> list[str]:
    return [region for region, entry in query.latest.regions.items() if entry.finished]
