"""Plots of the tables in benches/figures: ``make reference``, or ``python benches/plots.py``.

They are made from the tables, so they show no figure that the tables do not have.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The benchmarks and the examples share a harness.
sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from common.charts import Line, Point, Row, draw_lines, draw_rows, figure, svg_text
from matplotlib.figure import Figure

from harness.figures import Spread

FIGURES = Path(__file__).parent / "figures"
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "plots"

_SPREAD = re.compile(r"([\d.]+) \(([\d.]+)\.\.([\d.]+)\)")


def tables() -> Mapping[str, str]:
    """Return the text of each table by its name."""
    return {path.stem: path.read_text() for path in sorted(FIGURES.glob("*.csv"))}


def rows(text: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the cells of the head of a table, and those of each row."""
    head, *found = csv.reader(text.splitlines())
    return head, found


def spread(cell: str) -> Spread | None:
    """Return what a cell says, ``0.27 (0.26..0.32)``; None of another one."""
    found = _SPREAD.fullmatch(cell)
    if found is None:
        return None
    median, low, high = map(float, found.groups())
    return Spread(median=median, low=low, high=high)


def plots(texts: Mapping[str, str]) -> Mapping[str, Figure]:
    """Return the plots of the tables by the names of their files."""
    return {
        "batch-times-changelog.svg": _batch_times(texts, "of RocksDB with changelog"),
        "batch-times-default.svg": _batch_times(texts, "of Spark's default"),
        "restores.svg": _restores(texts["restores"]),
        "memory.svg": _memory(texts["memory"]),
        "scale.svg": _scale(texts["scale"]),
    }


def _batch_times(texts: Mapping[str, str], base: str) -> Figure:
    head, cases = rows(texts["batch-times"])
    column = head.index(base)
    found = [
        Row(name=row[0], colour="tab:blue", spread=ratio)
        for row in cases
        if (ratio := spread(row[column])) is not None
    ]
    title = f"batch time with Holdfast, {base} (1 is as long): median and range over rounds"
    made = figure([0.9 + 0.25 * len(found)])
    draw_rows(made.axes[0], title, found, text="{:.3f}".format, reference=1.0)
    return made


def _restores(text: str) -> Figure:
    head, sizes = rows(text)
    lines = [
        Line(
            name=head[column].removeprefix("first key, ms, "),
            colour=colour,
            points=[
                Point(x=_millions(row[0]), spread=found)
                for row in sizes
                if (found := spread(row[column])) is not None
            ],
        )
        for column, colour in ((1, "tab:blue"), (2, "tab:purple"))
    ]
    return _of_lines("until the first key of a restored store, ms", lines, of="million keys")


def _scale(text: str) -> Figure:
    _, sizes = rows(text)
    lines = [
        Line(
            name=f"{step}, {build}",
            colour=colour,
            points=[
                Point(x=_number(row[1]), spread=Spread.of([_number(row[column])]))
                for row in sizes
                if row[0] == build
            ],
        )
        for build in dict.fromkeys(row[0] for row in sizes)
        for step, column, colour in (("a batch", 2, "tab:blue"), ("a restart", 10, "tab:purple"))
    ]
    return _of_lines("requests of the driver", lines, of="executors")


def _of_lines(title: str, lines: Sequence[Line], *, of: str) -> Figure:
    made = figure([2.8], width=7.0)
    draw_lines(made.axes[0], title, lines, of=of)
    return made


def _millions(cell: str) -> float:
    number, unit = cell.split()
    if unit != "M":
        raise ValueError(f"expected a number of millions such as 4 M, found {cell}")
    return float(number)


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))


def _memory(text: str) -> Figure:
    head, providers = rows(text)
    batches = [_number(cell) for cell in head[1:]]
    colours = ("tab:blue", "tab:green", "tab:orange")
    lines = [
        Line(
            name=row[0],
            colour=colour,
            points=[
                Point(x=batch, spread=Spread.of([float(cell)]))
                for batch, cell in zip(batches, row[1:], strict=True)
                if cell
            ],
        )
        for row, colour in zip(providers, colours, strict=True)
    ]
    return _of_lines("memory beyond the heap, MiB", lines, of="batches")


def main() -> None:
    """Write all plots."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in plots(tables()).items():
        (FOLDER / name).write_text(svg_text(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
