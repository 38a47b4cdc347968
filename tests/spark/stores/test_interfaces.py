"""The jar of every Spark minor fits that minor's interfaces, as far as reflection tells."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

import holdfast
from holdfast._jars import SPARK_MINORS
from support.spark.java_side import (
    PYSPARK_JARS,
    QUICK_START,
    ROOT,
    compiled,
    maven,
    tool,
)
from support.spark.minors import NEWEST

ENDPOINT = "it answers requests; connections and its own life are no matter of it"
#: Optional methods of Spark's interfaces that stay at their default: who has them, and why.
OPTIONAL = {
    "CheckpointFileManager.list": (SPARK_MINORS, "calls the form with a filter"),
    "RpcEndpoint.onConnected": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.onDisconnected": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.onError": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.onNetworkError": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.onStart": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.onStop": (SPARK_MINORS, ENDPOINT),
    "RpcEndpoint.receive": (SPARK_MINORS, "messages without an answer, which nothing sends"),
    "RpcEndpoint.self": (SPARK_MINORS, "Spark's own, built on what is implemented"),
    "RpcEndpoint.stop": (SPARK_MINORS, "Spark's own, built on what is implemented"),
    "StateStoreProvider.doCleanupMaintenance": (("4.3",), "the driver deletes files of all stores"),
    "StateStoreProvider.setUnloaded": (("4.3",), "Spark's own, built on what is implemented"),
    "StateStoreProvider.supportedInstanceMetrics": (
        ("4.1", "4.2", "4.3"),
        "there is no metric of a single store",
    ),
}


@cache
def spark(minor: str) -> list[Path]:
    """The jars of a Spark minor: its own, and the libraries that all minors have."""
    if minor == NEWEST:
        return [PYSPARK_JARS / "*"]
    own = maven.jars(ROOT / "spark_plugin" / "jars" / minor, ROOT / f"build/jars/spark-{minor}")
    # Classes that the minor does not have must not be found in the newest one.
    of_newest = ("spark-", "hadoop-client-api")
    others = (j for j in sorted(PYSPARK_JARS.glob("*.jar")) if not j.name.startswith(of_newest))
    return [*own, *others]


def lines_of(*command: str, path: list[Path]) -> tuple[list[str], str]:
    """What a program in a JVM printed, by line, and what it logged."""
    done = subprocess.run(
        [
            *(tool("java"), *QUICK_START, "-Dlog4j2.level=WARN"),
            *("-cp", os.pathsep.join(map(str, path)), *command),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if " WARN " not in line]
    return printed, done.stderr + done.stdout


def report(*, built_for: str, running: str) -> tuple[set[str], set[str]]:
    """What does not fit, and which optional methods stay at their default."""
    plugin, _ = holdfast.plugin_jars(spark=built_for)
    lines, _ = lines_of(
        "InterfaceReport", path=[compiled("InterfaceReport"), plugin, *spark(running)]
    )
    assert lines[-1:] == ["compared"]
    told = [line.split(" ", 1) for line in lines[:-1]]
    missing = {text for kind, text in told if kind == "missing"}
    return missing, {text for kind, text in told if kind == "optional"}


@pytest.mark.parametrize("minor", SPARK_MINORS)
def test_a_jar_implements_what_its_minor_asks_for_and_uses_what_it_has(minor: str) -> None:
    missing, optional = report(built_for=minor, running=minor)
    assert missing == set()
    listed = {method for method, (minors, _) in OPTIONAL.items() if minor in minors}
    assert {method.split()[1] for method in optional} == listed


@pytest.mark.parametrize(
    ("built_for", "running", "named"),
    [
        (
            "4.2",
            "4.3",
            {
                "does not implement public abstract boolean org.apache.spark.sql.execution"
                ".streaming.state.StateStoreProvider.unloaded()",
                "StateStoreCustomSizeMetric.<init> (Ljava.lang.String;Ljava.lang.String;)V",
            },
        ),
        (
            "4.3",
            "4.2",
            {
                "StateStoreCustomSizeMetric.<init> (Ljava.lang.String;Ljava.lang.String;Z)V",
                "transformwithstate.TransformWithStateExec.<init>",
            },
        ),
        (
            "4.0",
            "4.1",
            {
                "class org.apache.spark.sql.execution.streaming.CheckpointFileManager",
                "SupportsFineGrainedReplay.replayStateFromSnapshot(long,long,boolean",
            },
        ),
    ],
)
def test_a_jar_on_another_minor_is_told_what_is_missing(
    built_for: str, running: str, named: set[str]
) -> None:
    missing, _ = report(built_for=built_for, running=running)
    for part in named:
        assert any(part in text for text in missing), part


def verdict(
    folder: Path, version: str, *, classes: str = NEWEST, knows: str = NEWEST
) -> tuple[str, str]:
    """What a release that knows minors up to `knows` says of a version, and what it logs.

    ``classes`` is the minor that its classes are really made for; Spark's are of the newest.
    """
    minors = ",".join(SPARK_MINORS[: SPARK_MINORS.index(knows) + 1])
    facts = f"version=9.9\nspark.minor={knows}\nspark.minors={minors}\nspark.oldest=4.0.1\n"
    (folder / "holdfast-build.properties").write_text(facts)
    plugin, _ = holdfast.plugin_jars(spark=classes)
    command = ("io.holdfast.spark.minor.VersionCheck", version)
    (said,), logged = lines_of(
        *command, path=[folder, compiled("VersionCheck"), plugin, *spark(NEWEST)]
    )
    return said, logged


def test_an_unknown_minor_that_has_all_is_accepted_with_one_warning(tmp_path: Path) -> None:
    said, logged = verdict(tmp_path, "4.9.1")
    assert said == "accepted"
    assert logged.count("was not tested on Spark 4.9.1, only on versions up to 4.3") == 1
    assert verdict(tmp_path, "4.3.7")[1].count("not tested") == 0


def test_an_unknown_minor_that_lacks_something_is_refused_and_that_is_named(tmp_path: Path) -> None:
    said, _ = verdict(tmp_path, "4.3.0", classes="4.2", knows="4.2")
    assert said.startswith("refused: Holdfast 9.9 knows Spark up to 4.2, and Spark 4.3.0 does not")
    assert "StateStoreProvider.maintenanceLock()" in said
    assert "TransformWithStateExec.<init>" in said


def test_jars_of_two_releases_are_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast-native.properties").write_text("version=9.8\n")
    said, _ = verdict(tmp_path, "4.3.0")
    assert said.startswith("refused: The jars of Holdfast are of two releases: the classes of 9.9")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("3.5.7", "runs on Spark 4.0.1 and newer, and the application runs Spark 3.5.7"),
        ("4.0.0", "runs on Spark 4.0.1 and newer, and the application runs Spark 4.0.0"),
        ("4.2.1", "built for Spark 4.3, but the application runs Spark 4.2.1"),
        ("trunk", "Spark calls its version trunk, which is none"),
    ],
)
def test_a_version_that_the_jar_is_not_for_is_refused_with_the_reason(
    version: str, reason: str, tmp_path: Path
) -> None:
    said, _ = verdict(tmp_path, version)
    assert said.startswith("refused: ")
    assert reason in said
