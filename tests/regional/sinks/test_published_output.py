"""Published output belongs to the user, who may move, rewrite or delete it (R81)."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast._core import NewerFormatError
from holdfast.regions.sinks import ParquetSink
from support import environment
from support.regional.pipelines import (
    COUNTED,
    RunningCount,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r00", "r01", "r02", "r03"]
BATCHES = [rows_of(number, REGIONS) for number in range(4)]
IDS = pa.schema([("id", pa.int64())])


class Counting(RunningCount):
    """Emits the id of every row, too."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> Any:
        self.ctx.emit("ids", batch.select(["id"]))
        yield from super().process(batch)


def open_pipeline(
    path: Path, *, out: str = "out", ids: str = "ids", per_region: bool = False, **options: Any
) -> hf.LocalQuery:
    checkpoint = options.pop("checkpoint", "ckpt")
    return (
        hf.regional(region_by="region")
        .apply(Counting(), schema=COUNTED, name="count")
        .side("ids", schema=IDS)
        .write_parquet(path / ids, per_region=per_region)
        .write_parquet(path / out, per_region=per_region)
        .open_local(path / checkpoint, **options)
    )


def run(query: hf.LocalQuery, count: int, *, first: int = 0) -> None:
    for number in range(first, count):
        query.run_batch(partitions_of(BATCHES[number], 2), batch_id=number)


def ids_of(batches: list[Any]) -> list[tuple[int]]:
    return sorted((row[1],) for rows in batches for row in rows)


def since(first: int, count: int) -> list[Any]:
    """Rows of these batches, as readers see them."""
    return [row for row in expected(BATCHES[:count]) if row[1] >= first * 1000]


def newest(folder: Path) -> list[Path]:
    files = sorted(folder.glob("part-*"))
    return [file for file in files if file.name.split("-")[1] == files[-1].name.split("-")[1]]


def move(folder: Path) -> None:
    away = folder.with_name(f"{folder.name}-loaded")
    away.mkdir()
    for file in newest(folder):
        file.rename(away / file.name)


def rewrite(folder: Path) -> None:
    for file in newest(folder):
        file.write_bytes(b"other content")


def clean(folder: Path) -> None:
    for file in folder.glob("*"):
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


TAKEN = pytest.mark.parametrize("take", [move, rewrite, clean, shutil.rmtree])


@TAKEN
@pytest.mark.parametrize("per_region", [False, True], ids=["shared", "per_region"])
@pytest.mark.parametrize("output", ["out", "ids"])
def test_a_pipeline_goes_on_when_published_files_were_taken_away(
    tmp_path: Path, output: str, per_region: bool, take: Callable[[Path], None]
) -> None:
    with open_pipeline(tmp_path, per_region=per_region) as query:
        run(query, 2)
    take(tmp_path / output)
    for _ in range(2):
        open_pipeline(tmp_path, per_region=per_region).close()
    clean(tmp_path / output)
    with open_pipeline(tmp_path, per_region=per_region) as query:
        run(query, 4, first=2)
    if output == "out":
        assert output_of(tmp_path / "out") == since(2, 4)
        assert output_of(tmp_path / "ids") == ids_of(BATCHES)
    else:
        assert output_of(tmp_path / "out") == expected(BATCHES)
        assert output_of(tmp_path / "ids") == ids_of(BATCHES[2:])


def killed(path: Path, code: str) -> None:
    """Run the pipeline in a process that dies without closing it."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "from test_published_output import *\n"
        "path = Path(sys.argv[1])\n" + code + "\nos._exit(9)\n"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**environment(), "PYTHONPATH": f"{here}:{environment()['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 9, done.stderr[-4000:]


@TAKEN
def test_a_pipeline_goes_on_after_a_kill_when_published_files_were_taken_away(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    killed(tmp_path, "run(open_pipeline(path), 2)")
    take(tmp_path / "out")
    clean(tmp_path / "ids")
    with open_pipeline(tmp_path) as query:
        clean(tmp_path / "out")
        run(query, 4, first=2)
    assert output_of(tmp_path / "out") == since(2, 4)
    assert output_of(tmp_path / "ids") == ids_of(BATCHES[2:])


def test_an_output_that_was_published_before_another_one_failed_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ParquetSink.commit

    def refuses(sink: ParquetSink, checkpoint: int, staged: Any) -> None:
        if sink.root.name == "ids":
            raise PermissionError("the folder is away")
        commit(sink, checkpoint, staged)

    with open_pipeline(tmp_path) as query, monkeypatch.context() as patch:
        run(query, 1)
        patch.setattr(ParquetSink, "commit", refuses)
        with pytest.raises(hf.SinkFailedError, match="start the pipeline again"):
            run(query, 2, first=1)
    clean(tmp_path / "out")
    with open_pipeline(tmp_path) as query:
        run(query, 3, first=2)
    assert output_of(tmp_path / "out") == since(2, 3)
    assert output_of(tmp_path / "ids") == ids_of(BATCHES[:3])


UNPUBLISHED = """
def dies(sink, checkpoint, staged):
    if checkpoint == 3:
        os._exit(9)
    commit(sink, checkpoint, staged)
commit = ParquetSink.commit
ParquetSink.commit = dies
run(open_pipeline(path), 2)
"""


def test_output_that_was_staged_and_not_published_is_published_once(tmp_path: Path) -> None:
    killed(tmp_path, UNPUBLISHED)
    assert output_of(tmp_path / "out") == expected(BATCHES[:1])
    clean_published = newest(tmp_path / "out")
    for file in clean_published:
        file.unlink()
    for _ in range(2):
        open_pipeline(tmp_path).close()
        assert output_of(tmp_path / "out") == since(1, 2)
        assert output_of(tmp_path / "ids") == ids_of(BATCHES[:2])


@pytest.mark.parametrize("advice", ["put it back", "go back"])
def test_a_staged_file_that_is_lost_is_an_error_whose_advice_works(
    tmp_path: Path, advice: str
) -> None:
    killed(tmp_path, UNPUBLISHED)
    staged = tmp_path / "out" / "_holdfast" / "staged"
    staged.rename(tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(
            hf.SinkFailedError, match=f"no record says that it was published.*{advice}"
        ):
            open_pipeline(tmp_path)
    if advice == "put it back":
        (tmp_path / "kept").rename(staged)
    with open_pipeline(tmp_path, checkpoint_id=2 if advice == "go back" else None) as query:
        run(query, 3, first=1)
    assert output_of(tmp_path / "out") == expected(BATCHES[:3])
    assert output_of(tmp_path / "ids") == ids_of(BATCHES[:3])


def test_a_file_that_was_taken_before_its_record_may_be_put_back(tmp_path: Path) -> None:
    # A machine may crash before the record is on its disk, and older checkpoints have none.
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    (tmp_path / "ckpt" / "published").unlink()
    open_pipeline(tmp_path).close()
    (tmp_path / "ckpt" / "published").write_bytes(b"")
    files = newest(tmp_path / "out")
    move(tmp_path / "out")
    with pytest.raises(hf.SinkFailedError, match="put it back"):
        open_pipeline(tmp_path)
    for file in files:
        (tmp_path / "out-loaded" / file.name).rename(file)
    open_pipeline(tmp_path).close()
    clean(tmp_path / "out")
    open_pipeline(tmp_path).close()


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    record = tmp_path / "ckpt" / "published"
    record.write_text(record.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(NewerFormatError, match="published"):
        open_pipeline(tmp_path)


def test_going_back_works_when_files_of_older_checkpoints_were_taken(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 3)
    clean(tmp_path / "out")
    (tmp_path / "ckpt" / "published").unlink()
    for _ in range(2):
        open_pipeline(tmp_path, checkpoint_id=3).close()
    with open_pipeline(tmp_path) as query:
        run(query, 4, first=2)
    assert output_of(tmp_path / "out") == since(2, 4)
    assert output_of(tmp_path / "ids") == ids_of(BATCHES)


def test_going_back_warns_of_files_that_cannot_be_withdrawn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 3)
    (taken, *_) = newest(tmp_path / "out")
    taken.unlink()
    with caplog.at_level(logging.WARNING), open_pipeline(tmp_path, checkpoint_id=3):
        pass
    assert f"their rows come again. The first was {taken}" in caplog.text
    assert "ids" not in caplog.text.partition("come again")[2]


# --- another folder ------------------------------------------------------------------------------


@pytest.mark.parametrize("take", [None, move, clean])
def test_output_may_go_to_another_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, take: Callable[[Path], None] | None
) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    if take is not None:
        take(tmp_path / "out")
        take(tmp_path / "ids")
    before = output_of(tmp_path / "out")
    with caplog.at_level(logging.WARNING):
        query = open_pipeline(tmp_path, out="next", ids="next-ids")
    said = f"the main output went to {tmp_path}/out up to checkpoint 3, and stays there"
    assert said in caplog.text
    assert f"it goes to {tmp_path}/next from now on" in caplog.text
    assert f"side output 'ids' went to {tmp_path}/ids" in caplog.text
    with query:
        run(query, 4, first=2)
    assert output_of(tmp_path / "out") == before
    assert output_of(tmp_path / "next") == since(2, 4)
    assert output_of(tmp_path / "next-ids") == ids_of(BATCHES[2:])
    caplog.clear()
    open_pipeline(tmp_path, out="next", ids="next-ids").close()
    # The folder may be the old one again.
    with open_pipeline(tmp_path, ids="next-ids"):
        pass


@pytest.mark.parametrize("output", ["out", "ids"])
def test_output_that_is_owed_to_the_old_folder_is_not_left_there(
    tmp_path: Path, output: str
) -> None:
    killed(tmp_path, UNPUBLISHED)
    elsewhere: dict[str, Any] = {output: "next"}
    with pytest.raises(ValueError, match=f"with this output in {tmp_path}/{output}, which publish"):
        open_pipeline(tmp_path, **elsewhere)
    # The advice.
    open_pipeline(tmp_path).close()
    with open_pipeline(tmp_path, **elsewhere) as query:
        run(query, 3, first=2)
    rows = output_of(tmp_path / output) + output_of(tmp_path / "next")
    assert sorted(rows) == (expected(BATCHES[:3]) if output == "out" else ids_of(BATCHES[:3]))


def test_output_goes_on_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    killed(tmp_path, UNPUBLISHED)
    (tmp_path / "out").rename(tmp_path / "next")
    with open_pipeline(tmp_path, out="next") as query:
        run(query, 3, first=2)
    assert output_of(tmp_path / "next") == expected(BATCHES[:3])


def test_output_that_no_record_has_and_that_is_all_there_may_go_to_another_folder(
    tmp_path: Path,
) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    (tmp_path / "ckpt" / "published").unlink()
    with open_pipeline(tmp_path, out="next") as query:
        run(query, 3, first=2)
    assert output_of(tmp_path / "out") == expected(BATCHES[:2])
    assert output_of(tmp_path / "next") == since(2, 3)


# --- other pipelines -----------------------------------------------------------------------------


@pytest.mark.parametrize("out", ["out", "next"])
def test_a_pipeline_begins_from_one_whose_files_were_taken(tmp_path: Path, out: str) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    clean(tmp_path / "out")
    clean(tmp_path / "ids")
    restored = hf.restore(tmp_path / "ckpt", mode="claim")
    with open_pipeline(tmp_path, out=out, checkpoint="new", restore=restored) as query:
        run(query, 3, first=2)
    assert not (tmp_path / "ckpt").exists()
    assert output_of(tmp_path / out) == since(2, 3)


def test_a_side_output_whose_files_were_taken_may_be_left_out(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, 2)
    clean(tmp_path / "ids")
    pipeline = hf.regional(region_by="region").apply(RunningCount(), schema=COUNTED, name="count")
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        run(query, 3, first=2)
    assert output_of(tmp_path / "out") == expected(BATCHES[:3])


def test_a_delta_table_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    def open_delta() -> hf.LocalQuery:
        pipeline = hf.regional(region_by="region").apply(RunningCount(), schema=COUNTED)
        return pipeline.write_delta(tmp_path / "out").open_local(tmp_path / "ckpt")

    with open_delta() as query:
        run(query, 2)
    shutil.rmtree(tmp_path / "out")
    with open_delta() as query:
        run(query, 3, first=2)
    assert output_of(tmp_path / "out") == since(2, 3)
