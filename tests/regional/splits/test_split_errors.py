"""The error of a region that can never pass a row names the row's file, split and range."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from support.regional.hooks import Hooks
from support.regional.split_files import (
    PLACED,
    Placed,
    fail_on,
    open_pipeline,
    splits_of,
    write_ids,
)

SHORT: dict[str, Any] = {"max_region_staleness": (4, timedelta(hours=1))}


def test_an_operator_that_raises_is_told_with_split_and_rows(tmp_path: Path, hooks: Hooks) -> None:
    write_ids(tmp_path / "in", 1)
    write_ids(tmp_path / "in", 2)
    fail_on(hooks, 1015)
    with (
        open_pipeline(tmp_path, hooks=hooks, **SHORT) as query,
        pytest.raises(holdfast.RegionalQueryError) as caught,
    ):
        query.run_available()
    headline, *rest = str(caught.value).splitlines()
    rows = "with rows 10 to 19 of '0001.parquet', row groups 1 to 1"
    assert rows in headline
    assert rows in rest[0]
    causes = [failed.cause for record in query.history() for failed in record.failed]
    assert causes
    assert all(rows in cause for cause in causes[-2:])


@pytest.mark.parametrize("poison", [0, 70_000, 99_999])
def test_in_a_large_split_the_range_is_that_of_the_batch_at_hand(
    tmp_path: Path, hooks: Hooks, poison: int
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": range(100_000)}), tmp_path / "in" / "a")
    fail_on(hooks, poison)
    with (
        open_pipeline(tmp_path, {"regions": 1}, hooks=hooks) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"with rows \d+ to \d+ of 'a'") as caught,
    ):
        query.run_available()
    words = str(caught.value).split("with rows ")[1].split()
    first, last = int(words[0]), int(words[2])
    assert first <= poison <= last
    assert last - first < 16_384


class Spread(Placed):
    """Passes rows on in pieces, to instances that fail."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for one in super().process(batch):
            for first in range(0, one.num_rows, 3):
                yield one.slice(first, 3)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_later_operator_is_told_with_the_rows_that_it_may_have(
    tmp_path: Path, hooks: Hooks, parallelism: int
) -> None:
    write_ids(tmp_path / "in", 1)
    fail_on(hooks, 1025)
    route = {"parallelism": parallelism, "route_by": "id"} if parallelism > 1 else {}
    pipeline = (
        holdfast.regional(splits_of(tmp_path))
        .apply(Spread(), schema=PLACED, name="spread")
        .apply(Placed(hooks), schema=PLACED, name="placed", **route)
        .write_parquet(tmp_path / "out")
    )
    with (
        pipeline.open_local(tmp_path / "ckpt", **SHORT) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"with rows 20 to 29 of '0001\.parquet'"),
    ):
        query.run_available()


class Misfit(Placed):
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for one in super().process(batch):
            if 1015 in one.column("id").to_pylist():
                one = one.set_column(1, "region", pa.array([1.5] * one.num_rows))
            yield one


def test_output_that_does_not_fit_is_told_with_its_rows(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 1)
    pipeline = (
        holdfast.regional(splits_of(tmp_path))
        .apply(Misfit(), schema=PLACED, name="placed")
        .write_parquet(tmp_path / "out")
    )
    with (
        pipeline.open_local(tmp_path / "ckpt", **SHORT) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"with rows 10 to 19 of '0001\.parquet'"),
    ):
        query.run_available()


def test_a_region_that_hangs_is_told_with_its_rows(tmp_path: Path, hooks: Hooks) -> None:
    write_ids(tmp_path / "in", 1)
    go_on = threading.Event()

    def hang(region: str, ids: Sequence[int]) -> None:
        if 1015 in ids:
            go_on.wait(60)

    hooks.on_rows = hang
    timeout = timedelta(seconds=2)
    try:
        with open_pipeline(tmp_path, hooks=hooks, region_timeout=timeout) as query:
            query.run_available(max_batches=1)
            (failed,) = query.history()[-1].failed
            assert "with rows 10 to 19 of '0001.parquet', row groups 1 to 1" in failed.cause
    finally:
        go_on.set()


def test_several_splits_are_named(tmp_path: Path, hooks: Hooks) -> None:
    for number in range(1, 6):
        write_ids(tmp_path / "in", number, rows=10)
    fail_on(hooks, 3000)
    with (
        open_pipeline(
            tmp_path, {"regions": 1, "splits_per_region": 10, "split_bytes": 10_000}, hooks=hooks
        ) as query,
        pytest.raises(
            holdfast.RegionalQueryError,
            match=r"with rows 0 to 9 of '0001\.parquet' and rows 0 to 9 of .* and 2 more",
        ),
    ):
        query.run_available()


def test_rows_that_failed_before_are_not_blamed_for_a_split_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    write_ids(tmp_path / "in", 1)
    (tmp_path / "in" / "bad").write_text("no Parquet")
    with (
        open_pipeline(tmp_path, {"regions": 1, "splits_per_region": 10}) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"'bad' in .* cannot be read") as caught,
    ):
        query.run_available()
    assert "with rows" not in str(caught.value)
