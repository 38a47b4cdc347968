"""Charts of measurements as SVG: every figure as a dot, medians, and ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.figures import Spread
from holdfast.cli.pages.elements import Element, element, svg
from holdfast.cli.pages.scales import Scale, figure_text

_ROW = 24.0
_TOP = 30.0
_LEFT, _RIGHT = 8.0, 16.0
_CHARACTER = 6.6

#: Ratio of the places on an axis.
_LOGARITHMIC_FROM = 100

#: A mark for each line of a chart, so that colours are not needed to tell them apart.
_MARKS = ("circle", "square", "diamond", "triangle")
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one row of a plot shows.

    Attributes
    ----------
    name
        Stands in front of it.
    colour
        Class of its dots.
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
    """What was measured at one place of a line."""

    x: float
    spread: Spread
    values: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points of one thing, by their place."""

    name: str
    colour: str
    points: Sequence[Point]


def rows_plot(
    title: str,
    rows: Sequence[Row],
    *,
    text: Callable[[float], str],
    reference: float | None = None,
    width: float = 520.0,
) -> Element:
    """Return rows with the figures of each: dots, a thin line over the range, a mark at the median.

    Parameters
    ----------
    title
        What the figures are, with their unit.
    rows
        At least one.
    text
        Prints a figure.
    reference
        Where a line is drawn through all rows, such as 1 for ratios.
    width
        Pixels.
    """
    names = _LEFT + _CHARACTER * max(len(row.name) for row in rows) + 10
    labels = [
        f"{text(row.spread.median)} ({text(row.spread.low)}..{text(row.spread.high)})"
        for row in rows
    ]
    length = width - names - _CHARACTER * max(map(len, labels)) - 2 * _RIGHT
    found = [value for row in rows for value in (row.spread.low, row.spread.high)]
    scale = Scale.of(found if reference is None else [*found, reference], length)
    foot = _TOP + _ROW * len(rows)
    parts = [_heading(title, scale), *_across(scale, names, foot, reference)]
    for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
        parts += _row(row, label, scale, names, _TOP + _ROW * (number + 0.5))
    said = "; ".join(f"{row.name} {label}" for row, label in zip(rows, labels, strict=True))
    return svg(width, foot + 24, _background(width, foot + 24), *parts, said=f"{title}: {said}")


def _heading(title: str, scale: Scale) -> Element:
    name = title + (", logarithmic" if scale.logarithmic else "")
    return element("text", name, x=_LEFT, y=16.0)


def _background(width: float, height: float) -> Element:
    return element("rect", width=width, height=height, class_="panel")


def _across(scale: Scale, left: float, foot: float, reference: float | None) -> Iterator[Element]:
    for tick in scale.ticks():
        x = left + scale.at(tick)
        yield element("path", d=f"M{x:.1f} {_TOP - 4:g}V{foot:.1f}", class_="axis")
        yield element("text", figure_text(tick), x=x, y=foot + 15, class_="quiet middle")
    if reference is not None:
        x = left + scale.at(reference)
        yield element("path", d=f"M{x:.1f} {_TOP - 4:g}V{foot:.1f}", class_="median")


def _row(row: Row, label: str, scale: Scale, left: float, y: float) -> Iterator[Element]:
    yield element("text", row.name, x=left - 10, y=y + 4, class_="right")
    low, high = (left + scale.at(value) for value in (row.spread.low, row.spread.high))
    yield element("path", d=f"M{low:.1f} {y:.1f}H{high:.1f}", class_="restart")
    for value in row.values:
        yield element("circle", cx=left + scale.at(value), cy=y, r=4, class_=f"{row.colour} dot")
    if not row.values:
        span = max(high - low, 1.0)
        yield element("rect", x=low, y=y - 3, width=span, height=6, class_=f"{row.colour} dot")
    middle = left + scale.at(row.spread.median)
    yield element("path", d=f"M{middle:.1f} {y - 8:.1f}v16", class_="median")
    yield element("text", label, x=left + scale.length + _RIGHT, y=y + 4, class_="quiet")


def lines_plot(
    title: str,
    lines: Sequence[Line],
    *,
    of: str,
    text: Callable[[float], str],
    width: float = 640.0,
    height: float = 260.0,
) -> Element:
    """Return lines through medians, with ranges and all figures, over what `of` says.

    Parameters
    ----------
    title
        What the figures are, with their unit.
    lines
        At least one, each with at least one point.
    of
        What the points differ in.
    text
        Prints a figure.
    width, height
        Pixels.
    """
    left = 64.0
    names = _CHARACTER * max(len(line.name) for line in lines) + 28
    points = [point for line in lines for point in line.points]
    places = sorted({point.x for point in points})
    span = width - left - names
    # What grows evenly shall look so, unless most places would lie at the left edge.
    wide = places[-1] > _LOGARITHMIC_FROM * places[0] > 0
    across = Scale(places[0] if wide else 0.0, places[-1], span, logarithmic=wide)
    high = [value for point in points for value in (point.spread.low, point.spread.high)]
    foot = height - 40
    up = Scale.of(high, foot - _TOP - 8)
    parts = [_heading(title, up), *_up(up, left, foot, span)]
    parts += [*_places(places, across, left, foot)]
    name = of + (", logarithmic" if wide else "")
    parts.append(element("text", name, x=left + span / 2, y=height - 6, class_="quiet middle"))
    labels = _apart([foot - up.at(line.points[-1].spread.median) for line in lines])
    for number, (line, y) in enumerate(zip(lines, labels, strict=True)):
        parts += _line(line, number, across, up, left, foot)
        x = left + span + 14
        parts.append(_mark(number, line.colour, x, y))
        parts.append(element("text", line.name, x=x + 9, y=y + 4))
    said = "; ".join(
        f"{line.name} "
        + ", ".join(
            f"{text(point.spread.median)} at {figure_text(point.x)}" for point in line.points
        )
        for line in lines
    )
    drawn = _background(width, height)
    return svg(width, height, drawn, *parts, said=f"{title} by {of}: {said}")


def _up(scale: Scale, left: float, foot: float, span: float) -> Iterator[Element]:
    for tick in scale.ticks():
        y = foot - scale.at(tick)
        yield element("path", d=f"M{left:g} {y:.1f}h{span:.1f}", class_="axis")
        yield element("text", figure_text(tick), x=left - 8, y=y + 4, class_="quiet right")


def _places(places: Sequence[float], scale: Scale, left: float, foot: float) -> Iterator[Element]:
    """Name the places that were measured, as far as their names have room."""
    end = 0.0
    for place in places:
        x, name = left + scale.at(place), figure_text(place)
        yield element("path", d=f"M{x:.1f} {foot:.1f}v4", class_="axis")
        half = _CHARACTER * len(name) / 2
        if x - half > end:
            yield element("text", name, x=x, y=foot + 17, class_="quiet middle")
            end = x + half + 4


def _apart(wanted: Sequence[float]) -> list[float]:
    """Return places for labels near those that are wanted, with room for each."""
    found = [0.0] * len(wanted)
    end = 0.0
    for number in sorted(range(len(wanted)), key=wanted.__getitem__):
        found[number] = max(wanted[number], end + 16)
        end = found[number]
    return found


def _line(
    line: Line, number: int, across: Scale, up: Scale, left: float, foot: float
) -> Iterator[Element]:
    def at(x: float, y: float) -> tuple[float, float]:
        return left + across.at(x), foot - up.at(y)

    medians = [at(point.x, point.spread.median) for point in line.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in medians)
    dashes = _DASHES[number % len(_DASHES)]
    style = f"stroke: var(--{line.colour}); stroke-dasharray: {dashes}"
    yield element("path", d=path, class_="path", style=style)
    for point, (x, y) in zip(line.points, medians, strict=True):
        ends = [at(point.x, value)[1] for value in (point.spread.low, point.spread.high)]
        yield element("path", d=f"M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}", class_="restart")
        for value in point.values:
            cy = at(point.x, value)[1]
            yield element("circle", cx=x, cy=cy, r=2.5, class_=f"{line.colour} dot")
        yield _mark(number, line.colour, x, y)


def _mark(number: int, colour: str, x: float, y: float) -> Element:
    mark = _MARKS[number % len(_MARKS)]
    if mark == "circle":
        return element("circle", cx=x, cy=y, r=5, class_=colour)
    shapes = {
        "square": "m-4.5 -4.5h9v9h-9z",
        "diamond": "m0 -6l6 6l-6 6l-6 -6z",
        "triangle": "m0 -6l6 10h-12z",
    }
    return element("path", d=f"M{x:.1f} {y:.1f}{shapes[mark]}", class_=colour)
