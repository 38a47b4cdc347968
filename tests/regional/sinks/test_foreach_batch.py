"""What a function of ``foreach_batch`` is promised: at least once, by an id that tells."""

from __future__ import annotations

import json
import logging
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from support import environment, program
from support.regional import function_job
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, expected
from support.regional.restorable import batches, run


class Calls:
    """A function that keeps what it is given, in order."""

    def __init__(self) -> None:
        self.got: list[tuple[hf.CheckpointId, list[tuple[Any, ...]]]] = []

    def __call__(self, rows: pa.Table, checkpoint: hf.CheckpointId) -> None:
        self.got.append((checkpoint, [tuple(row.values()) for row in rows.to_pylist()]))

    @property
    def ids(self) -> list[int]:
        return [int(checkpoint) for checkpoint, _ in self.got]

    def open(
        self, path: Path, name: str = "ckpt", *, hooks: Hooks | None = None, **options: Any
    ) -> hf.LocalQuery:
        return (
            hf.regional(region_by="region")
            .apply(Troubled(hooks), schema=COUNTED, name="count")
            .foreach_batch(self)
            .open_local(path / name, **options)
        )


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


# --- the id ---------------------------------------------------------------------------------------


def test_the_id_is_an_integer_that_knows_the_batch_and_the_pipeline(tmp_path: Path) -> None:
    rows, function = batches(3), Calls()
    with function.open(tmp_path) as query:
        run(query, rows[:2])
    with function.open(tmp_path) as query:
        run(query, rows, first=2)
    ids = [checkpoint for checkpoint, _ in function.got]
    assert ids == [2, 3, 4]
    assert [checkpoint.batch_id for checkpoint in ids] == [0, 1, 2]
    assert {checkpoint.pipeline_id for checkpoint in ids} == {
        (tmp_path / "ckpt" / "pipeline-id").read_text()
    }
    assert json.dumps(ids) == "[2, 3, 4]"
    assert f"{ids[0]}" == "2"
    copy = pickle.loads(pickle.dumps(ids[0]))  # noqa: S301
    assert (copy, copy.batch_id, copy.pipeline_id) == (2, 0, ids[0].pipeline_id)


def test_the_batch_is_not_enough_to_tell_calls_apart(tmp_path: Path, hooks: Hooks) -> None:
    rows, function = batches(2), Calls()
    with function.open(tmp_path, hooks=hooks) as query:
        run(query, rows[:1])
        hooks.fail_for("r01", range(1000, 2000))
        run(query, rows, first=1)
        hooks.calm()
        query.finish()
    assert [(int(one), one.batch_id) for one, _ in function.got] == [(2, 0), (3, 1), (4, 1)]
    assert sorted(row for _, got in function.got for row in got) == expected(rows)


def test_a_restored_pipeline_has_a_name_of_its_own(tmp_path: Path) -> None:
    rows, function = batches(3), Calls()
    with function.open(tmp_path, "old") as query:
        run(query, rows[:2])
        query.stop_with_savepoint(tmp_path / "saved")
    for name in ("one", "two"):
        with function.open(tmp_path, name, restore=hf.restore(tmp_path / "saved")) as query:
            run(query, rows, first=2)
    # The same number stands for different rows, but not together with the pipeline.
    assert function.ids == [2, 3, 4, 4]
    assert len({(int(one), one.pipeline_id) for one, _ in function.got}) == 4


def test_what_an_old_pipeline_owed_its_function_comes_under_the_old_pipelines_name(
    tmp_path: Path,
) -> None:
    def away(rows: pa.Table, checkpoint: int) -> None:
        raise ConnectionError("the database is away")

    rows, function = batches(2), Calls()
    old = hf.regional(region_by="region").apply(Troubled(), schema=COUNTED, name="count")
    with (
        old.foreach_batch(away).open_local(tmp_path / "old") as query,
        pytest.raises(ConnectionError),
    ):
        run(query, rows[:1])
    with function.open(tmp_path, "new", restore=hf.restore(tmp_path / "old")) as query:
        run(query, rows, first=1)
    names = [(int(one), one.pipeline_id) for one, _ in function.got]
    assert names == [
        (2, (tmp_path / "old" / "pipeline-id").read_text()),
        (3, (tmp_path / "new" / "pipeline-id").read_text()),
    ]


# --- at least once --------------------------------------------------------------------------------


@pytest.mark.parametrize("point", function_job.POINTS)
def test_killed_around_a_call_an_idempotent_function_ends_with_each_row_once(
    tmp_path: Path, point: str
) -> None:  # R81
    for ending, arguments in ((-signal.SIGKILL, [point]), (0, [])):
        job = [sys.executable, program("regional/function_job.py"), str(tmp_path), *arguments]
        done = subprocess.run(
            job, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == ending, done.stderr[-3000:]
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    again = 0 if point == "noted" else 1
    ids = [2, 3, 4, *[4] * again, 5]
    assert [call[0] for call in calls] == ids
    assert [call[1] for call in calls] == [id - 2 for id in ids]
    # The same rows, in the same order, under the same ids.
    assert calls[2] == calls[2 + again]
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("rows-*.json")]
    assert sorted(tuple(row) for rows in kept for row in rows) == expected(function_job.BATCHES)
    left = [path.name for path in (tmp_path / "ckpt" / "output").rglob("*.parquet")]
    assert left == []


def test_a_function_that_raises_is_called_again_before_any_later_checkpoint(
    tmp_path: Path,
) -> None:
    rows, function = batches(3), Calls()
    pipeline = hf.regional(region_by="region").apply(Troubled(), schema=COUNTED, name="count")
    away = True

    def sometimes(got: pa.Table, checkpoint: hf.CheckpointId) -> None:
        function(got, checkpoint)
        if away and checkpoint.batch_id == 1:
            raise ConnectionError("the database is away")

    for _ in range(2):
        with (
            pytest.raises(ConnectionError),
            pipeline.foreach_batch(sometimes).open_local(tmp_path / "ckpt") as query,
        ):
            run(query, rows)
    away = False
    with pipeline.foreach_batch(sometimes).open_local(tmp_path / "ckpt") as query:
        run(query, rows)
    assert function.ids == [2, 3, 3, 3, 4]
    assert function.got[1] == function.got[2] == function.got[3]


# --- going back -----------------------------------------------------------------------------------


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [text for text in texts if "the function of foreach_batch" in text]


def test_going_back_names_the_checkpoints_whose_rows_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # R75
    rows, function = batches(4), Calls()
    with function.open(tmp_path, num_retained=5) as query:
        run(query, rows)
    with function.open(tmp_path, num_retained=5, checkpoint_id=3) as query:
        (warning,) = warned(caplog)
        run(query, rows, first=2)
    assert warning == (
        "going back to checkpoint 3: the function of foreach_batch has had the rows of "
        "checkpoints 4, 5; these rows come again, under new ids"
    )
    # As it says: ids do not come again, rows do, in the same batches.
    assert function.ids == [2, 3, 4, 5, 6, 7]
    assert [one.batch_id for one, _ in function.got] == [0, 1, 2, 3, 2, 3]
    got = [got for _, got in function.got]
    assert got[4:] == got[2:4]
    caplog.clear()
    function.open(tmp_path, num_retained=5).close()
    assert warned(caplog) == [], "it was said once"


def test_going_back_behind_a_call_that_may_have_been_made_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, function = batches(3), Calls()

    def refuse(*_: Any) -> None:
        raise OSError("no space left")

    with function.open(tmp_path) as query:
        run(query, rows[:2])
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.regions.sinks.batch_function.note_delivered", refuse)
            with pytest.raises(OSError, match="no space left"):
                run(query, rows, first=2)
    function.open(tmp_path, checkpoint_id=2).close()
    (warning,) = warned(caplog)
    assert (
        "has had the rows of checkpoint 3, and may have had those of checkpoint 4; these" in warning
    )


def test_going_back_over_rows_that_no_function_had_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hooks: Hooks
) -> None:
    rows, function = batches(3), Calls()
    with function.open(tmp_path, hooks=hooks) as query:
        run(query, rows[:2])
        # A checkpoint without rows: the function is not called for it.
        query.run_batch([], batch_id=2)
    assert function.ids == [2, 3]
    function.open(tmp_path, checkpoint_id=4).close()
    function.open(tmp_path, checkpoint_id=3).close()
    assert warned(caplog) == []


def test_restoring_an_older_checkpoint_names_those_whose_rows_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows, function = batches(3), Calls()
    with function.open(tmp_path, "old") as query:
        run(query, rows)
    origin = hf.restore(tmp_path / "old", checkpoint_id=2)
    with function.open(tmp_path, "new", restore=origin) as query:
        run(query, rows, first=1)
    (warning,) = warned(caplog)
    assert warning.startswith(f"beginning with checkpoint 2 of {tmp_path / 'old'}: ")
    assert "has had the rows of checkpoints 3, 4; these rows come again" in warning
    caplog.clear()
    with function.open(tmp_path, "new", restore=origin):
        assert warned(caplog) == [], "it began before"
    with function.open(tmp_path, "latest", restore=hf.restore(tmp_path / "old")):
        assert warned(caplog) == [], "nothing comes again"


def test_damaged_checkpoints_count_as_had(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows, function = batches(3), Calls()
    with function.open(tmp_path) as query:
        run(query, rows)
    newest = tmp_path / "ckpt" / "metadata" / f"{4:016x}.hfc"
    newest.write_bytes(newest.read_bytes()[:-1])
    function.open(tmp_path, checkpoint_id=3).close()
    (warning,) = warned(caplog)
    assert "has had the rows of checkpoint 4; these" in warning
