"""``holdfast history`` on folders of real pipelines, and on pages that are damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.regions.base.clock import now_ms
from support.commands import run
from support.regional.hooks import Hooks
from support.regional.restorable import batches, open_pipeline
from support.regional.restorable import run as run_batches

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "history-v1"


def copied(folder: Path) -> Path:
    """A checkpoint folder with the pages of the fixture."""
    shutil.copytree(FIXTURE, folder / "history")
    return folder


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    """A checkpoint folder: in the first run r01 falls back, in the second it has caught up."""
    rows = batches(3)
    hooks = Hooks()
    with open_pipeline(tmp_path, hooks=hooks) as query:
        hooks.fail_for("r01", range(1000, 2000))
        run_batches(query, rows[:2])
    with open_pipeline(tmp_path) as query:
        run_batches(query, rows, first=2)
    return tmp_path / "ckpt"


def test_attempts_of_all_runs_are_printed_with_the_newest_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "history", copied(tmp_path)) == (
        0,
        [
            "id  batch  kind        outcome   ended                 time ms  in-flight rows"
            "  run       failed regions",
            " 1     -1  checkpoint  global    2023-11-14T22:13:20Z       12               0"
            "  5c1f0c9c  -",
            " 2      0  checkpoint  regional  2023-11-14T22:13:21Z      250              42"
            "  5c1f0c9c  wäst at 1: OSError:  [31mdisk +3 more",
            " 3      1  final       aborted   2023-11-14T22:13:24Z     2000               0"
            "  5c1f0c9c  a region declined; east: expired",
        ],
        "",
    )


def test_runs_and_failed_regions_of_a_real_pipeline_are_told_apart(
    two_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "history", two_runs)
    assert (status, err, len(lines)) == (0, "", 5)
    assert "r01 at 2: RuntimeError: r01 is in trouble" in lines[3]
    status, lines, _ = run(capsys, "history", two_runs, "--json")
    attempts = json.loads("".join(lines))["attempts"]
    assert [attempt["id"] for attempt in attempts] == [1, 2, 3, 4]
    assert [attempt["outcome"] for attempt in attempts] == [
        "global",
        "global",
        "regional",
        "global",
    ]
    assert len({attempt["run"] for attempt in attempts[:3]}) == 1
    assert attempts[2]["run"] != attempts[3]["run"]
    (failed,) = attempts[2]["failed"]
    assert (failed["region"], failed["origin"]) == ("r01", 2)
    assert "r01 is in trouble" in failed["cause"]
    assert attempts[2]["in_flight_rows"] == 5
    assert attempts[2].keys() == {
        "id", "batch", "kind", "outcome", "run", "started_ms", "ended_ms", "in_flight_rows",
        "failed", "unnamed_failed", "cause",
    }  # fmt: skip


def test_signs_that_the_terminal_lacks_are_written_as_their_numbers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "history", str(copied(tmp_path))],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"w\\xe4st at 1: OSError" in done.stdout


def test_a_part_of_it_can_be_asked_for(two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*arguments: object) -> list[int]:
        status, lines, _ = run(capsys, "history", two_runs, "--json", *arguments)
        assert status == 0
        return [attempt["id"] for attempt in json.loads("".join(lines))["attempts"]]

    assert asked("--last", 2) == [3, 4]
    assert asked("--days", 1) == [1, 2, 3, 4]
    page = two_runs / "history" / "0000000000000001.jsonl"
    lines = page.read_text().splitlines(keepends=True)
    old = json.loads(lines[0])
    old["ended_ms"] = now_ms() - 3 * 24 * 60 * 60 * 1000
    page.write_text("".join([json.dumps(old) + "\n", *lines[1:]]))
    assert asked("--days", 2) == [2, 3, 4]
    assert asked("--days", 4) == asked() == [1, 2, 3, 4]
    assert asked("--days", 2, "--last", 1) == [4]


@pytest.mark.parametrize("option", ["--last", "--days"])
def test_a_number_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    status, lines, err = run(capsys, "history", copied(tmp_path), option, 0)
    assert (status, lines) == (2, [])
    assert f"{option}=0 is not allowed: expected an integer of at least 1" in err


def test_damage_is_reported_behind_what_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tmp_path)
    page = folder / "history" / "0000000000000001.jsonl"
    other = folder / "history" / "0000000000000002.jsonl"
    other.write_bytes(page.read_bytes().replace(b'"version":1', b'"version":2', 1))
    status, lines, err = run(capsys, "history", folder)
    assert status == 1
    assert len(lines) == 1 + 3
    assert "1 parts of the history cannot be read:" in err
    newer = "a line of the history: this build reads up to version 1, found 2: a newer Holdfast"
    assert f"{other}, line 1: {newer} wrote it" in err
    assert run(capsys, "history", folder, "--json")[0] == 1


def test_a_folder_without_history_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"holdfast: {tmp_path} holds no history of a regional pipeline\n"
    assert run(capsys, "history", tmp_path) == (1, [], said)
    missing = tmp_path / "missing"
    assert run(capsys, "history", missing) == (1, [], f"holdfast: {missing} does not exist\n")
    with_uri = f"holdfast: {tmp_path} holds no history of a regional pipeline\n"
    assert run(capsys, "history", f"file://{tmp_path}") == (1, [], with_uri)
