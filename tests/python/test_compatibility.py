"""docs/compatibility.md has what tests found, and no test's result is of a case that is gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from holdfast._jars import SPARK_MINORS
from holdfast.cli.doctor import KNOWN_TO_FAIL
from support import TESTS
from support.markdown import cells_of
from support.spark import compatibility
from support.spark.compatibility import (
    CASES,
    DOCUMENT,
    NAMES,
    OPERATORS_FILE,
    OPERATORS_TEST,
    pinned,
    rendered,
)
from support.spark.gaps import GAPS
from support.spark.minors import minor_of
from support.spark.results import load, merged

PLACES = "".join(f"<!-- {name}, made -->\nold\n<!-- end -->\n" for name in compatibility.TABLES)


def cells(text: str, row: str) -> list[str]:
    """What a row of a table says."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {row} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def operator_results(**outcomes: str) -> dict[str, dict[str, str]]:
    """Results of the first case, as 1=..., by the number of partitions."""
    case = next(iter(CASES))
    tests = {
        f"{OPERATORS_TEST}[{case}-{partitions.strip('_')}-restarted]": outcome
        for partitions, outcome in outcomes.items()
    }
    return {OPERATORS_FILE: tests}


def test_the_tables_are_what_the_results_say() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text, load()) == text, "run `make compatibility`"


def test_every_case_and_every_minor_is_in_the_table_of_operators() -> None:
    text = DOCUMENT.read_text()
    head = cells(text, "cases")
    assert [minor_of(version) for version in head] == list(SPARK_MINORS)
    rows = [row for row in cells_of(text) if len(row) == 1 + len(SPARK_MINORS)]
    listed = [case for row in rows for case in row[0].split(", ")]
    assert all(listed.count(f"`{case}`") == 1 for case in CASES)


def test_results_are_of_cases_and_gaps_that_there_are() -> None:
    results = load()
    assert set(map(minor_of, results)) <= set(SPARK_MINORS)
    reasons = {gap.reason for gap in GAPS}
    for files in results.values():
        for test, outcome in files.get(OPERATORS_FILE, {}).items():
            case = re.fullmatch(rf"{OPERATORS_TEST}\[(.+)-\d+-(restarted|in-one-go|short)\]", test)
            assert case is not None
            assert case[1] in CASES
            assert outcome in {"passed", "failed"} | reasons


def test_a_cell_says_what_passed_failed_is_lacking_and_was_not_run() -> None:
    results = {
        "4.0.1": operator_results(_1="passed", _20="nothing of this kind"),
        "4.1.4": operator_results(_1="failed", _20="passed"),
        "4.3.0": operator_results(_1="passed", _20="passed", _200="passed"),
    }
    text = rendered(PLACES, results)
    assert cells(text, "cases") == ["4.0.1", "4.1.4", "4.2", "4.3.0"]
    row = cells(text, f"`{next(iter(CASES))}`")
    assert row == ["1, [1]", "**fails** on 1, 20", "not run", "1, 20, 200"]
    assert "1. nothing of this kind.\n" in text
    assert "\nold\n" not in text


def test_tests_of_a_subject_are_counted() -> None:
    crash = {
        "tests/spark/stores/test_crash.py": {"a[1]": "passed", "a[2]": "passed", "b": "failed"}
    }
    other = {"tests/spark/test_crash_of_others.py": {"a": "passed"}}
    text = rendered(PLACES, {"4.2.1": crash | other})
    subject = next(iter(compatibility.SUBJECTS))
    assert cells(text, subject) == ["not run", "not run", "2, **fails**: 1", "not run"]


def test_upgrades_are_those_that_the_newest_minor_started() -> None:
    name = compatibility.UPGRADES_TEST
    tests = {f"{name}[4.0-4.1]": "passed", f"{name}[4.1-4.3]": "failed"}
    text = rendered(PLACES, {f"{SPARK_MINORS[-1]}.0": {compatibility.UPGRADES_FILE: tests}})
    assert cells(text, "from 4.0")[0] == "yes"
    assert cells(text, "from 4.1") == ["", "not run", "**fails**"]


def test_a_document_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for the table of operators"):
        rendered("# Spark minors\n", {})


def test_results_of_another_patch_make_way_and_the_rest_stays() -> None:
    known = {"4.0.1": {"file": {"a": "passed"}}, "4.1.3": {"file": {"a": "passed"}}}
    after = merged(known, "4.1.4", {"file": {"b": "passed"}})
    assert after == {"4.0.1": known["4.0.1"], "4.1.4": {"file": {"b": "passed"}}}
    after = merged(after, "4.1.4", {"file": {"b": "failed"}, "other": {"c": "passed"}})
    assert after["4.1.4"] == {"file": {"b": "failed"}, "other": {"c": "passed"}}


OUTCOMES = """
import pytest

@pytest.fixture
def broken():
    yield
    raise RuntimeError

def test_passes(): pass
def test_fails(): raise AssertionError
def test_skips(): pytest.skip("no server")
def test_ends_badly(broken): pass
"""


def test_the_outcome_of_every_test_of_a_run_is_kept(tmp_path: Path) -> None:
    (tmp_path / "test_outcomes.py").write_text(OUTCOMES)
    results = tmp_path / "results.json"
    options = ["-p", "support.spark.results", "--results", str(results), "--rootdir", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    ((_, files),) = load(results).items()
    assert files == {
        "test_outcomes.py": {
            "test_passes": "passed",
            "test_fails": "failed",
            "test_skips": "no server",
            "test_ends_badly": "failed",
        }
    }


def test_versions_that_are_pinned_are_tested_and_none_is_known_to_fail() -> None:
    document = DOCUMENT.read_text()
    for minor in SPARK_MINORS:
        versions = pinned(minor)
        assert set(NAMES) <= versions.keys()
        assert all(versions[package] in document for package in NAMES)
        known = KNOWN_TO_FAIL.get(minor)
        assert known is None or Version(versions[known.package]).major < known.from_major
