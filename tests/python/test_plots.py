"""The plots of the documents show what the tables in benches/figures say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "plots"


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benches"), *sys.path])


def medians(picture: Figure) -> set[float]:
    """Every figure that a line or a mark of a picture has."""
    (axes,) = picture.axes
    of_lines = [line.get_ydata() for line in axes.lines if line.get_label()[0] != "_"]
    of_marks = [line.get_xdata() for line in axes.lines if line.get_marker() == "|"]
    return {float(value) for values in (*of_lines, *of_marks) for value in values}


def test_the_plots_are_what_the_tables_say() -> None:
    from common.charts import svg_text
    from plots import plots, tables

    made = {name: svg_text(picture) for name, picture in plots(tables()).items()}
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert there.keys() == made.keys()
    assert [name for name in made if there[name] != made[name]] == [], "run `make reference`"


def test_every_plot_is_shown_by_a_page() -> None:
    found = [ROOT / "docs" / "benchmarks.md", *(ROOT / "docs" / "benchmarks").glob("*.md")]
    pages = "\n".join(page.read_text() for page in found)
    shown = re.findall(r"!\[[^\]]+\]\((?:\.\./)?plots/([^)]+)\)", pages)
    assert sorted(shown) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize(
    ("plot", "figure", "other"),
    [
        ("batch-times-changelog.svg", "0.374 (0.270..0.477)", "0.999 (0.998..1.234)"),
        ("batch-times-default.svg", "0.588 (0.466..0.688)", "0.777 (0.666..0.888)"),
        ("restores.svg", "537 (447..627)", "123 (122..124)"),
        ("memory.svg", ",494\n", ",777\n"),
        ("scale.svg", ",21.6,", ",77.7,"),
    ],
)
def test_a_figure_of_a_table_is_in_its_plot_alone(plot: str, figure: str, other: str) -> None:
    from plots import plots, tables

    texts = tables()
    (name,) = (name for name, text in texts.items() if figure in text)
    assert texts[name].count(figure) == 1
    changed_text = texts[name].replace(figure, other)
    before, after = plots(texts), plots({**texts, name: changed_text})
    changed = [name for name in after if medians(after[name]) != medians(before[name])]
    assert changed == [plot]
    median = float(other.strip(",\n").partition(" ")[0])
    assert median in medians(after[plot])
    assert median not in medians(before[plot])
