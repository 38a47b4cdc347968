"""``holdfast doctor`` beside real Java, Spark and file systems, of which one is wrong at a time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import pyspark
import pytest

import holdfast
from holdfast.cli import doctor
from holdfast.cli.doctor import Finding
from holdfast.cli.main import main
from support import clean_environment
from support.spark.class_archive import archive, options

pytestmark = pytest.mark.spark

IN_JVM = ["plugin", "native library", "settings", "memory"]
CHECKS = ["installation", "PySpark", "Java", "Spark", *IN_JVM]


#: `python -m holdfast`, and the command `holdfast`, by the interpreter of the tests.
MODULE = ("-m", "holdfast")
COMMAND = ("-c", "import sys; from holdfast.cli.main import main; sys.exit(main())")


def examined(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    more_path: Sequence[str] = (),
    program: Sequence[str] = MODULE,
) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit status, findings by check, and what was said to the standard error."""
    # The packages of this process, with them an older minor of Spark where tests run on one.
    path = os.pathsep.join([*more_path, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *program, "doctor", "--json", *arguments],
        env=clean_environment()
        | {"PYTHONPATH": path, "JDK_JAVA_OPTIONS": options(archive())}
        | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = {one.pop("check"): one for one in json.loads(done.stdout)["checks"]}
    return done.returncode, found, done.stderr


def outcomes(found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {check: finding["outcome"] for check, finding in found.items()}


def defaults(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment in which these are in ``spark-defaults.conf``."""
    lines = "".join(f"{key} {value}\n" for key, value in settings.items())
    (folder / "spark-defaults.conf").write_text(lines)
    return {"SPARK_CONF_DIR": str(folder)}


def test_where_nothing_is_wrong_the_folder_is_as_it_was(tmp_path: Path) -> None:
    status, found, _ = examined(tmp_path / "not" / "there", env=defaults(tmp_path, {}))
    assert status == 0
    assert outcomes(found) == dict.fromkeys([*CHECKS, "checkpoint folder"], "ok") | {
        "settings": "note"
    }
    assert found["Spark"]["found"].startswith(f"{pyspark.__version__} in ")
    assert holdfast.plugin_jars()[0].name in found["PySpark"]["found"]
    assert "holdfast conf" in found["settings"]["remedy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spark-defaults.conf"]


def test_the_settings_that_conf_prints_are_right(tmp_path: Path) -> None:
    status, found, _ = examined(env=defaults(tmp_path, holdfast.spark_conf()))
    assert status == 0
    assert set(outcomes(found).values()) == {"ok"}
    assert "what the heap leaves of the " in found["memory"]["found"]


@pytest.mark.full
def test_the_memory_of_an_executor_is_told_and_a_wrong_setting_of_it_named(tmp_path: Path) -> None:
    key = "spark.sql.streaming.stateStore.holdfast.targetMemoryBytes"
    limited = holdfast.spark_conf(max_memory_bytes="1g")
    _, found, _ = examined(env=defaults(tmp_path, limited))
    assert found["memory"]["found"].endswith("three quarters of maxMemoryBytes, 1024 MiB")
    status, found, _ = examined(env=defaults(tmp_path, holdfast.spark_conf() | {key: "much"}))
    assert status == 1
    assert found["memory"]["outcome"] == "wrong"
    assert key in found["memory"]["found"]
    assert "'much'" in found["memory"]["found"]


def test_settings_of_another_provider_and_a_folder_that_cannot_be_made_are_wrong(
    tmp_path: Path,
) -> None:
    key = "spark.sql.streaming.stateStore.providerClass"
    (tmp_path / "file").touch()
    status, found, said = examined(
        tmp_path / "file" / "checkpoint",
        env=defaults(tmp_path, holdfast.spark_conf() | {key: "other.Provider"}),
    )
    assert status == 1
    assert said.endswith("holdfast: 2 of 9 checks found something wrong\n")
    assert outcomes(found)["settings"] == outcomes(found)["checkpoint folder"] == "wrong"
    assert f"{key} is other.Provider, not io.holdfast" in found["settings"]["found"]
    assert str(tmp_path / "file") in found["checkpoint folder"]["found"]


def test_a_native_jar_of_another_platform_is_named(tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    shutil.copytree(Path(holdfast.__file__).parent, package)
    (jar,) = package.glob("_native/holdfast-native-*.jar")
    with zipfile.ZipFile(jar) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(jar, "w") as archive:
        for name, content in entries.items():
            archive.writestr(re.sub("^native/[^/]+/", "native/plan9-alpha/", name), content)
    status, found, _ = examined(more_path=[str(tmp_path)])
    assert status == 1
    assert str(package) in found["installation"]["found"]
    assert outcomes(found)["native library"] == "wrong"
    assert "of a wheel built for this platform" in found["native library"]["found"]


def test_another_project_with_files_in_the_same_folder_is_named(tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    shutil.copytree(Path(holdfast.__file__).parent, package)
    # Installed later, as `pip install holdfast` does it.
    (package / "__init__.py").write_text('"""Another project."""\n')
    (tmp_path / "holdfast-0.5.1.dist-info").mkdir()
    (tmp_path / "holdfast-0.5.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: holdfast\nVersion: 0.5.1\n"
    )
    status, found, _ = examined(more_path=[str(tmp_path)], program=COMMAND)
    assert status == 1
    assert outcomes(found)["installation"] == "wrong"
    assert (
        f"holdfast 0.5.1 of another project has files in {package}"
        in (found["installation"]["found"])
    )
    # The advice helps.
    assert (
        "pip uninstall --yes holdfast, then install holdfast-spark again"
        in (found["installation"]["remedy"])
    )
    shutil.rmtree(tmp_path / "holdfast-0.5.1.dist-info")
    shutil.copy2(holdfast.__file__, package)
    _, found, _ = examined(more_path=[str(tmp_path)], program=COMMAND)
    assert outcomes(found)["installation"] == "ok"
    assert str(package) in found["installation"]["found"]


def old_java(folder: Path) -> dict[str, str]:
    java = folder / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder / "java-home")}


@pytest.mark.parametrize("java", ["old", "missing"])
def test_without_a_new_enough_java_nothing_is_started(tmp_path: Path, java: str) -> None:
    env = old_java(tmp_path) if java == "old" else {"JAVA_HOME": str(tmp_path)}
    status, found, _ = examined(tmp_path, env=env)
    assert status == 1
    skipped = dict.fromkeys(["Spark", *IN_JVM], "skipped")
    expected = {"installation": "ok", "PySpark": "ok", "Java": "wrong", "checkpoint folder": "ok"}
    assert outcomes(found) == expected | skipped
    assert ("found 11 at" if java == "old" else "cannot be started") in found["Java"]["found"]
    assert found["Java"]["remedy"]


def test_a_spark_home_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    status, found, _ = examined(env={"SPARK_HOME": str(tmp_path)})
    assert status == 1
    assert outcomes(found)["Spark"] == "wrong"
    assert "SPARK_HOME" in found["Spark"]["remedy"]


def test_without_pyspark_java_is_looked_at_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert main(["doctor", "hdfs://namenode/checkpoints"]) == 1
    said = capsys.readouterr()
    lines = [line for line in said.out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == ["ok", "wrong", "ok", *["skipped"] * 6]
    assert "wrong    PySpark            it is not installed for this Python" in lines
    assert "pip install 'holdfast-spark[spark]'" in said.out
    assert said.err == "holdfast: 1 of 9 checks found something wrong\n"


def finding(check: str) -> Finding:
    """One of those that need no JVM; the checks behind it do not run."""
    return next(found for name, found in doctor.examine() if name == check)


@pytest.mark.parametrize(
    ("spark", "arrow", "outcome"),
    [
        ("4.0.1", "26.0.1", "note"),
        ("4.0.3", "101.0.0rc1", "note"),
        ("4.0.1", "25.0.0", "ok"),
        ("4.1.4", "26.0.1", "ok"),
        ("4.0.1", None, "ok"),
    ],
)
def test_a_pyarrow_that_is_known_to_fail_is_named(
    spark: str, arrow: str | None, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if arrow is None or package != "pyarrow":
            raise metadata.PackageNotFoundError(package)
        return arrow

    monkeypatch.setattr(pyspark, "__version__", spark)
    monkeypatch.setattr(metadata, "version", version)
    found = finding("PySpark")
    assert found.outcome == outcome
    assert found.found.startswith(f"{spark} takes holdfast-spark-{spark[:3]}")
    if outcome == "note":
        assert f"with pyarrow {arrow}, applyInPandasWithState fails inside PySpark" in found.found
        assert "pip install 'pyarrow<26'" in found.remedy


@pytest.mark.parametrize("wrong", ["some/other/place", "bin", "bin/java", "bin/java/more"])
def test_a_wrong_java_home_is_told_from_a_missing_java(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / wrong))
    found = finding("Java")
    assert found.outcome == "wrong"
    assert f"JAVA_HOME={tmp_path / wrong}" in found.found
    assert "Install" not in found.remedy
    if wrong.startswith("bin") and not wrong.endswith("more"):
        assert found.remedy.endswith(f"JAVA_HOME={tmp_path}")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    else:
        assert found.remedy.endswith(f"or unset JAVA_HOME: then Spark takes {java}")
        monkeypatch.delenv("JAVA_HOME")
    assert finding("Java") == Finding("ok", "21")


def test_where_no_java_is_one_is_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert finding("Java").remedy.startswith("Install one")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert finding("Java").remedy.startswith("Let JAVA_HOME lead to the folder of a Java")
    assert "Install one" in finding("Java").remedy


def test_a_java_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Unrecognized option: -Xmany' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = finding("Java")
    assert found.found.endswith(
        f"'{java} -version' fails with status 1: Unrecognized option: -Xmany"
    )
    assert "JAVA_TOOL_OPTIONS" in found.remedy


def test_a_folder_that_the_locale_of_java_cannot_name_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "z\u00e4hler"
    status, found, _ = examined(folder, env={"LC_ALL": "C"})
    assert status == 1
    assert found["checkpoint folder"]["outcome"] == "wrong"
    assert f"cannot name '{folder}'" in found["checkpoint folder"]["found"]
    assert "a locale whose encoding is ANSI_X3.4-1968" in found["checkpoint folder"]["found"]
    assert "LC_ALL=C.UTF-8 in the environment" in found["checkpoint folder"]["remedy"]
    assert not folder.exists()
    status, found, _ = examined(folder, env={"LC_ALL": "C.UTF-8"})
    assert (status, found["checkpoint folder"]["outcome"]) == (0, "ok")
