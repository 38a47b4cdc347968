"""The installed package: import cost, command line, content of the jar."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from importlib import metadata, resources

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import holdfast
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
    assert holdfast.__version__ == metadata.version("holdfast")


def test_package_is_marked_as_typed() -> None:
    assert resources.files("holdfast").joinpath("py.typed").is_file()


def test_distribution_requires_no_other_package() -> None:
    required = metadata.requires("holdfast") or []
    assert [line for line in required if "extra ==" not in line] == []


def test_the_extra_brings_what_pyspark_needs_for_operators_in_python() -> None:
    """PySpark itself requires none of it: its extra `sql` does, and protobuf is in none."""
    ours = of_extra("holdfast", "spark")
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


def test_jar_holds_the_native_library_and_says_what_it_is() -> None:
    with zipfile.ZipFile(holdfast.plugin_jar()) as jar:
        names = jar.namelist()
        facts = dict(
            line.split("=", 1)
            for line in jar.read("holdfast-build.properties").decode().splitlines()
        )
    assert names[0] == "META-INF/MANIFEST.MF"
    assert facts["version"] == holdfast.__version__
    assert facts["spark.minor"] == "4.3"
    folder = f"native/{facts['native.platforms']}/"
    assert any(name.startswith(folder + "libholdfast_jni.") for name in names)


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
    )
    done = run_cli("conf", *options)
    assert done.returncode == 0
    assert dict(line.split(None, 1) for line in done.stdout.splitlines()) == holdfast.spark_conf(
        max_file_bytes=65536, compression="none", max_memory_bytes=4194304
    )
    assert "append" in done.stderr


def test_conf_takes_sizes_in_the_notation_of_spark() -> None:
    done = run_cli("conf", "--max-file-bytes", "64m", "--max-memory-bytes", "8g", "--json")
    assert json.loads(done.stdout) == holdfast.spark_conf(
        max_file_bytes=64 << 20, max_memory_bytes=8 << 30
    )


def test_jar_prints_only_the_path_on_stdout() -> None:
    done = run_cli("jar")
    assert (done.returncode, done.stdout) == (0, f"{holdfast.plugin_jar()}\n")
    assert json.loads(run_cli("jar", "--json").stdout) == {"jar": str(holdfast.plugin_jar())}


def test_every_command_prints_a_document_on_request() -> None:
    (commands,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    assert set(commands.choices) == {"conf", "jar", "show", "verify", "history"}
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
    monkeypatch.setattr("holdfast._spark.__file__", "/nonexistent/_spark.py")
    assert main(["jar"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "/nonexistent/_native/holdfast-spark-4.3" in said.err


def test_console_script_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="holdfast")
    assert script.load() is main
