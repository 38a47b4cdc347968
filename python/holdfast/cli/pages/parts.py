"""Parts that pages are put together from: facts, tables, what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from holdfast.cli.pages.elements import Content, Element, add, element, svg
from holdfast.cli.pages.tables import Cell, Table

#: Longer tables are closed until the reader opens them.
OPEN_ROWS: Final = 25

#: Longer text is broken into lines.
_LONG: Final = 36

BAR_WIDTH: Final = 180.0
_BAR_HEIGHT: Final = 12.0

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size: int) -> str:
    """Return a number of bytes for people: ``1.5 MiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size:,} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def share_text(part: int, whole: int) -> str:
    """Return a share in per cent; ``-`` of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def facts(found: Mapping[str, tuple[Content, str]]) -> Element:
    """Return a grid of facts: by name the fact itself, and what is said below it."""
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", value, element("small", below) if below else None),
            )
            for name, (value, below) in found.items()
        ),
        class_="facts",
    )


def wrong(title: str, lines: Sequence[str], *, shown: int = 50) -> Iterator[Element]:
    """Yield what cannot be read; nothing where there is none."""
    if lines:
        said = element("ul", *(element("li", line) for line in lines[:shown]))
        if len(lines) > shown:
            add(said, element("li", f"and {len(lines) - shown:,} more"))
        yield element("section", element("strong", title), said, class_="wrong")


def table(
    found: Table,
    *,
    of: str,
    all_rows: int | None = None,
    extra: Mapping[str, Sequence[Element]] | None = None,
) -> Element:
    """Return a table.

    Parameters
    ----------
    found
        The rows that are shown.
    of
        What they are, in the plural, for the line that says how many.
    all_rows
        How many there are, shown or not; those that are shown by default.
    extra
        Further columns, by their head, with an element for each row.
    """
    extra = extra or {}
    head = element("tr", *(_cell("th", name, name in found.words) for name in found.columns))
    add(head, *(_cell("th", name, words=True) for name in extra))
    body = element("tbody")
    for number, row in enumerate(found.rows):
        line = element("tr", *_cells(found, row))
        add(line, *(element("td", column[number]) for column in extra.values()))
        add(body, line)
    made = element("div", element("table", element("thead", head), body), class_="wide")
    left_out = (all_rows or len(found.rows)) - len(found.rows)
    if left_out <= 0 and len(found.rows) <= OPEN_ROWS:
        return made
    said = f"{len(found.rows):,} {of}"
    if left_out > 0:
        said += f"; {left_out:,} more are left out"
    closed = element("details", element("summary", said), made)
    if len(found.rows) <= OPEN_ROWS:
        closed.set("open", "open")
    return closed


def _cells(found: Table, row: Sequence[Cell]) -> Iterator[Element]:
    for name, value in zip(found.columns, row, strict=True):
        yield _cell("td", "-" if value is None else value, name in found.words)


def _cell(tag: str, value: Content, words: bool) -> Element:
    if not words:
        return element(tag, value)
    is_long = isinstance(value, str) and len(value) > _LONG
    return element(tag, value, class_="word long" if is_long else "word")


def bar(parts: Iterable[tuple[str, float]], largest: float, *, said: str) -> Element:
    """Return a bar of parts, of a class each; the largest is as wide as the column."""
    drawn = svg(BAR_WIDTH, _BAR_HEIGHT, element("title", said), said=said)
    at = 0.0
    for kind, value in parts:
        width = BAR_WIDTH * value / largest if largest else 0.0
        if width:
            add(drawn, swatch_rect(kind, at, 0.0, width, _BAR_HEIGHT))
        at += width
    return drawn


def swatch_rect(kind: str, x: float, y: float, width: float, height: float) -> Element:
    """Return a rectangle in the colour and pattern of a kind."""
    group = element("g", element("rect", x=x, y=y, width=width, height=height, class_=kind))
    if kind == "hollow":
        path = (
            f"M{x:.1f} {y:.1f}l{width:.1f} {height:.1f}m0 {-height:.1f}l{-width:.1f} {height:.1f}"
        )
        add(group, element("path", d=path, class_="cross"))
    elif kind == "orange" and width >= 3 and height >= 6:
        # A notch in the middle: told from the others without colours.
        middle = y + height / 2
        path = f"M{x:.1f} {middle:.1f}h{width:.1f}"
        add(group, element("path", d=path, class_="notch"))
    return group


def legend(kinds: Mapping[str, str]) -> Element:
    """Return what classes mean: by class, words."""
    return element(
        "ul",
        *(
            element(
                "li",
                svg(16.0, 12.0, swatch_rect(kind, 1.0, 1.0, 14.0, 10.0), said=words),
                words,
            )
            for kind, words in kinds.items()
        ),
        class_="legend",
    )
