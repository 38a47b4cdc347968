"""Going back to an older checkpoint of the pipeline's own folder (R75)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.checkpoint import go_back
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks import ParquetSink
from support.regional.hooks import Hooks
from support.regional.pipelines import expected, output_of
from support.regional.restorable import batches, damage, open_pipeline, run


def ran(path: Path, count: int) -> None:
    with open_pipeline(path) as query:
        run(query, batches(count))


def files_of(path: Path, checkpoint: int) -> set[str]:
    metadata = CheckpointMetadata.read(path / "ckpt" / "metadata" / f"{checkpoint:016x}.hfc")
    return {ref.file for _, _, ref in metadata.segments("pipeline")}


def test_damage_is_named_with_the_way_out_and_nothing_is_changed(tmp_path: Path) -> None:
    ran(tmp_path, 3)
    file = damage(tmp_path / "ckpt")
    before = sorted((tmp_path / "ckpt").rglob("*"))
    with pytest.raises(hf.DamagedCheckpointError) as raised:
        open_pipeline(tmp_path)
    error = str(raised.value)
    assert "checkpoint 4 cannot be restored" in error
    assert f"{file} at offset " in error
    assert "pipeline pipeline, operator count, region r0" in error
    assert "checkpoint_id=3" in error
    assert (raised.value.checkpoint, raised.value.intact) == (4, 3)
    after = [path for path in sorted((tmp_path / "ckpt").rglob("*")) if path in before]
    assert after == before
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_missing_file_and_unreadable_metadata_are_damage(tmp_path: Path) -> None:
    ran(tmp_path, 3)
    newest = tmp_path / "ckpt" / "metadata" / f"{4:016x}.hfc"
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(hf.DamagedCheckpointError, match=newest.name) as raised:
        open_pipeline(tmp_path)
    assert raised.value.intact == 3
    for file in (tmp_path / "ckpt" / "segments").iterdir():
        file.unlink()
    with pytest.raises(hf.DamagedCheckpointError, match="no older checkpoint is intact") as raised:
        open_pipeline(tmp_path)
    assert raised.value.intact is None


@pytest.mark.parametrize("has_copy", [True, False])
def test_where_no_checkpoint_is_intact_a_copy_helps_or_new_folders(
    tmp_path: Path, has_copy: bool
) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path, max_consecutive_failures=0) as query:
        run(query, rows[:3])
        shutil.copytree(tmp_path / "ckpt" / "segments", tmp_path / "copy")
        for file in (tmp_path / "ckpt" / "segments").iterdir():
            file.unlink()
        with pytest.raises(hf.RegionalQueryError, match="could not be made durable"):
            run(query, rows, first=3)
    with pytest.raises(hf.DamagedCheckpointError) as raised:
        open_pipeline(tmp_path)
    assert "put the damaged files back from a copy, or begin with a new checkpoint folder" in str(
        raised.value
    )
    if has_copy:
        shutil.copytree(tmp_path / "copy", tmp_path / "ckpt" / "segments", dirs_exist_ok=True)
        with open_pipeline(tmp_path) as query:
            run(query, rows, first=3)
        assert output_of(tmp_path / "out") == expected(rows)
    else:
        with open_pipeline(tmp_path, checkpoint="new", output="new-out") as query:
            run(query, rows)
        assert output_of(tmp_path / "new-out") == expected(rows)


def test_an_older_checkpoint_that_lacks_files_is_left_out(tmp_path: Path) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path, max_file_bytes=1) as query:
        run(query, rows[:3])
    lost = files_of(tmp_path, 3)
    assert lost.isdisjoint(files_of(tmp_path, 4))
    for file in lost:
        (tmp_path / "ckpt" / "segments" / file).unlink()
    metadata = tmp_path / "ckpt" / "metadata" / f"{2:016x}.hfc"
    metadata.write_bytes(b"")
    with open_pipeline(tmp_path) as query:
        run(query, rows, first=3)
    assert output_of(tmp_path / "out") == expected(rows)


def test_without_verification_damage_makes_only_its_region_fail(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    damage(tmp_path / "ckpt")
    with open_pipeline(tmp_path, verify_state=False) as query:
        run(query, batches(3), first=2)
        assert list(query.latest.failed) == ["r03"]
        assert "CorruptSegmentError" in query.latest.regions["r03"].cause


def test_without_verification_a_file_that_was_cut_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batches(3)
    ran(tmp_path, 2)
    (name,) = files_of(tmp_path, 3)
    file = tmp_path / "ckpt" / "segments" / name
    whole = file.read_bytes()
    os.truncate(file, 100)
    for _ in range(2):
        with (
            open_pipeline(tmp_path, verify_state=False) as query,
            pytest.raises(
                hf.RegionalQueryError, match=r"every region with rows failed.*CorruptSegmentError"
            ),
        ):
            run(query, rows, first=2)
    assert "segments of retained checkpoints are missing" in caplog.text
    assert file.stat().st_size == 100
    file.write_bytes(whole)
    with open_pipeline(tmp_path) as query:
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_an_older_checkpoint_that_was_cut_keeps_the_pipeline_from_nothing(tmp_path: Path) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path, max_file_bytes=1, num_retained=3) as query:
        run(query, rows[:3])
    cut = files_of(tmp_path, 3) - files_of(tmp_path, 4)
    assert cut
    for name in cut:
        os.truncate(tmp_path / "ckpt" / "segments" / name, 10)
    with open_pipeline(tmp_path, num_retained=3) as query:
        assert all((tmp_path / "ckpt" / "segments" / name).exists() for name in cut)
        run(query, rows, first=3)
    assert output_of(tmp_path / "out") == expected(rows)


def test_the_pipeline_goes_back_and_its_output_with_it(tmp_path: Path) -> None:
    rows = batches(4)
    ran(tmp_path, 4)
    damage(tmp_path / "ckpt")
    (tmp_path / "out" / "part-of-something-else.parquet.txt").write_text("mine")
    with open_pipeline(tmp_path, checkpoint_id=3) as query:
        assert query.latest.batch_id == 1
        assert output_of(tmp_path / "out") == expected(rows[:2])
        run(query, rows, first=2)
        assert query.latest.id == 7
    with open_pipeline(tmp_path) as query:
        assert query.latest.id == 7
    assert output_of(tmp_path / "out") == expected(rows)
    assert (tmp_path / "out" / "part-of-something-else.parquet.txt").exists()


def test_rows_that_regions_owed_at_that_checkpoint_are_owed_again(
    tmp_path: Path, hooks: Hooks
) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run(query, rows[:1])
        hooks.fail_for("r01", range(1000, 2000))
        run(query, rows[:2], first=1)
        hooks.calm()
        run(query, rows, first=2)
    with open_pipeline(tmp_path, hooks=hooks, checkpoint_id=3) as query:
        assert set(query.latest.failed) == {"r01"}
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_the_latest_checkpoint_may_be_asked_for(tmp_path: Path) -> None:
    rows = batches(3)
    ran(tmp_path, 2)
    with open_pipeline(tmp_path, checkpoint_id=3) as query:
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_checkpoint_that_is_not_retained_is_refused(tmp_path: Path) -> None:
    ran(tmp_path, 3)
    with pytest.raises(FileNotFoundError, match="expected checkpoint 1, found 2, 3, 4"):
        open_pipeline(tmp_path, checkpoint_id=1)
    with pytest.raises(FileNotFoundError, match="expected checkpoint 1, found none"):
        open_pipeline(tmp_path, checkpoint="fresh", checkpoint_id=1)
    assert output_of(tmp_path / "out") == expected(batches(3))


def refuse(*_: Any) -> None:
    raise OSError("not now")


@pytest.mark.parametrize(
    ("where", "what", "how"),
    [
        (go_back, "finish_rewind", None),
        (go_back, "rewind_stream", refuse),
        (ParquetSink, "withdraw", refuse),
        (CheckpointFolders, "drop", refuse),
    ],
)
def test_going_back_is_finished_by_the_next_start_whatever_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, what: str, how: Any
) -> None:
    rows = batches(4)
    ran(tmp_path, 4)
    with monkeypatch.context() as patch:
        if how is None:
            monkeypatch_finish(patch)
        else:
            patch.setattr(where, what, how)
        with pytest.raises(OSError, match=r"not now|read-only"):
            open_pipeline(tmp_path, checkpoint_id=3)
    with open_pipeline(tmp_path) as query:
        assert query.latest.batch_id == 1
        assert output_of(tmp_path / "out") == expected(rows[:2])
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def monkeypatch_finish(patch: pytest.MonkeyPatch) -> None:
    """Stop right behind the decision: nothing was done yet."""
    from holdfast.regions.checkpoint import opening

    original = go_back.begin_rewind

    def begin_and_stop(*arguments: Any) -> None:
        original(*arguments)
        raise OSError("not now")

    patch.setattr(opening, "begin_rewind", begin_and_stop)


def test_a_folder_that_is_half_back_is_not_restored_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path, 3)
    with monkeypatch.context() as patch:
        patch.setattr(ParquetSink, "withdraw", refuse)
        with pytest.raises(OSError, match="not now"):
            open_pipeline(tmp_path, checkpoint_id=3)
    with pytest.raises(FileExistsError, match="start that pipeline once more"):
        open_pipeline(tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt"))
