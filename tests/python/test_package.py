"""The installed package: import cost, command line, content of the jar."""

from __future__ import annotations

import argparse
import json
import rlcompleter
import subprocess
import sys
import zipfile
from importlib import metadata, resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import holdfast
from holdfast._jars import OLDEST_SPARK, SPARK_MINORS
from holdfast.cli.main import main, parser

HEAVY = ["cupy", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich"]


@pytest.mark.parametrize("module", ["holdfast", "holdfast.cli.main", "holdfast.regions"])
def test_import_loads_no_heavy_module(module: str) -> None:
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "holdfast" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_version_is_the_one_of_the_distribution() -> None:
    assert holdfast.__version__ == metadata.version("holdfast-spark")


def test_package_is_marked_as_typed() -> None:
    assert resources.files("holdfast").joinpath("py.typed").is_file()


def test_distribution_requires_no_other_package() -> None:
    required = metadata.requires("holdfast-spark") or []
    assert [line for line in required if "extra ==" not in line] == []


def test_the_extra_brings_what_pyspark_needs_for_operators_in_python() -> None:
    """PySpark itself requires none of it: its extra `sql` does, and protobuf is in none."""
    ours = of_extra("holdfast-spark", "spark")
    needed = of_extra("pyspark", "sql")
    assert {"pandas", "pyarrow", "numpy"} <= needed.keys()
    for package, specifier in needed.items():
        (minimum,) = (part.version for part in specifier if part.operator == ">=")
        lowest = [part.version for part in ours[package] if part.operator == ">="]
        assert [Version(part) >= Version(minimum) for part in lowest] == [True], package
    assert "protobuf" in ours
    # PySpark 4.3 warns that it does not support pandas 3 yet.
    assert not ours["pandas"].contains("3.0.0")


def of_extra(distribution: str, extra: str) -> dict[str, SpecifierSet]:
    requirements = map(Requirement, metadata.requires(distribution) or [])
    return {
        requirement.name: requirement.specifier
        for requirement in requirements
        if requirement.marker and requirement.marker.evaluate({"extra": extra})
    }


def facts_of(jar: Path, file: str) -> tuple[list[str], dict[str, str]]:
    """The names in a jar, and the properties in one of its files."""
    with zipfile.ZipFile(jar) as archive:
        lines = archive.read(file).decode().splitlines()
        return archive.namelist(), dict(line.split("=", 1) for line in lines)


def test_the_native_jar_holds_the_library_and_says_what_it_is() -> None:
    _, native = holdfast.plugin_jars()
    names, facts = facts_of(native, "holdfast-native.properties")
    assert names[0] == "META-INF/MANIFEST.MF"
    assert facts["version"] == holdfast.__version__
    folder = f"native/{facts['native.platforms']}/"
    assert any(name.startswith(folder + "libholdfast_jni.") for name in names)
    assert not any(name.endswith(".class") for name in names)


@pytest.mark.parametrize("minor", SPARK_MINORS)
def test_the_jar_of_every_minor_has_classes_alone_and_says_what_it_is_for(minor: str) -> None:
    classes, native = holdfast.plugin_jars(spark=minor)
    assert native == holdfast.plugin_jars()[1]
    names, facts = facts_of(classes, "holdfast-build.properties")
    assert names[0] == "META-INF/MANIFEST.MF"
    assert facts == {
        "version": holdfast.__version__,
        "spark.minor": minor,
        "spark.minors": ",".join(SPARK_MINORS),
        "spark.oldest": OLDEST_SPARK,
    }
    # Spark writes this name into the offset log: after an upgrade the other jar must have it.
    assert "io/holdfast/spark/HoldfastStateStoreProvider.class" in names
    assert not any(name.startswith("native/") for name in names)


def test_the_jars_of_all_minors_take_little_beside_the_first() -> None:
    sizes = [holdfast.plugin_jars(spark=minor)[0].stat().st_size for minor in SPARK_MINORS]
    assert sum(sizes[:-1]) < 2_000_000


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], check=False, capture_output=True, text=True
    )


def test_conf_prints_only_settings_on_stdout() -> None:
    options = (
        "--max-file-bytes",
        "65536",
        "--compression",
        "none",
        "--max-memory-bytes",
        "4194304",
        "--target-memory-bytes",
        "2097152",
        "--local-cache-bytes",
        "0",
        "--change-journal",
        "--no-spark-files",
        "--adopt",
        "--isolate-failures",
        *("--isolation-max-ratio", "0.5"),
        *("--isolation-max-bytes", "1m"),
        *("--isolation-rerun", "at-least-once"),
        *("--rebalance", "off"),
    )
    done = run_cli("conf", *options)
    assert done.returncode == 0
    assert dict(line.split(None, 1) for line in done.stdout.splitlines()) == holdfast.spark_conf(
        max_file_bytes=65536,
        compression="none",
        max_memory_bytes=4194304,
        target_memory_bytes=2097152,
        local_cache_bytes=0,
        change_journal=True,
        spark_files=False,
        adopt=True,
        isolate_failures=True,
        isolation_max_ratio=0.5,
        isolation_max_bytes=1 << 20,
        isolation_rerun="at-least-once",
        rebalance="off",
    )
    assert "append" in done.stderr


def test_conf_takes_sizes_in_the_notation_of_spark() -> None:
    sizes = ("--max-file-bytes", "64m", "--max-memory-bytes", "8g", "--target-memory-bytes", "5g")
    done = run_cli("conf", *sizes, "--local-cache-bytes", "9g", "--json")
    assert json.loads(done.stdout) == holdfast.spark_conf(
        max_file_bytes=64 << 20,
        max_memory_bytes=8 << 30,
        target_memory_bytes=5 << 30,
        local_cache_bytes=9 << 30,
    )


def test_jar_prints_only_the_paths_on_stdout() -> None:
    jars = [str(jar) for jar in holdfast.plugin_jars()]
    done = run_cli("jar")
    assert (done.returncode, done.stdout) == (0, f"{','.join(jars)}\n")
    assert json.loads(run_cli("jar", "--json").stdout) == {"jars": jars}


def test_conf_and_jar_serve_another_spark_than_the_installed_one() -> None:
    jars = ",".join(map(str, holdfast.plugin_jars(spark="4.0")))
    assert run_cli("jar", "--spark", "4.0.3").stdout == f"{jars}\n"
    conf = json.loads(run_cli("conf", "--spark", "4.0", "--json").stdout)
    assert conf == {**holdfast.spark_conf(spark="4.0"), "spark.jars": jars}


@pytest.mark.parametrize("command", ["conf", "jar"])
@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.5.7", "runs on Spark 4.0.1 and newer, not on 3.5.7"),
        ("4.0.0", "runs on Spark 4.0.1 and newer, not on 4.0.0"),
        ("5.0", "is for Spark 4, not for 5.0"),
        ("four", "'four' is no version of Spark"),
    ],
)
def test_a_spark_that_holdfast_does_not_run_on_is_refused(
    command: str, version: str, said: str
) -> None:
    done = run_cli(command, "--spark", version)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_every_command_prints_a_document_on_request() -> None:
    (commands,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    named = (
        "conf jar show verify history state cost parked quarantine dead-letters adopt undo leave "
        "tag tags untag branch detach rollback"
    )
    assert set(commands.choices) == {*named.split(), "diff", "repartition", "doctor"}
    for name, command in commands.choices.items():
        assert "--json" in command.format_help(), name


@pytest.mark.parametrize(
    "arguments",
    [[], ["unknown"], ["conf", "--max-file-bytes", "many"], ["conf", "--compression", "zip"]],
)
def test_a_wrong_argument_leaves_stdout_empty_and_exits_2(arguments: list[str]) -> None:
    done = run_cli(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holdfast" in done.stderr


def test_a_missing_jar_exits_1_and_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("holdfast._jars.__file__", "/nonexistent/_jars.py")
    assert main(["jar"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "/nonexistent/_native/holdfast-spark-4.3" in said.err


def test_console_script_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="holdfast")
    assert script.load() is main


NAMES = """
import inspect, sys
sys.modules.update({name: None for name in sys.argv[1:]})
import holdfast
print(*(name for name, _ in inspect.getmembers(holdfast) if not name.startswith("_")))
"""


def names_shown(*missing: str) -> set[str]:
    """Public names that a program sees in the package where these packages are missing."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES, *missing], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_completion_shows_every_public_name_and_no_other() -> None:
    public = {name for name in holdfast.__all__ if name != "__version__"}
    assert {name for name in dir(holdfast) if not name.startswith("_")} == public
    assert {"Operator", "regional", "restore", "LocalQuery"} <= names_shown() == public
    assert set(holdfast.regions.__all__) <= set(dir(holdfast.regions)) & public
    completer = rlcompleter.Completer({"holdfast": holdfast})
    assert completer.complete("holdfast.reg", 0) == "holdfast.regional("


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_without_pyarrow_only_what_works_is_shown(missing: str) -> None:
    shown = names_shown(missing)
    assert {"SnapshotManager", "spark_conf"} <= shown
    assert "regional" not in shown


def test_a_command_names_the_packages_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"0"}')
    (tmp_path / "offsets").mkdir()
    program = "import sys; sys.modules['pyarrow'] = None; from holdfast.cli.main import main; "
    command = [sys.executable, "-c", f"{program}sys.exit(main(['state', {str(tmp_path)!r}]))"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith(": pip install pyarrow numpy\n")
    assert ended.stderr.count("\n") == 1
