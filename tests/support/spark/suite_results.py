"""Results of Spark's suites, compared with the list of exceptions."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: The name in `StoresSeen` of the provider that a test must have used, if any.
OWN = "Holdfast"
#: The name of Spark's own.
ROCKSDB = "RocksDB"


@dataclass(frozen=True)
class TestResult:
    """A test of a suite.

    Attributes
    ----------
    outcome : {"passed", "failed", "ignored"}
    providers : frozenset of str
        Providers that opened stores during the test.
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


def _reason(result: TestResult, exceptions: Mapping[str, Mapping[str, str]]) -> str | None:
    """The reason why a test is on the list, if it is."""
    listed = exceptions.get(result.suite, {}).items()
    return next((why for test, why in listed if normal(test) == normal(result.name)), None)


def problems(
    results: Iterable[TestResult],
    exceptions: Mapping[str, Mapping[str, str]],
    own: str = OWN,
    may_pass: Container[str] = (),
) -> list[str]:
    """Contradictions to the list: an error per test.

    Parameters
    ----------
    results : iterable of TestResult
        Results of whole suites.
    exceptions : mapping
        Reason by test, by suite.
    own : str
        The expected provider.
    may_pass : container of str
        Reasons of tests that pass at times: they are on the list either way.
    """
    results = list(results)
    said = []
    for result in results:
        where = f"{result.suite}: {result.name}"
        reason = _reason(result, exceptions)
        listed = reason is not None
        others = sorted(result.providers - {own})
        if result.outcome == "failed" and not listed:
            said.append(f"{where}: failed")
        if result.outcome == "passed" and others and not listed:
            said.append(f"{where}: passed on another provider: {', '.join(others)}")
        if result.outcome == "passed" and not others and listed and reason not in may_pass:
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


#: Figures of a row: tests that ran, passed with and without a store, and are listed.
COLUMNS = ("tests", "passed on Holdfast", "passed without a store", "excepted")
_SUM = "all"


def counts(
    results: Iterable[TestResult], exceptions: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[int, ...]]:
    """The figures of `COLUMNS` by suite; tests that Spark itself ignores are left out."""
    by_suite: dict[str, list[TestResult]] = {}
    for result in results:
        if result.outcome != "ignored":
            by_suite.setdefault(result.suite, []).append(result)
    found = {}
    for suite, own in by_suite.items():
        passed = [
            result.providers
            for result in own
            if result.outcome == "passed" and _reason(result, exceptions) is None
        ]
        on_holdfast = sum(providers == {OWN} for providers in passed)
        without = sum(not providers for providers in passed)
        found[suite] = (len(own), on_holdfast, without, len(exceptions.get(suite, {})))
    return found


def as_text(rows: Mapping[str, tuple[int, ...]]) -> str:
    """The figures by suite and their sum, with tabs between columns."""
    total = tuple(map(sum, zip(*rows.values(), strict=True))) or (0,) * len(COLUMNS)
    lines = [("suite", *COLUMNS), *((suite, *row) for suite, row in sorted(rows.items()))]
    return "".join("\t".join(map(str, line)) + "\n" for line in [*lines, (_SUM, *total)])


def from_text(text: str) -> dict[str, tuple[int, ...]]:
    """The figures by suite in a text of `as_text`."""
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return {suite: tuple(map(int, row)) for suite, *row in rows if suite != _SUM}
