"""Regions whose operators end their data while other regions go on (R64)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from support.regional.ending import NONE, REGIONS, Summed, batches_of, finished, run, summaries
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, ROWS, Row, expected, output_of

#: In which batch which region ends.
ENDS = {1: "r01", 2: "r02"}


class Ending(Summed):
    """Ends the data of a region in its batch, before it counts or fails."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if ENDS.get(batch.column("id")[0].as_py() // 1000) == self.region:
            self.ctx.finish()
        yield from super().process(batch)


def pipeline(path: Path, hooks: Hooks, *, operators: int = 1, **options: Any) -> hf.LocalQuery:
    chain = hf.regional(region_by="region").apply(Ending(hooks), schema=COUNTED, name="sum")
    for number in range(1, operators):
        chain = chain.apply(Passes(), schema=COUNTED, name=f"pass-{number}")
    return chain.write_parquet(path / "out").open_local(path / "ckpt", **options)


class Passes(hf.Operator):
    """Passes rows on."""

    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def without_ended(count: int) -> list[list[Row]]:
    """Batches in which no region has rows after its end."""
    ended: set[str] = set()
    found = []
    for number, rows in enumerate(batches_of(count)):
        found.append([row for row in rows if row[0] not in ended])
        ended |= {ENDS[number]} if number in ENDS else set()
    return found


def all_of(batches: Sequence[Sequence[Row]]) -> list[tuple[str, int, int, int]]:
    """All rows, with what the regions that ended flushed."""
    ended = set(list(ENDS.values())[: max(len(batches) - 1, 0)])
    return sorted(expected(batches) + [row for row in summaries(batches) if row[0] in ended])


@pytest.mark.parametrize("operators", [1, 3])
@pytest.mark.parametrize("timeout", [None, timedelta(0)])
def test_a_region_ends_with_its_batch_and_the_others_go_on(
    tmp_path: Path, hooks: Hooks, operators: int, timeout: timedelta | None
) -> None:
    batches = without_ended(4)
    with pipeline(tmp_path, hooks, operators=operators, aligned_timeout=timeout) as query:
        run(query, batches[:2])
        if timeout is None:
            assert finished(query) == ["r01"]
            assert output_of(tmp_path / "out") == all_of(batches[:2])
        run(query, batches, first=2)
        query.finish()
        assert finished(query) == ["r01", "r02"]
    assert output_of(tmp_path / "out") == all_of(batches)


def test_operators_of_a_region_that_ended_flush_hear_of_it_and_close(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = without_ended(4)
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[:2])
        ended = query.latest.id
        assert hooks.happened("closed") == []
        run(query, batches[:3], first=2)
        of_region = [(what, number) for what, at, number in hooks.seen if at == "r01"]
        assert of_region[-3:] == [("flushed", 0), ("told", ended), ("closed", 0)]


def test_a_region_stays_finished_after_a_restart_and_all_data_ends_behind_it(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = without_ended(4)
    for first, end in [(0, 2), (2, 4)]:
        with pipeline(tmp_path, hooks) as query:
            run(query, batches[:end], first=first)
    hooks.seen.clear()
    with pipeline(tmp_path, hooks) as query:
        query.end_of_data()
        assert finished(query) == REGIONS
    assert sorted(hooks.happened("flushed")) == ["r00", "r03"]
    assert output_of(tmp_path / "out") == sorted(expected(batches) + summaries(batches))


def test_a_region_that_fails_while_it_ends_ends_when_its_rows_come_again(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = without_ended(4)
    hooks.fail_for("r01", range(1000, 2000))
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[:2])
        assert (finished(query), set(query.latest.failed)) == ([], {"r01"})
        hooks.calm()
        run(query, batches, first=2)
        assert finished(query) == ["r01", "r02"]
    assert output_of(tmp_path / "out") == all_of(batches)


def test_rows_of_a_region_that_ended_are_an_error_that_says_how_to_begin_it_anew(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = batches_of(4)
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[:2])
        with pytest.raises(hf.RegionFinishedError, match="on_rows_after_finish='restart'"):
            run(query, batches[:3], first=2)
    assert output_of(tmp_path / "out") == all_of(batches[:2])
    with pipeline(tmp_path, hooks, on_rows_after_finish="restart") as query:
        run(query, batches[:3], first=2)
        assert finished(query) == ["r02"]
    # The region counts from the beginning.
    later = [row for row in output_of(tmp_path / "out") if row[0] == "r01" and row[1] >= 2000]
    assert later == expected([[row for row in batches[2] if row[0] == "r01"]])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_region_that_begins_anew_and_fails_owes_its_rows(
    tmp_path: Path, hooks: Hooks, restarted: bool
) -> None:
    batches = batches_of(4)[:2] + batches_of(4)[3:]
    options: dict[str, Any] = {"on_rows_after_finish": "restart", "max_consecutive_failures": 9}
    query = pipeline(tmp_path, hooks, **options)
    run(query, batches[:2])
    hooks.fail_for("r01", range(3000, 4000))
    run(query, batches, first=2)
    assert set(query.latest.failed) == {"r01"}
    if restarted:
        query.close()
        query = pipeline(tmp_path, hooks, **options)
    hooks.calm()
    with query:
        query.finish()
        assert not query.latest.failed
        query.end_of_data()
    later = [row for row in output_of(tmp_path / "out") if row[0] == "r01" and row[1] >= 2000]
    anew = [row for row in batches[2] if row[0] == "r01"]
    assert later == expected([anew])
    sums = [row for row in output_of(tmp_path / "out") if row[:2] == ("r01", NONE)]
    assert sorted(row[2] for row in sums) == [len(anew), 2 * len(anew)]


class Shared(hf.Operator):
    """Has union state, and ends its region's data."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx
        ctx.state.union("offsets")

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.ctx.finish()
        return batch


def test_a_region_with_union_state_does_not_end_alone(tmp_path: Path) -> None:
    writer = hf.regional(region_by="region").apply(Shared(), schema=ROWS)
    query = writer.write_parquet(tmp_path / "out").open_local(
        tmp_path / "ckpt", max_consecutive_failures=0, global_timeout=timedelta(0)
    )
    with query, pytest.raises(hf.RegionalQueryError, match="has union state: regions with such"):
        run(query, batches_of(1))


def test_the_option_is_checked(tmp_path: Path, hooks: Hooks) -> None:
    with pytest.raises(ValueError, match="expected 'fail' or 'restart'"):
        pipeline(tmp_path, hooks, on_rows_after_finish="ignore")
