"""Plots of the tables in docs/benchmarks: ``make reference``, or ``python benches/plots.py``.

They are made from what the pages say, so they show no figure that the pages do not have.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# The benchmarks and the examples share a harness.
sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from common.charts import Line, Point, Row, draw_lines, draw_rows, figure, svg_text
from matplotlib.figure import Figure

from harness.figures import Spread

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "plots"

_SPREAD = re.compile(r"([\d.]+) \(([\d.]+)\.\.([\d.]+)\)")

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def pages() -> str:
    """Return the text of all pages about benchmarks."""
    found = [DOCS / "benchmarks.md", *sorted((DOCS / "benchmarks").glob("*.md"))]
    return "\n".join(page.read_text() for page in found)


def tables(text: str) -> Iterator[Table]:
    """Yield the tables of a document: the cells of the head, and those of each row."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
        elif rows:
            yield rows[0], rows[2:]
            rows = []


def table(text: str, *head: str) -> Table:
    """Return the table whose head begins so.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    found = [one for one in tables(text) if tuple(one[0][: len(head)]) == head]
    if len(found) != 1:
        raise ValueError(f"{len(found)} tables begin with {' | '.join(head)}, expected one")
    return found[0]


def spread(cell: str) -> Spread | None:
    """Return what a cell says, ``0.27 (0.26..0.32)``; None of another one."""
    found = _SPREAD.fullmatch(cell)
    if found is None:
        return None
    median, low, high = map(float, found.groups())
    return Spread(median=median, low=low, high=high)


def plots(text: str) -> Mapping[str, Figure]:
    """Return the plots of the pages by the names of their files."""
    return {
        "batch-times-changelog.svg": _batch_times(text, "of RocksDB with changelog"),
        "batch-times-default.svg": _batch_times(text, "of Spark's default"),
        "restores.svg": _restores(text),
        "memory.svg": _memory(text),
    }


def _batch_times(text: str, base: str) -> Figure:
    head, rows = table(text, "batch time of", "rounds")
    column = head.index(base)
    found = [
        Row(name=row[0], colour="tab:blue", spread=ratio)
        for row in rows
        if (ratio := spread(row[column])) is not None
    ]
    title = f"batch time with Holdfast, {base} (1 is as long): median and range over rounds"
    made = figure([0.9 + 0.25 * len(found)])
    draw_rows(made.axes[0], title, found, text="{:.3f}".format, reference=1.0)
    return made


def _restores(text: str) -> Figure:
    head, rows = table(text, "keys", "first key")
    lines = [
        Line(
            name="Holdfast" if column == 1 else head[column],
            colour=colour,
            points=[
                Point(x=_millions(row[0]), spread=found)
                for row in rows
                if (found := spread(row[column])) is not None
            ],
        )
        for column, colour in ((1, "tab:blue"), (2, "tab:purple"))
    ]
    return _of_lines("until the first key of a restored store, ms", lines, of="million keys")


def _of_lines(title: str, lines: Sequence[Line], *, of: str) -> Figure:
    made = figure([2.8], width=7.0)
    draw_lines(made.axes[0], title, lines, of=of)
    return made


def _millions(cell: str) -> float:
    number, unit = cell.split()
    if unit != "M":
        raise ValueError(f"expected a number of millions such as 4 M, found {cell}")
    return float(number)


def _memory(text: str) -> Figure:
    head, rows = table(text, "after batch", "50")
    batches = [float(cell.replace(",", "")) for cell in head[1:]]
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
        for row, colour in zip(rows, colours, strict=True)
    ]
    return _of_lines("memory beyond the heap, MiB", lines, of="batches")


def main() -> None:
    """Write all plots."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in plots(pages()).items():
        (FOLDER / name).write_text(svg_text(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
