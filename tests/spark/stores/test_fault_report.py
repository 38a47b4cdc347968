"""The fault report: its tables are those of its results, and Holdfast's rows are never wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import environment, program
from support.markdown import with_tables
from support.spark.fault_report import DOCUMENT, FOUND, TITLES, cell, of_logs, of_state
from support.spark.file_faults import LOGS


def test_the_tables_are_made_of_the_results() -> None:
    found = json.loads(FOUND.read_text())
    assert {one["provider"] for one in found} == TITLES.keys()
    text = DOCUMENT.read_text()
    assert with_tables(text, {"state": of_state(found), "logs": of_logs(found)}) == text


def test_no_fault_in_a_file_of_state_gave_holdfast_wrong_rows() -> None:
    found = json.loads(FOUND.read_text())
    of_holdfast = [one for one in found if one["provider"] == "holdfast"]
    assert of_holdfast
    for one in of_holdfast:
        assert one["kind"] in LOGS or one["outcome"] in ("right", "error"), one


def test_a_cell_has_the_worst_first() -> None:
    outcomes = ["right", "wrong", "right", "error"]
    assert cell([{"outcome": outcome} for outcome in outcomes]) == (
        "**wrong rows** 1, error 1, goes on 2"
    )


@pytest.mark.spark
def test_a_merged_file_with_a_fault_is_noticed_or_not_needed(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    job = [sys.executable, program("spark/fault_report_job.py"), "holdfast", str(tmp_path)]
    chosen = ["--query=aggregation", "--only=Holdfast: hf"]
    subprocess.run([*job, str(results), *chosen], env=environment(), check=True, timeout=400)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert {one["outcome"] for one in found} <= {"right", "error"}
    assert any(one["outcome"] == "error" and one["fault"] == "missing" for one in found)
