"""Charts of measurements: every figure as a dot, medians, and ranges."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from harness.figures import Spread

#: Text stays text: the file is small, and does not depend on how glyphs are drawn. Ids are not
#: random, so a picture is the same each time that it is made.
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "holdfast",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
}

#: From this ratio of the largest figure to the middle one on, figures lie on a logarithmic scale.
_LOGARITHMIC_FROM = 8

#: The same for places on an axis, of the last one to the first.
_WIDE_FROM = 100

#: Marks and dashes of lines, so that colours are not needed to tell them apart.
_MARKS = ("o", "s", "D", "^")
_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a plot.

    Attributes
    ----------
    name
        Label in front of it.
    colour
        A colour of matplotlib.
    spread
        Median and range.
    values
        Every measurement; none where only the spread is known.
    """

    name: str
    colour: str
    spread: Spread
    values: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Point:
    """The measurements at one place of a line."""

    x: float
    spread: Spread
    values: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points of one thing, by their place."""

    name: str
    colour: str
    points: Sequence[Point]


def figure(heights: Sequence[float], *, width: float = 9.0, below: str = "") -> Figure:
    """Return a picture of plots below each other, with a line of text under the last of them.

    Parameters
    ----------
    heights
        Height of each plot, in inches.
    width
        Width of all plots, in inches.
    below
        Text under the plots.
    """
    with mpl.rc_context(_STYLE):
        made = Figure((width, sum(heights)), layout="constrained")
        made.subplots(len(heights), squeeze=False, height_ratios=heights)
    made.supxlabel(below, fontsize=7, color="#555555", x=0.01, ha="left", wrap=True)
    return made


def svg_text(picture: Figure) -> str:
    """Return a picture as SVG: the same each time."""
    file = io.StringIO()
    with mpl.rc_context(_STYLE):
        picture.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def draw_rows(
    axes: Axes,
    title: str,
    rows: Sequence[Row],
    *,
    text: Callable[[float], str],
    reference: float | None = None,
) -> None:
    """Draw rows with the figures of each: dots, a thin line over the range, a mark at the median.

    Parameters
    ----------
    axes
        Where.
    title
        Name of the figures, with their unit.
    rows
        At least one.
    text
        Prints a figure.
    reference
        Where a line is drawn through all rows, such as 1 for ratios.
    """
    ends = [end for row in rows for end in (row.spread.low, row.spread.high)]
    _scale(axes, axes.xaxis, title, ends if reference is None else [*ends, reference])
    for place, row in enumerate(rows):
        spread = row.spread
        axes.hlines(place, spread.low, spread.high, color=row.colour, lw=1 if row.values else 4)
        axes.plot(row.values, [place] * len(row.values), "o", color=row.colour, alpha=0.5, ms=5)
        axes.plot([spread.median], [place], "|", color="black", ms=13, mew=1.5)
        said = f"{text(spread.median)} ({text(spread.low)}..{text(spread.high)})"
        axes.text(1.01, place, said, transform=axes.get_yaxis_transform(), va="center")
    if reference is not None:
        axes.axvline(reference, color="black", lw=1)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def draw_lines(axes: Axes, title: str, lines: Sequence[Line], *, of: str) -> None:
    """Draw lines through medians, with ranges and all figures.

    Parameters
    ----------
    axes
        Where.
    title
        Name of the figures, with their unit.
    lines
        At least one, each with at least one point.
    of
        Name of the place of a point.
    """
    points = [point for line in lines for point in line.points]
    ends = [end for point in points for end in (point.spread.low, point.spread.high)]
    _scale(axes, axes.yaxis, title, ends)
    places = sorted({point.x for point in points})
    if places[-1] >= _WIDE_FROM * places[0] > 0:
        axes.set_xscale("log")
        of += ", logarithmic"
    for number, line in enumerate(lines):
        look = _MARKS[number % len(_MARKS)] + _DASHES[number % len(_DASHES)]
        x = [point.x for point in line.points]
        medians = [point.spread.median for point in line.points]
        axes.plot(x, medians, look, color=line.colour, label=line.name)
        for point in line.points:
            axes.vlines(point.x, point.spread.low, point.spread.high, color=line.colour, lw=1)
            dots = [point.x] * len(point.values)
            axes.plot(dots, point.values, "o", color=line.colour, alpha=0.5, ms=3)
    axes.set_xlabel(of)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _scale(axes: Axes, axis: Axis, title: str, found: Iterable[float]) -> None:
    """Begin at 0, or be logarithmic where most figures would lie at the foot; the title says so."""
    positive = sorted(value for value in found if value > 0)
    is_across = axis is axes.xaxis
    if positive and positive[-1] > _LOGARITHMIC_FROM * positive[len(positive) // 2]:
        (axes.set_xscale if is_across else axes.set_yscale)("log")
        title += ", logarithmic"
    else:
        end = 1.05 * positive[-1] if positive else 1.0
        (axes.set_xlim if is_across else axes.set_ylim)(0, end)
    axis.set_major_formatter("{x:,g}")
    # Names of rows may take most of the width: the title of such a plot ends where they end.
    axes.set_title(title, loc="right" if is_across else "left", fontsize=9)
