"""The build: which sources a Spark minor is compiled from, and which jars against."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast import _jars

ROOT = Path(__file__).resolve().parents[2]

# The build backend is not part of the installed package. It comes last, so that `holdfast` is the
# installed one.
sys.path.append(str(ROOT / "python"))

from holdfast_build import maven, minors, release, tools  # noqa: E402


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("from-4.0", ["4.0", "4.1", "4.2", "4.3", "4.10"]),
        ("from-4.2", ["4.2", "4.3", "4.10"]),
        ("until-4.2", ["4.0", "4.1", "4.2"]),
        ("only-4.1", ["4.1"]),
        ("only-4.10", ["4.10"]),
    ],
)
def test_a_range_holds_its_minors(name: str, held: list[str]) -> None:
    assert [m for m in ("4.0", "4.1", "4.2", "4.3", "4.10") if minors.holds(name, m)] == held


@pytest.mark.parametrize("name", ["4.3", "spark-4.3", "from-4", "from-4.3-", "after-4.0"])
def test_a_folder_that_is_no_range_is_refused(name: str) -> None:
    with pytest.raises(tools.BuildError, match=f"{re.escape(name)} is no range"):
        minors.holds(name, "4.3")


def test_older_minors_leave_out_lines_and_call_packages_by_their_older_name() -> None:
    source = (
        "import org.apache.spark.sql.execution.streaming.checkpointing.Log;\n"
        "    call(\n"
        "        since, // from-4.2\n"
        "        always); // from the start\n"
        "    // until-4.1: return false;\n"
    )
    assert minors.form(source, "4.3") == minors.form(source, "4.2") == source
    without = source.replace("        since, // from-4.2\n", "").replace("// until-4.1: ", "")
    assert minors.form(source, "4.1") == without
    assert minors.form(source, "4.0") == without.replace("checkpointing.", "")


def test_package_and_build_agree_on_the_minors() -> None:
    assert _jars.SPARK_MINORS == minors.MINORS
    assert _jars.OLDEST_SPARK == minors.OLDEST_RELEASE
    assert {pom.name for pom in minors.POMS.iterdir()} == set(minors.MINORS[:-1])


def test_continuous_integration_tests_every_older_minor() -> None:
    pins = {pins.stem for pins in (ROOT / "requirements" / "spark").iterdir()}
    assert pins == set(minors.MINORS[:-1])
    (tested,) = re.findall(
        r"^ +minor: \[(.+)\]$", (ROOT / ".github" / "workflows" / "ci.yml").read_text(), re.M
    )
    assert tested == ", ".join(f'"{minor}"' for minor in minors.MINORS[:-1])


@pytest.mark.parametrize("minor", minors.MINORS)
def test_a_class_has_one_form_in_a_minor(minor: str) -> None:
    sources = [
        str(file.relative_to(folder))
        for folder in minors.source_folders(minor)
        for file in folder.glob("java/**/*.java")
        if file.name != "package-info.java"
    ]
    assert len(sources) == len(set(sources)) > 80


def test_every_minor_has_every_class_whose_form_depends_on_it() -> None:
    names = {
        minor: {
            file.name
            for folder in minors.source_folders(minor)
            for file in folder.glob("java/io/holdfast/spark/minor/*.java")
        }
        for minor in minors.MINORS
    }
    assert len(set(map(frozenset, names.values()))) == 1


@pytest.fixture
def pinned(tmp_path: Path) -> tuple[Path, Path]:
    """A pom with one jar, and the folder that has it."""
    pom, into = tmp_path / "pom", tmp_path / "jars"
    pom.mkdir()
    into.mkdir()
    (pom / "pom.xml").write_text("<project/>")
    (pom / "sha256").write_text(f"{hashlib.sha256(b'classes').hexdigest()}  a-1.jar\n")
    (into / "a-1.jar").write_bytes(b"classes")
    return pom, into


def test_jars_that_are_there_need_no_maven(
    pinned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert maven.jars(*pinned) == [pinned[1] / "a-1.jar"]


def test_another_jar_than_the_pinned_one_is_refused(pinned: tuple[Path, Path]) -> None:
    jar = pinned[1] / "a-1.jar"
    jar.write_bytes(b"other classes")
    with pytest.raises(
        tools.BuildError, match=r"a-1\.jar has sha256 \w+, expected \w+\. Delete it"
    ):
        maven.jars(*pinned)
    assert jar.read_bytes() == b"other classes"


def test_without_maven_the_missing_jars_are_named(
    pinned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pinned[1] / "a-1.jar").unlink()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(maven.MissingJarsError, match=r"a-1\.jar of .*pom\.xml.*apt install maven"):
        maven.jars(*pinned)


def wheel_with(folder: Path, *, extension: bytes, jni: bytes) -> Path:
    """A wheel with the extension, and with the JNI library in a jar."""
    jar, wheel = io.BytesIO(), folder / "some.whl"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("native/linux-x86_64/libholdfast_jni.so", jni)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("holdfast/_core.abi3.so", extension)
        archive.writestr("holdfast/_native/native.jar", jar.getvalue())
    return wheel


def test_a_wheel_whose_libraries_need_no_newer_glibc_than_its_tag_says_is_published(
    tmp_path: Path,
) -> None:
    release.require_glibc(wheel_with(tmp_path, extension=b"\0GLIBC_2.9\0", jni=b"\0GLIBC_2.17\0"))


@pytest.mark.parametrize(
    ("extension", "jni", "named"),
    [
        (b"\0GLIBC_2.34\0", b"\0GLIBC_2.17\0", "holdfast/_core.abi3.so"),
        (b"\0GLIBC_2.17\0", b"\0GLIBC_2.4\0GLIBC_2.18\0", "libholdfast_jni.so"),
    ],
)
def test_a_library_that_needs_a_newer_glibc_is_named(
    tmp_path: Path, extension: bytes, jni: bytes, named: str
) -> None:
    wheel = wheel_with(tmp_path, extension=extension, jni=jni)
    needs = rf"{re.escape(named)} in some\.whl needs glibc 2\.(18|34), and"
    with pytest.raises(tools.BuildError, match=needs):
        release.require_glibc(wheel)


def test_a_wheel_without_a_library_is_not_published(tmp_path: Path) -> None:
    wheel = tmp_path / "pure.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("holdfast/__init__.py", "")
    with pytest.raises(tools.BuildError, match=r"pure\.whl holds no library"):
        release.require_glibc(wheel)
