"""The history of a pipeline is there after restarts, and never in its way."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.regions.base.clock import now_ms
from holdfast.regions.checkpoint.ownership import discard_unstarted
from support.regional.hooks import Hooks
from support.regional.pipelines import expected, output_of
from support.regional.restorable import batches, open_pipeline, run


def test_attempts_of_earlier_runs_are_told_with_outcome_failed_regions_and_causes(
    tmp_path: Path, hooks: Hooks
) -> None:
    rows = batches(4)
    began_ms = now_ms()
    with open_pipeline(tmp_path, hooks=hooks, tolerable_failed_checkpoints=1) as query:
        run(query, rows[:1])
        hooks.fail_for("r01", range(1000, 2000))
        run(query, rows[:2], first=1)
        hooks.calm()
    with open_pipeline(tmp_path) as query:
        run(query, rows, first=2)
        history = query.history()
        assert [row.id for row in history] == [1, 2, 3, 4, 5]
        assert [row.batch_id for row in history] == [-1, 0, 1, 2, 3]
        assert [row.outcome for row in history] == ["global", "global", "regional", *["global"] * 2]
        (failed,) = history[2].failed
        assert (failed.region, failed.origin) == ("r01", 2)
        assert "r01 is in trouble" in failed.cause
        assert history[2].in_flight_rows == 5
        assert len({row.run for row in history[:3]}) == len({row.run for row in history[3:]}) == 1
        assert history[2].run != history[3].run
        assert all(began_ms <= row.started_ms <= row.ended_ms for row in history)
        assert query.history(last=2) == history[3:]
        assert query.history(last=4) == history[1:]


def test_a_pipeline_that_was_killed_leaves_its_attempts(tmp_path: Path, hooks: Hooks) -> None:
    rows = batches(3)

    def to_its_death() -> None:
        def die(region: str, ids: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        query = open_pipeline(tmp_path, hooks=hooks)
        run(query, rows[:2])
        hooks.on_rows = die
        run(query, rows, first=2)

    process = multiprocessing.get_context("fork").Process(target=to_its_death)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with open_pipeline(tmp_path) as query:
        assert [row.id for row in query.history()] == [1, 2, 3]
        run(query, rows, first=2)
        # The attempt that the kill ended used up its id, and nothing tells of it.
        assert [row.id for row in query.history()] == [1, 2, 3, 5]
        assert len({row.run for row in query.history()}) == 2
    assert output_of(tmp_path / "out") == expected(rows)


def test_an_attempt_that_ended_the_pipeline_is_told_with_its_cause(
    tmp_path: Path, hooks: Hooks
) -> None:
    hooks.fail_for("r01", range(1000))
    query = open_pipeline(tmp_path, hooks=hooks, max_consecutive_failures=0)
    with pytest.raises(hf.RegionalQueryError):
        run(query, batches(1))
    query.close()
    hooks.calm()
    with open_pipeline(tmp_path) as query:
        last = query.history()[-1]
        assert last.outcome == "aborted"
        assert last.cause
        assert "r01 is in trouble" in last.failed[0].cause


def test_a_history_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batches(3)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "history").write_text("not a folder")
    with open_pipeline(tmp_path) as query:
        run(query, rows)
        assert [row.id for row in query.history()] == [1, 2, 3, 4]
    assert output_of(tmp_path / "out") == expected(rows)
    texts = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert sum(text.startswith("the history is not written") for text in texts) == 1


def test_a_damaged_page_is_warned_of_and_the_rest_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batches(2)
    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])
    (page,) = (tmp_path / "ckpt" / "history").iterdir()
    first, second, rest = page.read_bytes().split(b"\n")
    assert rest == b""
    page.write_bytes(first[:-3] + b"\n" + second + b"\n")
    with open_pipeline(tmp_path) as query:
        run(query, rows, first=1)
        assert [row.id for row in query.history()] == [2, 3]
    assert f"{page}, line 1: " in caplog.text


def test_a_savepoint_takes_no_history_along_and_a_claim_deletes_it(tmp_path: Path) -> None:
    rows = batches(2)
    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])
        query.stop_with_savepoint(tmp_path / "saved")
    assert not (tmp_path / "saved" / "history").exists()
    history = tmp_path / "ckpt" / "history"
    (history / "notes.txt").write_text("of the user")
    origin = hf.restore(tmp_path / "ckpt", mode="claim")
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, rows, first=1)
        # No attempt of its own was needed to begin with: its history begins with its first batch.
        assert [row.batch_id for row in query.history()] == [1]
    assert [path.name for path in history.iterdir()] == ["notes.txt"]


def test_a_folder_whose_history_is_a_link_is_not_claimed(tmp_path: Path) -> None:
    with open_pipeline(tmp_path) as query:
        run(query, batches(1))
    history = tmp_path / "ckpt" / "history"
    history.rename(tmp_path / "elsewhere")
    history.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links cannot be claimed"):
        open_pipeline(
            tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt", mode="claim")
        )
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_what_a_start_left_that_came_to_no_checkpoint_is_removed_with_its_history(
    tmp_path: Path,
) -> None:
    (tmp_path / "ckpt" / "history").mkdir(parents=True)
    (tmp_path / "ckpt" / "history" / "0000000000000001.jsonl").write_text("{}\n")
    (tmp_path / "ckpt" / "metadata").mkdir()
    discard_unstarted(tmp_path / "ckpt")
    assert list((tmp_path / "ckpt").iterdir()) == []
