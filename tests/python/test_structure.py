"""The structure that ``make lint`` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import structure


def test_circles_are_groups_that_lead_to_each_other() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"e", "f"}, "f": {"e"}}
    assert structure.circles(graph) == [["b", "c"], ["e", "f"]]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_modules_of_python_lead_to_what_they_import_when_loaded(tmp_path: Path) -> None:
    package = write(
        tmp_path / "p",
        {
            "__init__.py": "",
            "a.py": "from p.inner import b\nfrom p import inner\nimport os\n",
            "inner/__init__.py": "",
            "inner/b.py": "def f():\n    from p import a\n",
        },
    )
    assert structure.python_graph(package) == {
        "p": set(),
        "p.a": {"p.inner.b", "p.inner"},
        "p.inner": set(),
        "p.inner.b": set(),
    }


def test_classes_of_java_lead_to_what_they_name(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "A.java": 'class A { B b; /* C */ String s = "C"; } // C\n',
            "x/B.java": "class B { C c() { return null; } }\n",
            "x/C.java": "class C { Ab ab; }\n",
            "x/package-info.java": "/** A. */ package x;\n",
        },
    )
    assert structure.java_graph(folder) == {"A": {"B"}, "B": {"C"}, "C": set()}


def test_modules_of_rust_lead_to_what_they_use(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "lib.rs": "mod a;\nmod inner;\n",
            "a.rs": "use crate::inner::{self as i, b::{C, D}, E as F};\nuse std::fmt;\n",
            "inner/mod.rs": "mod b;\npub use b::C;\n",
            "inner/b.rs": "use super::super::a::X;\n"
            "#[cfg(test)]\nmod tests {\n    use crate::inner;\n}\n",
            "inner/b_tests.rs": "use crate::a;\n",
        },
    )
    assert structure.rust_graph(folder) == {
        "": set(),
        "a": {"inner", "inner::b"},
        "inner": set(),
        "inner::b": {"a"},
    }


@pytest.mark.parametrize(
    ("circles", "fields", "code"), [([], 15, 0), ([["a", "b"]], 3, 1), ([], 16, 1)]
)
def test_a_circle_and_a_type_with_many_fields_are_errors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    circles: list[list[str]],
    fields: int,
    code: int,
) -> None:
    monkeypatch.setattr(structure, "fields", lambda: [(fields, "Large", "large.py")])
    monkeypatch.setattr(structure, "found_circles", lambda: circles)
    assert structure.main() == code
    out = capsys.readouterr().out
    assert f"{len(circles)} circles" in out
    assert "Large" in out


def test_the_product_has_no_circle() -> None:
    assert structure.found_circles() == []
    assert structure.fields()[0][0] > 10
