"""Regions whose data has ended: nothing of them runs again, unless the pipeline goes back (R60)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.cli.main import main
from support.regional.ending import (
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
from support.regional.pipelines import COUNTED, expected, output_of, rows_of


def test_a_finished_pipeline_runs_no_operator_again(tmp_path: Path, hooks: Hooks) -> None:  # R60
    batches = batches_of(2)
    with pipeline(tmp_path, hooks) as query:
        run(query, batches)
        query.end_of_data()
        last = query.latest.id
    hooks.seen.clear()
    for _ in range(2):
        with pipeline(tmp_path, hooks) as query:
            run(query, batches)
            query.end_of_data()
            query.end_of_data()
            query.finish()
            assert query.latest.id == last
    assert hooks.seen == []
    assert output_of(tmp_path / "out") == all_of(batches)


def test_what_was_flushed_is_published_by_the_next_start_if_need_be(
    tmp_path: Path, hooks: Hooks
) -> None:
    batches = batches_of(1)  # R74, R81
    got: dict[int, list[Any]] = {}
    refused: list[int] = []

    def publish(rows: pa.Table, checkpoint: int) -> None:
        if checkpoint == 3 and not refused:
            refused.append(checkpoint)
            raise ConnectionError("the database is away")
        got[checkpoint] = [tuple(row.values()) for row in rows.to_pylist()]

    def open_query() -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(Summed(hooks), schema=COUNTED)
            .foreach_batch(publish)
            .open_local(tmp_path / "ckpt")
        )

    with open_query() as query:
        run(query, batches)
        with pytest.raises(ConnectionError):
            query.end_of_data()
        with pytest.raises(hf.RegionalQueryError, match="start it again"):
            query.end_of_data()
    hooks.seen.clear()
    with open_query() as query:
        assert sorted(got[3]) == summaries(batches)
        query.end_of_data()
        assert query.latest.id == 3
    assert (sorted(got), hooks.seen) == ([2, 3], [])


@pytest.mark.parametrize("restarted", [False, True])
def test_rows_of_a_finished_region_are_refused_by_name_with_the_way_back(
    tmp_path: Path, restarted: bool, hooks: Hooks
) -> None:
    batches = batches_of(3)
    query = pipeline(tmp_path, hooks)
    run(query, batches[:2])
    before = query.latest.id
    query.end_of_data()
    last = query.latest.id
    if restarted:
        query.close()
        query = pipeline(tmp_path, hooks)
    hooks.seen.clear()
    late = [row for row in batches[2] if row[0] == "r01"]
    with query, pytest.raises(hf.RegionFinishedError) as raised:
        run(query, [*batches[:2], late], first=2)
    error = str(raised.value)
    assert f"region 'r01', whose data ended in checkpoint {last}" in error
    assert f"checkpoint_id={before}" in error
    assert "new checkpoint folder" in error
    assert (query.latest.id, hooks.seen) == (last, [])
    assert output_of(tmp_path / "out") == all_of(batches[:2])


def test_without_an_older_checkpoint_there_is_no_way_back(tmp_path: Path, hooks: Hooks) -> None:
    batches = batches_of(2)
    with pipeline(tmp_path, hooks, num_retained=1) as query:
        run(query, batches[:1])
        query.end_of_data()
        with pytest.raises(hf.RegionFinishedError, match="no older checkpoint is retained"):
            run(query, batches, first=1)


def test_going_back_takes_back_the_end_of_data_and_what_was_flushed(
    tmp_path: Path, hooks: Hooks
) -> None:  # R60
    batches = batches_of(3)
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[:2])
        before = query.latest.id
        query.end_of_data()
    with pipeline(tmp_path, hooks, checkpoint_id=before) as query:
        assert finished(query) == []
        assert output_of(tmp_path / "out") == expected(batches[:2])
        run(query, batches, first=2)
        query.end_of_data()
        assert finished(query) == REGIONS
    assert output_of(tmp_path / "out") == all_of(batches)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_region_runs_and_finishes_behind_the_others(
    tmp_path: Path, restarted: bool, hooks: Hooks
) -> None:
    batches = [rows_of(0, REGIONS[:3]), rows_of(1, REGIONS[3:]), rows_of(2, REGIONS[3:])]
    query = pipeline(tmp_path, hooks)
    run(query, batches[:1])
    query.end_of_data()
    if restarted:
        query.close()
        query = pipeline(tmp_path, hooks)
    hooks.seen.clear()
    with query:
        run(query, batches, first=1)
        assert finished(query) == REGIONS[:3]
        assert query.latest.finished_operators == ()
        query.end_of_data()
        assert finished(query) == REGIONS
    assert {region for _, region, _ in hooks.seen} == {"r03"}
    assert output_of(tmp_path / "out") == all_of(batches)


def test_a_savepoint_of_a_finished_pipeline_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hooks: Hooks
) -> None:
    batches = batches_of(1)
    query = pipeline(tmp_path, hooks)
    run(query, batches)
    query.end_of_data()
    query.stop_with_savepoint(tmp_path / "saved")
    assert main(["show", str(tmp_path / "saved"), "--id", "3"]) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[:2] for line in shown] == [[region, "finished"] for region in REGIONS]
    hooks.seen.clear()
    restored = hf.restore(tmp_path / "saved")
    with pipeline(tmp_path, hooks, checkpoint="next", output="out-2", restore=restored) as query:
        query.end_of_data()
        assert (query.latest.id, finished(query)) == (3, REGIONS)
        with pytest.raises(hf.RegionFinishedError, match="no older checkpoint is retained"):
            run(query, batches_of(2), first=1)
    assert hooks.seen == []
