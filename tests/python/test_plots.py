"""The plots of docs/benchmarks.md show what its tables say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "plots"


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benches"), *sys.path])


def test_the_plots_are_what_the_tables_say() -> None:
    from plots import plots

    from holdfast.cli.pages.elements import svg_file

    made = {name: svg_file(picture) for name, picture in plots(DOCUMENT.read_text()).items()}
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert there.keys() == made.keys()
    assert [name for name in made if there[name] != made[name]] == [], "run `make reference`"


def test_every_plot_is_shown_by_the_document() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(plots/([^)]+)\)", DOCUMENT.read_text())
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize(
    ("plot", "figure", "other"),
    [
        ("batch-times-changelog.svg", "0.374 (0.270..0.477)", "0.999 (0.998..1.234)"),
        ("batch-times-default.svg", "0.588 (0.466..0.688)", "0.777 (0.666..0.888)"),
        ("restores.svg", "537 (447..627)", "123 (122..124)"),
        ("memory.svg", "| 494 |", "| 777 |"),
    ],
)
def test_a_figure_of_a_table_is_in_its_plot_alone(plot: str, figure: str, other: str) -> None:
    from plots import plots

    text = DOCUMENT.read_text()
    assert text.count(figure) == 1
    before, after = plots(text), plots(text.replace(figure, other))
    said = {name: picture.attrib["aria-label"] for name, picture in after.items()}
    changed = [name for name in said if said[name] != before[name].attrib["aria-label"]]
    assert changed == [plot]
    median = other.strip("| ").partition(" ")[0]
    assert median in said[plot]
    assert median not in before[plot].attrib["aria-label"]


def test_a_table_that_is_not_there_is_an_error() -> None:
    from plots import table

    with pytest.raises(ValueError, match="0 tables begin with keys"):
        table("| a | b |\n|---|---|\n| 1 | 2 |\n", "keys")
