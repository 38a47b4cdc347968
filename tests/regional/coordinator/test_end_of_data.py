"""The end of data: operators flush, and a last checkpoint holds every region as finished."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from support.regional.ending import (
    NONE,
    REGIONS,
    Summed,
    all_of,
    batches_of,
    finished,
    pipeline,
    run,
    summaries,
)
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, ROWS, Gate, expected, output_of, rows_of


def outcomes(query: hf.LocalQuery) -> list[str]:
    return [row.outcome for row in query.history()]


def test_every_region_flushes_also_without_rows_in_the_last_batch(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(0, REGIONS), rows_of(1, REGIONS[:1])]
    with pipeline(tmp_path, hooks) as query:
        run(query, batches)
        assert finished(query) == []
        query.end_of_data()
        latest = query.latest
        assert (latest.kind, latest.batch_id, latest.is_global) == ("final", 1, True)
        assert finished(query) == REGIONS
        assert latest.finished_operators == ("sum",)
        assert all(e.finished for entry in latest.regions.values() for e in entry.operators)
    assert output_of(tmp_path / "out") == all_of(batches)


def test_the_last_checkpoint_holds_the_state_after_the_flush(tmp_path: Path, hooks: Hooks) -> None:
    with pipeline(tmp_path, hooks) as query:
        run(query, batches_of(1))
        query.end_of_data()
        for entry in query.latest.regions.values():
            inline = {state.name: state.inline for state in entry.operators[0].states}
            assert inline["rows"] == str(NONE).encode()


class Holding(hf.Operator):
    """Holds every row back until the end of data."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.held = ctx.state.list("held")

    def process(self, batch: pa.RecordBatch) -> None:
        self.held.items += [list(row.values()) for row in batch.to_pylist()]

    def on_end_of_data(self) -> Iterator[pa.RecordBatch]:
        for row in self.held.items:
            yield pa.RecordBatch.from_pylist([dict(zip(ROWS.names, row, strict=True))], ROWS)


def test_what_parallel_instances_flush_reaches_the_next_stage_before_that_flushes(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(number, REGIONS, each=24) for number in range(2)]
    query = (
        hf.regional(region_by="region")
        .apply(Holding(), schema=ROWS, name="hold", parallelism=3, route_by="key")
        .apply(Summed(hooks), schema=COUNTED, name="sum")
        .write_parquet(tmp_path / "out")
        .open_local(tmp_path / "ckpt")
    )
    with query:
        run(query, batches)
        assert output_of(tmp_path / "out") == []
        query.end_of_data()
        assert query.latest.finished_operators == ("hold#0", "hold#1", "hold#2", "sum")
    rows = output_of(tmp_path / "out")
    assert [row for row in rows if row[1] == NONE] == summaries(batches)
    # Rows of different instances have no order among each other; those of a key do.
    kept = sorted((*row[:2], row[3]) for row in rows if row[1] != NONE)
    assert kept == sorted((*row[:2], row[3]) for row in expected(batches))


def test_rows_that_a_region_owes_come_before_its_flush(tmp_path: Path, hooks: Hooks) -> None:
    batches = batches_of(2)

    def trouble(region: str, ids: Sequence[int]) -> None:
        if region == "r01" and ids[0] >= 1000:
            raise RuntimeError("in trouble")

    with pipeline(tmp_path, hooks) as query:
        hooks.on_rows = trouble
        run(query, batches)
        assert set(query.latest.failed) == {"r01"}
        hooks.calm()
        query.end_of_data()
        assert finished(query) == REGIONS
        assert not any(entry.in_flight for entry in query.latest.regions.values())
    assert output_of(tmp_path / "out") == all_of(batches)


def test_rows_that_wait_between_operators_come_before_the_flush(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = [rows_of(0, REGIONS, each=96)]
    gate = Gate()

    def wait_once(region: str, ids: Sequence[int]) -> None:
        if region == "r01" and ids[0] == 1:
            gate.pass_through()

    def open_when_reached() -> None:
        if gate.reached.wait(timeout=60):
            gate.open()

    hooks.on_rows = wait_once
    opener = threading.Thread(target=open_when_reached)
    opener.start()
    with pipeline(tmp_path, hooks, aligned_timeout=timedelta(milliseconds=1)) as query:
        run(query, batches)
        opener.join()
        assert query.latest.regions["r01"].in_flight_bytes > 0
        query.end_of_data()
        assert finished(query) == REGIONS
    assert output_of(tmp_path / "out") == all_of(batches)


def test_a_pipeline_that_is_not_regional_ends_like_any_other(tmp_path: Path, hooks: Hooks) -> None:
    batches = batches_of(2)
    hooks.on_flush = fail_times(1, "r02")
    with pipeline(tmp_path, hooks, max_consecutive_failures=0) as query:
        run(query, batches)
        query.end_of_data()
        assert finished(query) == REGIONS
    assert output_of(tmp_path / "out") == all_of(batches)


@pytest.mark.parametrize("how", ["finish", "savepoint"])
def test_data_does_not_end_because_a_pipeline_stops(
    tmp_path: Path, how: str, hooks: Hooks
) -> None:  # R25
    batches = batches_of(2)
    query = pipeline(tmp_path, hooks)
    run(query, batches)
    if how == "finish":
        query.finish()
    else:
        query.stop_with_savepoint(tmp_path / "saved")
        with pytest.raises(hf.RegionalQueryError, match="stopped with a savepoint"):
            query.end_of_data()
    query.close()
    assert hooks.happened("flushed") == finished(query) == []
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_pipeline_without_rows_ends_without_a_checkpoint(tmp_path: Path, hooks: Hooks) -> None:
    with pipeline(tmp_path, hooks) as query:
        query.end_of_data()
        assert query.latest.kind == "checkpoint"


# --- regions that fail --------------------------------------------------------------------------


def fail_times(times: int, region: str) -> Callable[[str], None]:
    left = [times]

    def trouble(at: str) -> None:
        if at == region and left[0]:
            left[0] -= 1
            raise RuntimeError(f"{region} cannot flush")

    return trouble


def test_a_region_that_fails_to_flush_is_tried_again_with_all_others(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = batches_of(2)
    hooks.on_flush = fail_times(2, "r02")
    with pipeline(tmp_path, hooks) as query:
        run(query, batches)
        query.end_of_data()
        assert outcomes(query)[-3:] == ["aborted", "aborted", "global"]
        assert finished(query) == REGIONS
    # Those whose flush was given up flushed once more, from the state before.
    assert sorted(hooks.happened("flushed")) == sorted(REGIONS * 3)
    assert output_of(tmp_path / "out") == all_of(batches)


def test_without_a_region_data_has_not_ended_for_any(tmp_path: Path, hooks: Hooks) -> None:  # R25
    batches = batches_of(2)
    hooks.on_flush = fail_times(1000, "r02")
    with pipeline(tmp_path, hooks, global_timeout=timedelta(seconds=1)) as query:
        run(query, batches)
        with pytest.raises(hf.RegionalQueryError, match=r"every region.*'r02'.*cannot flush"):
            query.end_of_data()
        assert query.latest.kind == "checkpoint"
        assert finished(query) == []
    assert output_of(tmp_path / "out") == expected(batches)
    hooks.calm()
    with pipeline(tmp_path, hooks) as query:
        assert finished(query) == []
        query.end_of_data()
        assert finished(query) == REGIONS
    assert output_of(tmp_path / "out") == all_of(batches)


# --- notices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 2])
def test_operators_are_closed_after_they_were_told_of_the_published_checkpoint(
    tmp_path: Path, tasks: int, hooks: Hooks
) -> None:  # R61, R62
    published: list[int] = []

    def publish(rows: pa.Table, checkpoint: int) -> None:
        assert hooks.happened("closed") == []
        assert ("told", "r00", checkpoint) not in hooks.seen
        published.append(checkpoint)

    query = (
        hf.regional(region_by="region")
        .apply(Summed(hooks), schema=COUNTED)
        .foreach_batch(publish)
        .open_local(tmp_path / "ckpt", tasks=tasks)
    )
    with query:
        run(query, batches_of(2))
        query.end_of_data()
        last = query.latest.id
    assert published[-1] == last
    for region in REGIONS:
        of_region = [event for event in hooks.seen if event[1] == region]
        in_order = [("flushed", region, 0), ("told", region, last), ("closed", region, 0)]
        assert of_region[-3:] == in_order
    assert sorted(hooks.happened("closed")) == REGIONS


def test_an_operator_that_takes_its_notice_badly_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hooks: Hooks
) -> None:  # R43
    last = 3

    def fail(self: Summed, checkpoint: int) -> None:
        if checkpoint == last:
            raise RuntimeError("not interested")

    monkeypatch.setattr(Summed, "on_checkpoint_completed", fail)
    with pipeline(tmp_path, hooks) as query:
        run(query, batches_of(1))
        query.end_of_data()
        assert (query.latest.id, finished(query)) == (last, REGIONS)
    assert sorted(hooks.happened("closed")) == REGIONS


def test_a_pipeline_without_spark_is_told_of_the_end_instead_of_waiting_for_it(
    tmp_path: Path, hooks: Hooks
) -> None:
    with pytest.raises(ValueError, match=r"bounded=True .*end_of_data\(\)"):
        pipeline(tmp_path, hooks, bounded=True)
    assert not (tmp_path / "ckpt").exists()
