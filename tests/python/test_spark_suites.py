"""The list of exceptions of Spark's own suites is held in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import TESTS
from support.spark import spark_suites
from support.spark.suite_results import (
    COLUMNS,
    TestResult,
    as_text,
    counts,
    from_text,
    problems,
    read,
)

LISTED = {"JoinSuite": {"asserts files": "other-files"}}
ON_HOLDFAST = frozenset({"Holdfast"})


def result(
    outcome: str, *, name: str = "asserts files", providers: frozenset[str] = ON_HOLDFAST
) -> TestResult:
    return TestResult("JoinSuite", name, outcome, providers)


def test_a_listed_failure_is_as_expected() -> None:
    assert problems([result("failed")], LISTED) == []


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([result("failed"), result("failed", name="joins")], "JoinSuite: joins: failed"),
        ([result("passed")], "JoinSuite: asserts files: passed; take it off the list"),
        ([result("ignored")], "JoinSuite: asserts files: Spark ignores it"),
        ([result("passed", name="joins")], "JoinSuite: asserts files: is on the list, and there"),
        (
            [
                result("failed"),
                result("passed", name="joins", providers=frozenset({"RocksDB"})),
            ],
            "JoinSuite: joins: passed on another provider: RocksDB",
        ),
    ],
)
def test_every_contradiction_is_an_error(results: list[TestResult], said: str) -> None:
    (problem,) = problems(results, LISTED)
    assert problem.startswith(said)


@pytest.mark.parametrize("outcome", ["failed", "passed"])
def test_a_test_that_passes_at_times_is_an_exception_either_way(outcome: str) -> None:
    results = [result(outcome)]
    assert problems(results, LISTED, may_pass={"other-files"}) == []
    assert counts(results, LISTED) == {"JoinSuite": (1, 0, 0, 1)}


def test_a_suite_that_did_not_run_is_not_judged() -> None:
    assert problems([TestResult("OtherSuite", "joins", "passed", ON_HOLDFAST)], LISTED) == []


def test_results_are_read_from_the_report_and_the_providers_seen(tmp_path: Path) -> None:
    report, seen = tmp_path / "TEST.xml", tmp_path / "seen.tsv"
    report.write_text(
        '<testsuite><testcase classname="a.b.JoinSuite" name="one"/>'
        '<testcase classname="a.b.JoinSuite" name="two"><failure message="no"/></testcase>'
        '<testcase classname="a.b.JoinSuite" name="three"><skipped/></testcase></testsuite>'
    )
    seen.write_text("JoinSuite\tone\tHoldfast\nJoinSuite\ttwo\t\n")
    assert read(report, seen) == [
        TestResult("JoinSuite", "one", "passed", ON_HOLDFAST),
        TestResult("JoinSuite", "two", "failed"),
        TestResult("JoinSuite", "three", "ignored"),
    ]


def test_figures_are_those_of_a_suite_without_what_spark_ignores() -> None:
    results = [
        result("failed"),
        result("passed", name="joins"),
        result("passed", name="is refused", providers=frozenset()),
        result("ignored", name="slow"),
    ]
    rows = counts(results, LISTED)
    assert dict(zip(COLUMNS, rows["JoinSuite"], strict=True)) == {
        "tests": 3,
        "passed on Holdfast": 1,
        "passed without a store": 1,
        "excepted": 1,
    }
    assert from_text(as_text(rows)) == rows


def test_every_suite_has_figures_and_they_match_the_list() -> None:
    rows = from_text(spark_suites.RECORD.read_text())
    listed = spark_suites.exceptions()
    assert sorted(rows) == sorted(spark_suites.suites())
    for suite, (tests, on_holdfast, without, excepted) in rows.items():
        assert excepted == len(listed.get(suite, {})), suite
        assert tests == on_holdfast + without + excepted, suite
    assert as_text(rows) == spark_suites.RECORD.read_text()


def test_the_page_on_tests_has_the_sums() -> None:
    rows = from_text(spark_suites.RECORD.read_text())
    tests, on_holdfast, without, excepted = map(sum, zip(*rows.values(), strict=True))
    page = " ".join((TESTS / "README.md").read_text().split())
    assert f"Of {tests:,} tests {on_holdfast:,} pass on Holdfast" in page
    assert f"{without} pass without a store" in page
    assert f"{excepted} are excepted" in page
