"""Runs Spark's own test suites with Holdfast as the provider.

``python -m support.spark.spark_suites [--record] [--rocksdb] [--isolated] [--bad-rows] [SUITE
...]`` fetches the suites and their Spark, compiles ``tests/spark_suites``, runs each suite in a JVM
of its own, and compares with the exceptions and the figures there. ``--record`` writes the figures.
``--rocksdb`` runs instead, on Spark's RocksDB provider with checkpoint format 2, tests whose reason
says that they fail there. ``--isolated`` isolates failures of tasks, ``--bad-rows`` sets bad rows
aside; both give each task two attempts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import holdfast
from support import TESTS
from support.spark import stateful_suites
from support.spark.java_side import QUICK_START, jars, tool
from support.spark.suite_results import (
    OWN,
    ROCKSDB,
    TestResult,
    as_text,
    counts,
    from_text,
    problems,
    read,
)

SOURCES = TESTS / "spark_suites"
WORK = TESTS.parent / "build" / "spark-suites"
PACKAGE = "io.holdfast.spark.suites"
SPARK = "4.2"
RECORD = SOURCES / "figures.tsv"
LEFT_OUT = SOURCES / "left-out.toml"
_SUITE = re.compile(r"^class (\w+Suite)\b", re.MULTILINE)
_SUITE_LIMIT_S = 1800
#: Spark's own provider with the same checkpoint format.
_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

#: A task needs a second attempt. Tests that expect a failure wait in vain, up to the timeout.
_ATTEMPTS = {"holdfast.suites.master": "local[2,2]", "holdfast.suites.timeoutSeconds": "40"}

#: By name of an argument: settings of `holdfast.spark_conf`, with which tasks have two attempts.
_WAYS: dict[str, dict[str, Any]] = {
    "isolated": {"isolate_failures": True},
    "bad-rows": {"bad_rows": "dead-letter", "dead_letters": "dead-letters"},
}

#: Packages that Spark's launcher opens, because Spark needs them.
_OPENED = (
    *("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect"),
    *("java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
    *("java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/sun.nio.cs"),
    *("java.base/sun.security.action", "java.base/sun.util.calendar"),
    "java.security.jgss/sun.security.krb5",
)


def suites() -> list[str]:
    """The suites with subclasses."""
    return [
        name
        for file in sorted(SOURCES.glob("*.scala"))
        for name in _SUITE.findall(file.read_text())
    ]


def _listed() -> dict[str, Any]:
    return tomllib.loads((SOURCES / "exceptions.toml").read_text())


def passing_at_times() -> set[str]:
    """The reasons of tests whose outcome depends on time, on any provider."""
    return {name for name, reason in _listed()["reasons"].items() if reason.get("may_pass")}


def exceptions(*, of_format: bool = False, ways: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """The reason by test, by suite; every reason is explained.

    Parameters
    ----------
    of_format : bool
        Only exceptions of the checkpoint format, so that Spark's provider fails as well.
    ways : iterable of str
        Also exceptions that hold only with these arguments.
    """
    listed = _listed()
    reasons, by_suite = listed["reasons"], dict(listed["suites"])
    for way in ways:
        for suite, tests in listed[way].items():
            by_suite[suite] = by_suite.get(suite, {}) | tests
    known = suites()
    for suite, tests in by_suite.items():
        if suite not in known:
            raise SystemExit(f"exceptions.toml: there is no suite {suite}")
        for test, reason in tests.items():
            if reason not in reasons:
                raise SystemExit(f"exceptions.toml: {suite}: {test}: no reason {reason}")
    return {
        suite: {
            test: reason
            for test, reason in tests.items()
            if not of_format or reasons[reason].get("rocksdb") == "fails"
        }
        for suite, tests in by_suite.items()
    }


def _stamped(folder: Path, made_from: Iterable[Path]) -> Path | None:
    """The stamp to write once the folder is made; None if it was made from these files."""
    digest = hashlib.sha256()
    for file in made_from:
        digest.update(f"{file} {file.stat().st_mtime_ns}\n".encode())
    stamp = folder / f"{digest.hexdigest()}.stamp"
    if stamp.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return stamp


def compiled(class_path: list[Path]) -> Path:
    """Compile the subclasses, unless they are unchanged; a warning is an error."""
    classes = WORK / "classes"
    sources = sorted(SOURCES.glob("*.scala"))
    stamp = _stamped(classes, [*sources, *class_path])
    if stamp:
        path = os.pathsep.join(map(str, class_path))
        command = [tool("java"), "-Xmx1g", "-cp", path, "scala.tools.nsc.Main", "-deprecation"]
        command += ["-Xfatal-warnings", "-d", str(classes), "-cp", path]
        command += map(str, sources)
        subprocess.run(command, check=True, timeout=300)
        stamp.touch()
    return classes


def _jar_of_suites(fetched: list[Path]) -> Path:
    return next(jar for jar in fetched if re.match(r"spark-sql_.*-tests\.jar", jar.name))


def resources(fetched: list[Path]) -> Path:
    """The files of the suites, out of their jar."""
    folder = WORK / "resources"
    tests = _jar_of_suites(fetched)
    stamp = _stamped(folder, [tests])
    if stamp:
        with zipfile.ZipFile(tests) as archive:
            wanted = [
                name
                for name in archive.namelist()
                if not name.endswith(".class") and not name.startswith("META-INF/")
            ]
            archive.extractall(folder, wanted)
        stamp.touch()
    return folder


def settings(*, rocksdb: bool, ways: Iterable[str]) -> dict[str, str]:
    """Settings of Spark with Holdfast, or with Spark's own provider."""
    if rocksdb:
        return _ROCKSDB
    # Some tests count every change that the change feed shows.
    more = {name: value for way in ways for name, value in _WAYS[way].items()}
    ours = holdfast.spark_conf(spark=SPARK, change_journal=True, **more)
    del ours["spark.jars"]  # they are on the class path
    return ours


def run(
    suite: str,
    class_path: list[Path],
    *,
    rocksdb: bool = False,
    ways: Iterable[str] = (),
    only: Iterable[str] = (),
) -> list[TestResult]:
    """Run a suite or some of its tests; its log stays in ``build/spark-suites/SUITE``."""
    folder = WORK / "-".join([suite, *["rocksdb"] * rocksdb, *ways])
    folder.mkdir(parents=True, exist_ok=True)
    seen, report = folder / "seen.tsv", folder / f"TEST-{PACKAGE}.{suite}.xml"
    for stale in (seen, report):
        stale.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-suites-") as scratch:
        properties = {
            **settings(rocksdb=rocksdb, ways=ways),
            "spark.testing": "true",
            "spark.ui.enabled": "false",
            "spark.test.home": scratch,
            "java.io.tmpdir": scratch,
            "io.netty.tryReflectionSetAccessible": "true",
            "holdfast.suites.seen": str(seen),
            **(_ATTEMPTS if ways else {}),
        }
        command = [tool("java"), *QUICK_START, "-Xmx3g", "-Xss4m", "-ea"]
        command += ["--add-modules=jdk.incubator.vector"]
        command += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED]
        command += [f"-D{key}={value}" for key, value in properties.items()]
        command += ["-cp", os.pathsep.join(map(str, class_path)), "org.scalatest.tools.Runner"]
        command += ["-R", str(WORK / "classes"), "-s", f"{PACKAGE}.{suite}"]
        for test in only:
            command += ["-t", test]
        command += ["-u", str(folder), "-fW", str(folder / "result.txt")]
        environment = {
            **os.environ,
            "SPARK_TESTING": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Otherwise a worker of a local cluster looks for it in Spark's sources.
            "SPARK_SCALA_VERSION": "2.13",
        }
        with (folder / "output.txt").open("wb") as output:
            # A failed test fails the process as well; the report has the expected ones.
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_SUITE_LIMIT_S,
                check=False,
            )
    if not report.exists():
        raise SystemExit(f"{suite} did not run to its end: see {folder / 'output.txt'}")
    return read(report, seen)


def unlike_record(rows: dict[str, tuple[int, ...]]) -> list[str]:
    """An error for each suite whose figures differ from the record."""
    known = from_text(RECORD.read_text())
    return [
        f"{suite}: {row}, but {RECORD.name} has {known.get(suite)}; --record writes it"
        for suite, row in rows.items()
        if row != known.get(suite)
    ]


def left_out() -> dict[str, str]:
    """The reason why a suite is not run, by suite."""
    return stateful_suites.left_out(LEFT_OUT.read_text())


def unaccounted(tests: Path) -> list[str]:
    """An error for each suite of the jar with state, and is in neither list."""
    found = stateful_suites.stateful(stateful_suites.read(tests))
    return stateful_suites.unaccounted(found, run=suites(), left=left_out())


def main() -> int:
    """Run the suites that are named, or all."""
    known = suites()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rocksdb", action="store_true")
    for way in _WAYS:
        parser.add_argument(f"--{way}", dest="ways", action="append_const", const=way, default=[])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("suites", nargs="*", choices=[*known, []], metavar="SUITE")
    given = parser.parse_args()
    listed = exceptions(of_format=given.rocksdb, ways=given.ways)
    fetched = jars("spark-suites")
    plugin = holdfast.plugin_jars(spark=SPARK)
    class_path = [compiled([*fetched, *plugin]), resources(fetched), *fetched, *plugin]
    results: list[TestResult] = []
    for name in given.suites or known:
        only = listed.get(name, {}) if given.rocksdb else {}
        if given.rocksdb and not only:
            continue
        of_suite = run(name, class_path, rocksdb=given.rocksdb, ways=given.ways, only=only)
        failed = sum(result.outcome == "failed" for result in of_suite)
        print(f"{name}: {len(of_suite)} tests, {failed} failed", flush=True)
        results += of_suite
    own = ROCKSDB if given.rocksdb else OWN
    wrong = problems(results, listed, own=own, may_pass=passing_at_times())
    rows = counts(results, listed)
    if given.record and not given.ways and not wrong:
        RECORD.write_text(as_text(from_text(RECORD.read_text()) | rows))
    if not given.rocksdb:
        print(as_text(rows), end="")
    if not given.rocksdb and not given.ways:
        wrong += unlike_record(rows)
    if not given.suites and not given.rocksdb:
        wrong += unaccounted(_jar_of_suites(fetched))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
