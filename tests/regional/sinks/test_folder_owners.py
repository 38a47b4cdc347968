"""A checkpoint folder and an output folder have one pipeline each (R91)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.base.errors import FolderInUseError
from holdfast.regions.files import lock as folder_lock
from holdfast.regions.sinks.owner import OWNER_FILE
from support.regional.pipelines import expected, output_of
from support.regional.restorable import batches, open_pipeline, run

#: Holds the lock of a folder until it is killed.
HOLDING = """
import sys, pathlib
from holdfast.regions.files.lock import lock_folder
lock = lock_folder(pathlib.Path(sys.argv[1]) / "lock")
print("locked", flush=True)
sys.stdin.read()
"""


def ran(path: Path, count: int, *, checkpoint: str = "ckpt", output: str = "out") -> None:
    with open_pipeline(path, checkpoint=checkpoint, output=output) as query:
        run(query, batches(count), first=query.latest.batch_id + 1)


def made_before(path: Path, checkpoint: str = "ckpt", output: str = "out") -> None:
    """Take away what pipelines did not write before folders had owners."""
    folder = path / checkpoint
    for name in ("lock", "pipeline-id"):
        (folder / name).unlink()
    (path / output / OWNER_FILE).unlink()
    for id in CheckpointMetadata.list(folder / "metadata"):
        found = CheckpointMetadata.read(folder / "metadata" / f"{id:016x}.hfc")
        properties = {k: v for k, v in found.properties.items() if "pipeline_id" not in k}
        CheckpointMetadata.delete(folder / "metadata", id)
        CheckpointMetadata(
            found.id,
            found.batch_id,
            found.kind,
            found.created_ms,
            found.topology,
            list(found.regions.values()),
            properties=properties,
        ).write(folder / "metadata")


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- output folders ------------------------------------------------------------------------------


def test_a_second_pipeline_does_not_write_into_the_same_folder(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    before = everything(tmp_path)
    with pytest.raises(FileExistsError, match="belongs to pipeline 'pipeline'") as raised:
        open_pipeline(tmp_path, checkpoint="second", name="second")
    message = str(raised.value)
    assert str(tmp_path / "ckpt") in message
    assert "another folder" in message
    assert "holdfast.restore(" in message
    assert everything(tmp_path) == before, "not even a checkpoint folder is left"
    ran(tmp_path, 3)
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_deleted_checkpoint_with_its_output_kept_does_not_double_rows(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    shutil.rmtree(tmp_path / "ckpt")
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(tmp_path)
    (tmp_path / "out" / OWNER_FILE).unlink()
    with pytest.raises(FileExistsError, match=r"files that a pipeline published.*part-0000000002"):
        open_pipeline(tmp_path)
    assert not (tmp_path / "ckpt").exists()
    for file in (tmp_path / "out").glob("*.parquet"):
        file.unlink()
    ran(tmp_path, 2)
    assert output_of(tmp_path / "out") == expected(batches(2))


def test_readers_do_not_see_the_owner(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    assert (tmp_path / "out" / OWNER_FILE).exists()
    rows = ds.dataset(tmp_path / "out").to_table().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == expected(batches(2))


def test_a_pipeline_goes_on_with_output_from_before_folders_had_owners(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    made_before(tmp_path)
    ran(tmp_path, 3)
    assert output_of(tmp_path / "out") == expected(batches(3))
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(tmp_path, checkpoint="second")


def test_output_from_before_is_not_that_of_a_pipeline_which_does_not_say_so(
    tmp_path: Path,
) -> None:
    ran(tmp_path, 2)
    ran(tmp_path, 2, checkpoint="second", output="elsewhere")
    made_before(tmp_path)
    with pytest.raises(FileExistsError, match="files that a pipeline published"):
        open_pipeline(tmp_path, checkpoint="second")


def test_output_of_checkpoints_that_are_gone_is_not_taken_for_the_pipelines(
    tmp_path: Path,
) -> None:
    ran(tmp_path, 3)
    made_before(tmp_path)
    CheckpointMetadata.delete(tmp_path / "ckpt" / "metadata", 4)
    with pytest.raises(FileExistsError, match=r"part-0000000004"):
        open_pipeline(tmp_path)


def test_a_pipeline_may_move_with_both_of_its_folders(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    (tmp_path / "ckpt").rename(tmp_path / "moved")
    (tmp_path / "out").rename(tmp_path / "out-moved")
    ran(tmp_path, 3, checkpoint="moved", output="out-moved")
    assert output_of(tmp_path / "out-moved") == expected(batches(3))


def test_a_copy_of_a_checkpoint_folder_is_another_pipeline(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    shutil.copytree(tmp_path / "ckpt", tmp_path / "copy")
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(tmp_path, checkpoint="copy")
    shutil.rmtree(tmp_path / "ckpt")
    ran(tmp_path, 3, checkpoint="copy")
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_folder_without_rows_may_change_hands(tmp_path: Path) -> None:
    open_pipeline(tmp_path).close()
    ran(tmp_path, 2, checkpoint="second")
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(tmp_path)


@pytest.mark.parametrize("mode", ["claim", "no_claim"])
def test_what_goes_on_from_a_savepoint_goes_on_with_the_output(tmp_path: Path, mode: str) -> None:
    query = open_pipeline(tmp_path)
    run(query, batches(2))
    query.stop_with_savepoint(tmp_path / "saved")
    origin = hf.restore(tmp_path / "saved", mode=mode)  # type: ignore[arg-type]
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, batches(3), first=2)
    ran(tmp_path, 4, checkpoint="next")
    assert output_of(tmp_path / "out") == expected(batches(4))
    # The output is the new one's now: the old one would write rows again.
    with pytest.raises(FileExistsError, match=f"checkpoints in {tmp_path / 'next'}"):
        open_pipeline(tmp_path)


def test_a_start_that_ended_before_the_output_changed_hands_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    ran(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.regions.sinks.owner.OutputFolder.take", crash)
        with pytest.raises(KeyboardInterrupt):
            open_pipeline(tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt"))
    ran(tmp_path, 3, checkpoint="next")
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_branch_does_not_get_at_the_output_of_where_it_began(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    origin = hf.restore(tmp_path / "ckpt")
    open_pipeline(tmp_path, checkpoint="branch", output="branch-out", restore=origin).close()
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(tmp_path, checkpoint="branch")
    ran(tmp_path, 3)
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_pipeline_whose_output_was_taken_over_publishes_and_sweeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a file system without locks.
    monkeypatch.setattr(folder_lock, "try_lock", lambda _: True)
    with open_pipeline(tmp_path) as query:
        run(query, batches(2))
        owner = tmp_path / "out" / OWNER_FILE
        owner.write_text(owner.read_text().replace('"id": "', '"id": "another'))
        with pytest.raises(FileExistsError, match="belongs to pipeline"):
            run(query, batches(3), first=2)
    assert output_of(tmp_path / "out") == expected(batches(2))
    assert list((tmp_path / "out").glob("_holdfast/staged/*/*"))


# --- locks ---------------------------------------------------------------------------------------


def test_a_folder_is_not_used_by_two_pipelines_at_once(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, batches(1))
        with pytest.raises(FolderInUseError, match=f"process {os.getpid()} on"):
            open_pipeline(tmp_path, output="elsewhere")
        with pytest.raises(
            FolderInUseError, match="out is in use: pipeline 'pipeline' is open already"
        ):
            open_pipeline(tmp_path, checkpoint="second")
        run(query, batches(2), first=1)
    ran(tmp_path, 3)
    assert output_of(tmp_path / "out") == expected(batches(3))


@pytest.mark.parametrize("mode", ["claim", "no_claim"])
def test_the_output_of_a_running_pipeline_is_not_taken_over(tmp_path: Path, mode: str) -> None:
    origin = hf.restore(tmp_path / "ckpt", mode=mode)  # type: ignore[arg-type]
    with open_pipeline(tmp_path) as query:
        run(query, batches(2))
        with pytest.raises(FolderInUseError):
            open_pipeline(tmp_path, checkpoint="next", restore=origin)
        run(query, batches(3), first=2)
    assert output_of(tmp_path / "out") == expected(batches(3))
    assert not (tmp_path / "next").exists()


def test_a_running_pipeline_may_be_branched_but_not_claimed(tmp_path: Path) -> None:
    claim = hf.restore(tmp_path / "ckpt", mode="claim")
    with open_pipeline(tmp_path) as query:
        run(query, batches(2))
        before = everything(tmp_path / "ckpt")
        with pytest.raises(FolderInUseError, match="ckpt is in use"):
            open_pipeline(tmp_path, checkpoint="next", output="elsewhere", restore=claim)
        assert everything(tmp_path / "ckpt") == before
        branch = hf.restore(tmp_path / "ckpt")
        open_pipeline(tmp_path, checkpoint="next", output="elsewhere", restore=branch).close()
        run(query, batches(3), first=2)
    ran(tmp_path, 4)


def test_the_lock_of_a_process_that_died_is_gone_and_children_do_not_keep_it(
    tmp_path: Path,
) -> None:
    ran(tmp_path, 1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path / "ckpt")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(FolderInUseError):
            open_pipeline(tmp_path)
        holder.kill()
        holder.wait()
    with open_pipeline(tmp_path) as query:
        run(query, batches(2), first=1)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
    try:
        ran(tmp_path, 3)
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_without_locks_a_warning_says_what_is_up_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refusing)
    ran(tmp_path, 1)
    assert "has no locks" in caplog.text


def test_what_a_refused_start_left_does_not_stand_in_the_way_of_a_restore(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "holdfast.regions.driver.pipeline_driver.PipelineDriver.start", lambda *_, **__: 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            open_pipeline(tmp_path, checkpoint="next", output="elsewhere")
    origin = hf.restore(tmp_path / "ckpt")
    open_pipeline(tmp_path, checkpoint="next", output="elsewhere", restore=origin).close()


# --- claims --------------------------------------------------------------------------------------


def test_a_claim_deletes_what_a_pipeline_made_and_nothing_else(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    old = tmp_path / "ckpt"
    made = ["metadata", "offsets/0", "offsets/.0.crc", "offsets/.1.6c0f.tmp", "commits/0"]
    made += ["sources/0/9.compact", "sources/0/.9.compact.crc", "state/0/0/1.delta"]
    foreign = ["spark/offsets/notes", "spark/thesis.tex", "segments/thesis.hf", "metadata/notes"]
    for name in [*(f"spark/{name}" for name in made), *foreign]:
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text("v1\n{}\n-")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / f"{1:016x}-{1:08x}.hf").write_text("mine")
    (old / "segments" / "linked").symlink_to(tmp_path / "precious")
    origin = hf.restore(old, mode="claim")
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, batches(3), first=2)
    left = {str(path.relative_to(old)) for path in old.rglob("*") if not path.is_dir()}
    assert left == set(foreign)
    assert (old / "segments" / "linked").is_symlink()
    assert len(list((tmp_path / "precious").iterdir())) == 1
    assert output_of(tmp_path / "out") == expected(batches(3))


@pytest.mark.parametrize("part", ["metadata", "segments"])
def test_a_folder_whose_parts_lie_elsewhere_is_not_claimed(tmp_path: Path, part: str) -> None:
    ran(tmp_path, 2)
    (tmp_path / "ckpt" / part).rename(tmp_path / "precious")
    (tmp_path / "ckpt" / part).symlink_to(tmp_path / "precious")
    before = everything(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links cannot be claimed"):
        open_pipeline(
            tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt", mode="claim")
        )
    assert everything(tmp_path / "precious") == before


def test_a_claimed_folder_of_a_pipeline_with_a_function_is_deleted_whole(tmp_path: Path) -> None:
    from support.regional.pipelines import COUNTED, RunningCount

    def start(name: str, **options: object) -> hf.LocalQuery:
        pipeline = hf.regional(region_by="region").apply(RunningCount(), schema=COUNTED)
        return pipeline.foreach_batch(lambda *_: None).open_local(tmp_path / name, **options)

    with start("ckpt") as query:
        run(query, batches(2))
    start("next", restore=hf.restore(tmp_path / "ckpt", mode="claim")).close()
    assert not (tmp_path / "ckpt").exists()
