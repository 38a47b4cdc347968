"""Test results by Spark, in a file: the tables of docs/compatibility.md are made of it.

A plugin of pytest: ``pytest -p support.spark.results --results FILE ...`` puts its results into the
file and keeps the others. Results of another patch of the same minor are replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pyspark
import pytest

from support import TESTS
from support.spark.minors import minor_of

FILE = TESTS / "spark" / "results.json"

PASSED, FAILED = "passed", "failed"

#: By version of Spark, by file of tests, by test: "passed", "failed", or the reason for a skip.
Results = dict[str, dict[str, dict[str, str]]]


def load(file: Path = FILE) -> Results:
    """The known results."""
    return json.loads(file.read_text()) if file.exists() else {}


def merged(known: Results, version: str, found: dict[str, dict[str, str]]) -> Results:
    """The known results after a run on a version of Spark."""
    kept = {
        other: files
        for other, files in known.items()
        if other == version or minor_of(other) != minor_of(version)
    }
    files = dict(kept.get(version, {}))
    for name, tests in found.items():
        files[name] = {**files.get(name, {}), **tests}
    return {**kept, version: files}


def add(file: Path, version: str, found: dict[str, dict[str, str]]) -> None:
    """Put results into the file; also by several processes at a time."""
    # A lock on the folder, so that no file is left.
    lock = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = json.dumps(merged(load(file), version, found), indent=1, sort_keys=True)
        partial = file.with_suffix(".partial")
        partial.write_text(text + "\n")
        partial.replace(file)
    finally:
        os.close(lock)


class Recorder:
    """Keeps the outcome of every test until the end of the run.

    Parameters
    ----------
    file
        The file of results.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has three phases; one failure decides."""
        name, _, test = report.nodeid.partition("::")
        tests = self.found.setdefault(name, {})
        if report.failed:
            tests[test] = FAILED
        elif report.skipped:
            assert isinstance(report.longrepr, tuple)
            tests[test] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.when == "call":
            tests[test] = PASSED

    def pytest_sessionfinish(self) -> None:
        if self.found:
            add(self.file, pyspark.__version__, self.found)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="file that the outcome of every test goes into")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--results")
    # Workers of xdist report to the process that started them.
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file.absolute()))
