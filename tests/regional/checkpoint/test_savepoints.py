"""Savepoints: every region, nothing owed, in a folder of their own (R25, R70)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.cli.main import main
from support.regional.hooks import Hooks
from support.regional.pipelines import expected, output_of
from support.regional.restorable import batches, damage, open_pipeline, run


def test_a_pipeline_goes_on_from_a_savepoint_although_its_old_folder_is_gone(
    tmp_path: Path,
) -> None:
    rows = batches(4)
    query = open_pipeline(tmp_path)
    run(query, rows[:2])
    query.stop_with_savepoint(tmp_path / "saved")
    shutil.rmtree(tmp_path / "ckpt")
    with open_pipeline(
        tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "saved")
    ) as query:
        assert query.latest.batch_id == 1
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_savepoint_is_a_folder_that_can_be_verified_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = open_pipeline(tmp_path)
    run(query, batches(2))
    query.stop_with_savepoint(tmp_path / "saved")
    assert main(["verify", str(tmp_path / "saved")]) == 0
    assert main(["show", str(tmp_path / "saved")]) == 0
    assert "savepoint" in capsys.readouterr().out
    damage(tmp_path / "saved")
    assert main(["verify", str(tmp_path / "saved")]) == 1


def test_a_savepoint_waits_for_what_regions_owe(tmp_path: Path, hooks: Hooks) -> None:  # R25
    rows = batches(3)
    query = open_pipeline(tmp_path, hooks=hooks)
    hooks.fail_for("r02", range(1000, 2000))
    run(query, rows[:2])
    assert set(query.latest.failed) == {"r02"}
    hooks.calm()
    query.stop_with_savepoint(tmp_path / "saved")
    assert output_of(tmp_path / "out") == expected(rows[:2])
    with open_pipeline(
        tmp_path, hooks=hooks, checkpoint="next", restore=hf.restore(tmp_path / "saved")
    ) as query:
        assert query.latest.is_global
        assert not any(entry.in_flight for entry in query.latest.regions.values())
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_without_a_region_there_is_no_savepoint_and_the_pipeline_goes_on(
    tmp_path: Path, hooks: Hooks
) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path, hooks=hooks) as query:
        hooks.fail_for("r02", range(1000, 2000))
        run(query, rows[:2])
        with pytest.raises(hf.SavepointError, match="r02 is in trouble"):
            query.stop_with_savepoint(tmp_path / "saved")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt", "out"]
        run(query, rows[:3], first=2)
        assert set(query.latest.failed) == {"r02"}
        hooks.calm()
        run(query, rows, first=3)
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_savepoint_overwrites_nothing(tmp_path: Path) -> None:
    rows = batches(2)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "notes").write_text("mine")
    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])
        with pytest.raises(FileExistsError, match="saved"):
            query.stop_with_savepoint(tmp_path / "saved")
        run(query, rows, first=1)
    assert (tmp_path / "saved" / "notes").read_text() == "mine"
    assert output_of(tmp_path / "out") == expected(rows)


def test_an_unreadable_segment_leaves_no_half_savepoint(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, batches(1))
        damaged = damage(tmp_path / "ckpt")
        with pytest.raises(hf.CorruptSegmentError, match=damaged.name):
            query.stop_with_savepoint(tmp_path / "saved")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt", "out"]


def test_a_savepoint_appears_as_its_very_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = batches(2)

    def refuse(source: Path, target: Path) -> None:
        assert not target.exists()
        assert main(["verify", str(source)]) == 0
        raise OSError("no rename today")

    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", refuse)
            with pytest.raises(OSError, match="no rename today"):
                query.stop_with_savepoint(tmp_path / "saved")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt", "out"]
        run(query, rows, first=1)
    assert output_of(tmp_path / "out") == expected(rows)


def test_no_batch_runs_behind_a_savepoint(tmp_path: Path) -> None:
    rows = batches(2)
    query = open_pipeline(tmp_path)
    run(query, rows[:1])
    query.stop_with_savepoint(tmp_path / "saved")
    with pytest.raises(hf.RegionalQueryError, match="savepoint"):
        run(query, rows, first=1)
    assert output_of(tmp_path / "out") == expected(rows[:1])


def test_a_savepoint_leaves_nothing_in_the_pipelines_own_folder(
    tmp_path: Path, hooks: Hooks
) -> None:
    rows = batches(6)
    query = open_pipeline(tmp_path, hooks=hooks, num_retained=1)
    hooks.fail_for("r02", range(1000))
    run(query, rows[:1])
    hooks.calm()
    query.stop_with_savepoint(tmp_path / "saved")
    with open_pipeline(tmp_path, hooks=hooks, num_retained=1) as query:
        run(query, rows, first=1)
        assert len(list((tmp_path / "ckpt" / "metadata").iterdir())) == 1
        assert query.manager.stats().live_segments == 4
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_savepoint_can_be_restored_many_times(tmp_path: Path) -> None:
    rows = batches(3)
    query = open_pipeline(tmp_path)
    run(query, rows[:1])
    query.stop_with_savepoint(tmp_path / "saved")
    for fork in ("a", "b"):
        with open_pipeline(
            tmp_path,
            checkpoint=f"ckpt-{fork}",
            output=f"out-{fork}",
            restore=hf.restore(tmp_path / "saved"),
        ) as query:
            run(query, rows, first=1)
        since = [row for row in expected(rows) if row[1] >= 1000]
        assert output_of(tmp_path / f"out-{fork}") == since
