"""The page that a run of benchmarks ends with, opened in a real browser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import TESTS
from support.browser import browser_or_skip, read_page

pytest.importorskip("rich")


def test_results_of_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(TESTS.parent / "benches"), *sys.path])
    import run as benches

    monkeypatch.setattr(benches, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "state", "--quick", "--state-mib", "64"])
    assert benches.main() == 0
    (page,) = tmp_path.glob("report-*.html")
    with browser_or_skip() as browser:
        shown = read_page(browser, page)
    figures = [name for role, name in shown.names if role == "image"]
    assert any(name.startswith("restore, ms: Holdfast ") for name in figures)
    assert shown.text.count("benches/run.py state --quick --state-mib 64") == len(figures)
    (ratios,) = [table for table in shown.tables if table[0][:2] == ["metric", "provider"]]
    assert ["restore, ms", "Holdfast"] in [row[:2] for row in ratios]
