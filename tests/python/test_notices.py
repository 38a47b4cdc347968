"""Notices and bills of materials in the installed wheel and its plugin jar."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import holdfast

ROOT = Path(__file__).resolve().parents[2]

# The build backend is not part of the installed package. It comes last, so that `holdfast` is the
# installed one.
sys.path.append(str(ROOT / "python"))

from holdfast_build import crates, notices, sbom  # noqa: E402

NOTICES = "THIRD-PARTY-NOTICES.txt"
JNI_SBOM = "holdfast-jni.cyclonedx.json"


def wheel_text(*name: str) -> str:
    """Return a file of the distribution's metadata, as the wheel had it."""
    found = metadata.distribution("holdfast-spark").read_text("/".join(name))
    assert found is not None, name
    return found


def jar_bytes(name: str) -> bytes:
    """A file of the jar that has the crates' code."""
    _, native = holdfast.plugin_jars()
    with zipfile.ZipFile(native) as jar:
        return jar.read(name)


def test_the_notices_are_those_of_the_locked_crates() -> None:
    assert notices.FILE.read_text() == notices.notices(), "run `make notices`"


def test_wheel_and_jar_carry_the_licence_and_the_notices() -> None:
    for name in ("LICENSE", NOTICES):
        text = (ROOT / name).read_text()
        assert wheel_text("licenses", name) == text
        assert jar_bytes(f"META-INF/{name}").decode() == text


@pytest.mark.parametrize("library", notices.LIBRARIES)
def test_every_linked_crate_has_a_line_and_a_text_in_the_notices(library: str) -> None:
    head, *sections = wheel_text("licenses", NOTICES).split(f"\n{'=' * 80}\n")
    named = ", ".join(sections[::2]).replace(",\n", ", ").split(", ")
    without_text = head.partition("without a text")[2]
    linked = [crate for crate in crates.linked(library) if crate.checksum]
    assert linked
    for crate in linked:
        assert f"\n{crate.name} {crate.version}, {crate.license}" in head
        name = f"{crate.name} {crate.version}"
        assert name in named or f"\n{name}, by " in without_text


def test_a_crate_without_a_licence_text_that_holdfast_has_none_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "LICENSES.md").mkdir()
    bare = crates.Crate("bare", "1.0.0", "BSL-1.0", "", (), tmp_path, "00", ())
    monkeypatch.setattr(notices, "linked", lambda library: (bare,))
    with pytest.raises(notices.BuildError, match=r"no text of its licence, BSL-1\.0"):
        notices.notices()


def components(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    return {(component["name"], component["version"]) for component in document["components"]}


def test_jar_and_wheel_carry_the_bill_of_materials_of_the_jni_library() -> None:
    text = jar_bytes(f"META-INF/sbom/{JNI_SBOM}")
    assert text == sbom.sbom(crates.host())
    assert wheel_text("sboms", JNI_SBOM).encode() == text
    document = json.loads(text)
    library = document["metadata"]["component"]
    assert (library["name"], library["version"]) == ("holdfast-jni", holdfast.__version__)
    found = components(document)
    assert ("holdfast-core", holdfast.__version__) in found
    assert ("holdfast-wire", holdfast.__version__) in found
    names = {name for name, _ in found}
    assert {"jni", "lz4_flex", "hashbrown"} <= names
    # What ran at build time only, and what other platforms need, is not in the library.
    assert names.isdisjoint({"syn", "proc-macro2", "thiserror-impl", "windows-sys", "pyo3"})
    parts = {component["bom-ref"] for component in document["components"]} | {library["bom-ref"]}
    assert {entry["ref"] for entry in document["dependencies"]} == parts
    assert {part for entry in document["dependencies"] for part in entry["dependsOn"]} <= parts
    assert all(
        len(component["hashes"][0]["content"]) == 64
        for component in document["components"]
        if component["name"] not in {"holdfast-core", "holdfast-wire"}
    )


def test_wheel_carries_the_bill_of_materials_of_the_extension() -> None:
    found = components(json.loads(wheel_text("sboms", "holdfast-py.cyclonedx.json")))
    assert {(crate.name, crate.version) for crate in crates.linked("holdfast-py")} - found == {
        ("holdfast-py", holdfast.__version__)
    }
