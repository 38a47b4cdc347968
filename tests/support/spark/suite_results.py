"""What became of the tests of Spark's suites, against the list of exceptions."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: What `StoresSeen` calls the provider that a test must have used, if it used one.
OWN = "Holdfast"
#: What it calls Spark's own.
ROCKSDB = "RocksDB"


@dataclass(frozen=True)
class TestResult:
    """A test of a suite.

    Attributes
    ----------
    outcome : {"passed", "failed", "ignored"}
    providers : frozenset of str
        Those that were seen to open stores during the test.
    """

    __test__ = False

    suite: str
    name: str
    outcome: str
    providers: frozenset[str] = frozenset()


def normal(name: str) -> str:
    """A test's name on one line."""
    return " ".join(name.split())


def read(report: Path, seen: Path) -> list[TestResult]:
    """The tests of a suite, from ScalaTest's JUnit report and the file of `StoresSeen`."""
    providers: dict[str, frozenset[str]] = {}
    for line in seen.read_text().splitlines() if seen.exists() else ():
        _, test, names = line.split("\t")
        providers[normal(test)] = frozenset(names.split(",")) - {""}
    found = []
    # Our own process wrote it.
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314
        name = normal(case.get("name", ""))
        suite = case.get("classname", "").rpartition(".")[2]
        outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif case.find("skipped") is not None:
            outcome = "ignored"
        found.append(TestResult(suite, name, outcome, providers.get(name, frozenset())))
    return found


def problems(
    results: Iterable[TestResult],
    exceptions: Mapping[str, Mapping[str, str]],
    own: str = OWN,
) -> list[str]:
    """What contradicts the list: an error per test, none where all is as listed.

    Parameters
    ----------
    results : iterable of TestResult
        Of whole suites.
    exceptions : mapping
        Reason by test, by suite.
    own : str
        The provider that was to serve them.
    """
    results = list(results)
    said = []
    for result in results:
        where = f"{result.suite}: {result.name}"
        listed = normal(result.name) in map(normal, exceptions.get(result.suite, {}))
        others = sorted(result.providers - {own})
        if result.outcome == "failed" and not listed:
            said.append(f"{where}: failed")
        if result.outcome == "passed" and others and not listed:
            said.append(f"{where}: passed on another provider: {', '.join(others)}")
        if result.outcome == "passed" and not others and listed:
            said.append(f"{where}: passed; take it off the list")
        if result.outcome == "ignored" and listed:
            said.append(f"{where}: Spark ignores it itself; take it off the list")
    names = {(result.suite, result.name) for result in results}
    for suite in sorted({result.suite for result in results}):
        said += (
            f"{suite}: {test}: is on the list, and there is no such test"
            for test in exceptions.get(suite, {})
            if (suite, normal(test)) not in names
        )
    return said


def table(results: Iterable[TestResult], exceptions: Mapping[str, Mapping[str, str]]) -> str:
    """A row per suite: tests that ran, passed with and without a store, and are listed."""
    rows: list[tuple[str, ...]] = [
        ("suite", "ran", "passed on Holdfast", "passed without a store", "excepted")
    ]
    results = [result for result in results if result.outcome != "ignored"]
    for suite in dict.fromkeys(result.suite for result in results):
        own = [result for result in results if result.suite == suite]
        passed = [result for result in own if result.outcome == "passed"]
        counts = (
            len(own),
            sum(result.providers == {OWN} for result in passed),
            sum(not result.providers for result in passed),
            len(exceptions.get(suite, {})),
        )
        rows.append((suite, *map(str, counts)))
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:<{width}}  " + "  ".join(row[1:]) for row in rows)
