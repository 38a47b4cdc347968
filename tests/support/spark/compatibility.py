"""The tables of docs/compatibility.md, made of test results on each Spark minor.

``python -m support.spark.compatibility`` writes them from the results of ``make test-versions``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from packaging.requirements import Requirement

from holdfast._jars import SPARK_MINORS
from holdfast.cli.doctor import KNOWN_TO_FAIL
from support import TESTS
from support.markdown import table, with_tables
from support.spark.cases import CASES
from support.spark.minors import minor_of
from support.spark.results import FAILED, PASSED, Results, load

DOCUMENT = TESTS.parent / "docs" / "compatibility.md"

PARTITIONS = (1, 20, 200)

OPERATORS_FILE = "tests/spark/stores/test_operators.py"
OPERATORS_TEST = "test_rows_equal_those_of_rocksdb_after_every_batch"
UPGRADES_FILE = "tests/spark/stores/test_upgrades.py"
UPGRADES_TEST = "test_a_query_begun_on_an_older_minor_continues_on_a_newer_one"

REQUIREMENTS = TESTS.parent / "requirements"

#: The Python of `make test-versions`.
TESTED_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}

#: Packages that PySpark needs for operators in Python, with their usual names.
NAMES = {"pyarrow": "PyArrow", "pandas": "pandas", "numpy": "NumPy"}

NOT_RUN, FAILS = "not run", "**fails**"

#: Other subjects, with the beginnings of their tests' names: a file, or a test in it.
SUBJECTS = {
    "`kill -9` of driver and executors": ["test_crash.py"],
    "`foreachBatch` that runs a batch twice": ["test_foreach_batch.py"],
    "`statestore` and `state-metadata` readers, change feed, snapshots": ["test_state_readers.py"],
    "metrics in the progress, in Spark's UI and in its metrics system": ["test_metrics.py"],
    "Spark's own files: synced, and not asked for in vain": [
        "test_durable_logs.py",
        "test_recent_entries.py",
    ],
    "checkpoints on HDFS": ["test_hdfs.py"],
    "checkpoints on S3": ["test_object_store.py"],
    "regional pipelines": ["test_regional.py", "test_regional_streams.py"],
    "regional pipelines over `FileSplits`": ["test_file_splits.py"],
    "an older minor is refused": ["test_downgrades.py"],
    "isolation: an operator catches up after a key failed": [
        "test_isolated_operators.py::test_an_operator_catches_up"
    ],
    "isolation: an operator that is not isolated fails, and the log says why": [
        "test_isolated_operators.py::test_an_operator_that_is_not_isolated",
        "test_isolated_operators.py::test_a_failure_below",
    ],
}


@dataclass
class Notes:
    """Reasons, numbered by first use."""

    reasons: list[str] = field(default_factory=list)

    def mark(self, reason: str) -> str:
        """The mark of a reason."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        return f"[{self.reasons.index(reason) + 1}]"

    def lines(self) -> Iterator[str]:
        """The reasons below a table."""
        for number, reason in enumerate(self.reasons, start=1):
            yield f"{number}. {reason}."


def by_minor(results: Results) -> dict[str, dict[str, dict[str, str]]]:
    """Results of every minor, by file and test."""
    found = {minor_of(version): files for version, files in results.items()}
    return {minor: found.get(minor, {}) for minor in SPARK_MINORS}


def operator_cell(case: str, tests: dict[str, str], notes: Notes) -> str:
    """The partitions on which a case with a restart gave RocksDB's rows on a minor."""
    said = []
    for partitions in PARTITIONS:
        outcome = tests.get(f"{OPERATORS_TEST}[{case}-{partitions}-restarted]")
        if outcome == PASSED:
            said.append(str(partitions))
        elif outcome == FAILED:
            said.append(f"{FAILS} on {partitions}")
        elif outcome is not None and (mark := notes.mark(outcome)) not in said:
            said.append(mark)
    return ", ".join(said) or NOT_RUN


def operators(results: Results) -> Iterator[str]:
    """The cases of the matrix by minor; those with equal results share a row."""
    notes = Notes()
    found = by_minor(results)
    cases: dict[tuple[str, ...], list[str]] = {}
    for case in CASES:
        cells = (
            operator_cell(case, files.get(OPERATORS_FILE, {}), notes) for files in found.values()
        )
        cases.setdefault(tuple(cells), []).append(f"`{case}`")
    rows = [[", ".join(names), *cells] for cells, names in cases.items()]
    yield from table(["cases", *versions(results)], rows)
    yield ""
    yield from notes.lines()


def versions(results: Results) -> list[str]:
    """The patch of every minor that was tested."""
    tested = {minor_of(version): version for version in results}
    return [tested.get(minor, minor) for minor in SPARK_MINORS]


def subject_cell(begins: list[str], files: dict[str, dict[str, str]], notes: Notes) -> str:
    """The number of a subject's tests that passed on a minor."""
    outcomes = [
        outcome
        for file, tests in files.items()
        for test, outcome in tests.items()
        if f"{PurePath(file).name}::{test}".startswith(tuple(begins))
    ]
    if not outcomes:
        return NOT_RUN
    passed, failed = outcomes.count(PASSED), outcomes.count(FAILED)
    said = [str(passed)] if passed else []
    said += [f"{FAILS}: {failed}"] if failed else []
    said += sorted({notes.mark(why) for why in outcomes if why not in (PASSED, FAILED)})
    return ", ".join(said)


def subjects(results: Results) -> Iterator[str]:
    """Other subjects by minor, in numbers of tests."""
    notes = Notes()
    found = by_minor(results)
    rows = [
        [name] + [subject_cell(begins, files, notes) for files in found.values()]
        for name, begins in SUBJECTS.items()
    ]
    yield from table(["what", *versions(results)], rows)
    yield ""
    yield from notes.lines()


def upgrade_cell(older: str, newer: str, tests: dict[str, str]) -> str:
    """The result of queries that a minor began and another continued."""
    outcome = tests.get(f"{UPGRADES_TEST}[{older}-{newer}]")
    return {PASSED: "yes", FAILED: FAILS}.get(outcome or "", NOT_RUN)


def upgrades(results: Results) -> Iterator[str]:
    """Every pair of minors: they run in processes of their own, started from the newest."""
    tests = by_minor(results)[SPARK_MINORS[-1]].get(UPGRADES_FILE, {})
    pairs = list(itertools.combinations(SPARK_MINORS, 2))
    rows = [
        [f"from {older}"]
        + [
            upgrade_cell(older, newer, tests) if (older, newer) in pairs else ""
            for newer in SPARK_MINORS[1:]
        ]
        for older in SPARK_MINORS[:-1]
    ]
    yield from table(["", *(f"to {minor}" for minor in SPARK_MINORS[1:])], rows)


def pinned(minor: str) -> dict[str, str]:
    """Versions of the packages that tests of a minor run with, on the Python of those tests."""
    found: dict[str, str] = {}
    of_minor = REQUIREMENTS / "spark" / f"{minor}.txt"
    # Before the locked packages, if the minor has a file.
    for file in filter(Path.exists, [REQUIREMENTS / "dev.txt", of_minor]):
        for line in file.read_text().splitlines():
            if line[:1].isalpha():
                requirement = Requirement(line.rstrip("\\ "))
                if requirement.marker is None or requirement.marker.evaluate(TESTED_PYTHON):
                    (version,) = requirement.specifier
                    found[requirement.name] = version.version
    return found


def packages(results: Results) -> Iterator[str]:
    """The tested versions of packages for operators in Python, by minor."""
    notes = Notes()

    def cell(package: str, minor: str) -> str:
        version, fails = pinned(minor)[package], KNOWN_TO_FAIL.get(minor)
        if fails is None or fails.package != package:
            return version
        newer = f"{NAMES[package]} {fails.from_major} or newer"
        advice = f"Install `{package}<{fails.from_major}`"
        return f"{version} {notes.mark(f'PySpark {minor} with {newer}: {fails.what}. {advice}')}"

    rows = [
        [name, *(cell(package, minor) for minor in SPARK_MINORS)] for package, name in NAMES.items()
    ]
    yield from table(["package", *versions(results)], rows)
    yield ""
    yield from notes.lines()


#: By the name in the comment that begins each.
TABLES = {
    "operators": operators,
    "packages": packages,
    "subjects": subjects,
    "upgrades": upgrades,
}


def rendered(text: str, results: Results) -> str:
    """A document with its tables made again."""
    return with_tables(text, {name: make(results) for name, make in TABLES.items()})


def main(document: Path = DOCUMENT) -> None:
    """Write the document again."""
    document.write_text(rendered(document.read_text(), load()))


if __name__ == "__main__":
    main()
