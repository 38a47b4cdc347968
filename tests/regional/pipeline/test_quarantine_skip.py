"""``holdfast quarantine skip``: rows go to dead letters, with a kill at every step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.cli.quarantine import finish, move
from holdfast.files.mounted import MountedPath
from holdfast.files.skips import read_records
from holdfast.regions.checkpoint.quarantine import owed_rows, placed_rows
from holdfast.regions.checkpoint.skips import SkippedRows, skipped_rows
from holdfast.regions.files.folders import CheckpointFolders
from support import TESTS
from support.killed_steps import Killed, killed_at, kills
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    Row,
    Troubled,
    expected,
    output_of,
    quarantining,
    rows_of,
    run_batches,
)
from support.regional.tuned import tune_tasks

REGIONS = ["r00", "r01", "r02"]
STUCK = "r00"
BATCHES = [rows_of(number, REGIONS, each=3) for number in range(4)]
#: Ids of the stuck region, in the order of its rows.
IDS = [id for batch in BATCHES for region, id, _ in batch if region == STUCK]
BAD = (IDS[1], IDS[4], IDS[5])


pipeline = partial(quarantining, quarantine_after=1)
run = partial(run_batches, tasks=2)


def fail_at_bad_rows(hooks: Hooks) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        if set(ids) & set(BAD):
            raise RuntimeError("a bad row")

    hooks.on_rows = trouble


@pytest.fixture
def stuck(tmp_path: Path, hooks: Hooks) -> Path:
    """The folder of a pipeline with a region in quarantine, which owes all rows but one batch."""
    fail_at_bad_rows(hooks)
    with pipeline(tmp_path, Troubled(hooks)) as query:
        run(query, BATCHES)
    return tmp_path


def kept(batches: Sequence[Sequence[Row]]) -> list[list[Row]]:
    return [[row for row in rows if row[1] not in BAD] for rows in batches]


def skip(path: Path, *more: str) -> int:
    folder, letters = str(path / "ckpt"), str(path / "letters")
    given = ("quarantine", folder, "skip", "--region", STUCK, "--dead-letter", letters)
    return main([*given, *more])


def in_letters(path: Path) -> list[int]:
    """Ids in dead letters that a reader of the folder sees."""
    files = sorted((path / "letters").glob("[!.]*.parquet"))
    return sorted(id for file in files for id in pq.read_table(file)["id"].to_pylist())


def still_owed(path: Path) -> list[int]:
    """Ids that a replay would give to the operator."""
    folders = CheckpointFolders(MountedPath(path / "ckpt"))
    latest = folders.read(folders.ids()[-1])
    rows = owed_rows(folders, latest, STUCK).to_pylist()
    assert [row["_row"] for row in rows] == list(range(len(rows)))
    return [row["id"] for row in rows]


def test_rows_are_moved_and_the_others_are_processed(
    stuck: Path, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    assert skip(stuck, "--rows", "1,4-5") == 0
    counted = capsys.readouterr()
    assert [line.split() for line in counted.out.splitlines()] == [
        ["checkpoint", "rows", "matching"],
        ["2", "3", "1"],
        ["3", "3", "2"],
        ["4", "3", "0"],
        ["5", "3", "0"],
    ]
    assert "nothing was changed" in counted.err
    assert still_owed(stuck) == IDS
    assert skip(stuck, "--rows", "1", "--yes") == 0
    assert "1 rows are in" in capsys.readouterr().err
    # The numbers are those of the rows that are left.
    assert skip(stuck, "--rows", "3,4", "--yes") == 0
    assert in_letters(stuck) == sorted(BAD)
    assert still_owed(stuck) == [id for id in IDS if id not in BAD]
    (first, _) = sorted((stuck / "letters").iterdir())
    found = pq.read_table(first)
    assert found.column_names == ["_checkpoint", "region", "id", "key", "_error"]
    assert "a bad row" in found["_error"][0].as_py()
    with pipeline(stuck, Troubled(hooks)) as query:
        query.finish()
        assert list(query.quarantine().regions) == []
    assert output_of(stuck / "out") == expected(kept(BATCHES))


def test_wrong_rows_are_refused(stuck: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows, said in {
        "12": "the region owes 12 rows",
        "0-99999999999999": "the region owes 12 rows",
        "5-3": "the range 5-3 ends before it begins",
        "a": "expected numbers and ranges, as in 3,8-10",
        "1-": "expected numbers and ranges",
    }.items():
        assert skip(stuck, "--rows", rows, "--yes") == 2
        assert said in capsys.readouterr().err
    assert skip(stuck, "--rows", "1", "--region", "r01") == 2
    assert "'r01' is not in quarantine" in capsys.readouterr().err
    assert not (stuck / "letters").exists()


def test_nothing_moves_while_the_pipeline_runs(
    stuck: Path, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    with pipeline(stuck, Troubled(hooks)):
        assert skip(stuck, "--rows", "1", "--yes") == 1
        assert "is in use" in capsys.readouterr().err
        assert skip(stuck, "--rows", "1") == 0
    assert not (stuck / "letters").exists()


def test_a_merged_piece_and_a_savepoint_are_without_moved_rows(
    stuck: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_tasks(monkeypatch.setattr, quarantine_pieces=2)
    assert skip(stuck, "--rows", "1,4", "--yes") == 0
    left = [id for id in IDS if id not in (IDS[1], IDS[4])]
    more = [rows_of(number, REGIONS, each=3) for number in (4, 5)]
    with pipeline(stuck, Troubled(hooks)) as query:
        # The first batch runs the region, and the second one merges.
        run(query, more, first=4)
        held = query.latest.regions[STUCK]
        assert len(held.in_flight) < 5
        assert query.quarantine().rows(STUCK)["id"].to_pylist()[: len(left)] == left
        query.stop_with_savepoint(stuck / "saved")
    new = stuck / "new"
    new.mkdir()
    hooks.calm()
    with pipeline(new, Troubled(hooks), restore=hf.restore(stuck / "saved")) as query:
        assert query.quarantine().rows(STUCK)["id"].to_pylist()[: len(left)] == left
        query.finish()
    found = output_of(stuck / "out") + output_of(new / "out")
    wanted = [[row for row in rows if row[1] not in (IDS[1], IDS[4])] for rows in BATCHES]
    assert sorted(found) == expected([*wanted, *more])


def test_a_region_without_any_row_left_is_healthy_after_the_next_start(
    stuck: Path, hooks: Hooks
) -> None:
    assert skip(stuck, "--rows", "0-11", "--yes") == 0
    assert still_owed(stuck) == []
    with pipeline(stuck, Troubled(hooks)) as query:
        query.finish()
        assert list(query.quarantine().regions) == []
    assert output_of(stuck / "out") == expected([[r for r in b if r[0] != STUCK] for b in BATCHES])


def command(path: Path) -> None:
    """Do what the command does when it has found the matching rows."""
    folders = CheckpointFolders(MountedPath(path / "ckpt"))
    finish(folders)
    latest = folders.read(folders.ids()[-1])
    owed = placed_rows(folders, latest, STUCK)
    bad = pa.compute.is_in(owed["id"], value_set=pa.array(BAD))
    matching = owed.filter(bad)
    if matching.num_rows:
        move(folders, latest, STUCK, matching, MountedPath(path / "letters"))


def test_a_kill_at_any_step_loses_no_row_and_doubles_none(stuck: Path, tmp_path: Path) -> None:
    ended = refused = 0
    for step, after in kills():
        path = tmp_path / f"{step}-{after}"
        shutil.copytree(stuck / "ckpt", path / "ckpt")
        with pytest.MonkeyPatch.context() as patches:
            count = killed_at(patches, step, after)
            try:
                command(path)
                ended += 1
            except Killed:
                assert count() == step
        folders = CheckpointFolders(MountedPath(path / "ckpt"))
        if all(one.done for one in read_records(folders.skipped, SkippedRows)):
            # The pipeline may go on.
            assert sorted([*still_owed(path), *in_letters(path)]) == IDS
        else:
            refused += 1
            with pytest.raises(OSError, match="run `holdfast quarantine CHECKPOINT skip` again"):
                skipped_rows(folders)
        command(path)
        assert still_owed(path) == [id for id in IDS if id not in BAD]
        assert in_letters(path) == sorted(BAD)
        assert not list((path / "letters").glob(".*"))
        shutil.rmtree(path)
    assert 0 < refused < 30
    assert 0 < ended < 30


def test_a_start_is_refused_until_the_command_has_finished(
    stuck: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(MountedPath, "publish", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            skip(stuck, "--rows", "1,4-5", "--yes")
    with pytest.raises(OSError, match="rows of region 'r00' are being moved"):
        pipeline(stuck, Troubled(hooks))
    assert skip(stuck, "--rows", "0", "--yes") == 0
    assert in_letters(stuck) == sorted([*BAD, IDS[0]])


FIXTURE = TESTS / "fixtures" / "skipped-v1"


def test_the_record_of_version_1_stays_readable() -> None:
    intact = MountedPath(FIXTURE / "intact.json")
    assert read_records(intact, SkippedRows) == [
        SkippedRows("bern", 7, ((0, 2), (4, 5)), "dead/one-bern-0.parquet", done=True)
    ]
    with pytest.raises(NotImplementedError, match="newer Holdfast"):
        read_records(MountedPath(FIXTURE / "newer.json"), SkippedRows)
    with pytest.raises(OSError, match="is damaged"):
        read_records(MountedPath(FIXTURE / "cut.json"), SkippedRows)


def test_the_fixture_is_what_is_written(tmp_path: Path) -> None:
    from holdfast.files.skips import write_records

    file = MountedPath(tmp_path / "skipped")
    write_records(file, read_records(MountedPath(FIXTURE / "intact.json"), SkippedRows))
    assert json.loads(file.read_text()) == json.loads((FIXTURE / "intact.json").read_text())
