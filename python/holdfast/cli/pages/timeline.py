"""The attempts of a regional pipeline as a picture: outcome, time, rows in flight, fallbacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from holdfast.cli.pages.elements import Element, element, svg
from holdfast.cli.pages.fallbacks import Troubled
from holdfast.cli.pages.parts import swatch_rect
from holdfast.cli.pages.scales import Scale, figure_text
from holdfast.cli.pages.tables import time_text
from holdfast.regions.base.printable import printable
from holdfast.regions.coordinator import HistoryRecord, Outcome
from holdfast.regions.driver.history import failed_text

#: More attempts share columns.
MAX_COLUMNS: Final = 240

#: Regions with a line of their own.
MAX_LINES: Final = 20

#: How outcomes look, from the best to the worst.
KINDS: Final[dict[Outcome, str]] = {"global": "blue", "regional": "orange", "aborted": "hollow"}

_NAMES: Final = 190.0
_WIDTH: Final = 850.0
_WIDEST_COLUMN: Final = 26.0
#: Room for the line below.
_LEAST_WIDTH: Final = 420.0
_TIME: Final = 120.0
_ROWS: Final = 56.0
_LINE: Final = 18.0
_GAP: Final = 26.0
_NAME_LENGTH: Final = 26


@dataclass(frozen=True)
class Column:
    """Attempts that are drawn at one place, oldest first."""

    records: Sequence[HistoryRecord]

    @property
    def outcome(self) -> Outcome:
        """The worst."""
        order = list(KINDS)
        return max((record.outcome for record in self.records), key=order.index)

    @property
    def ms(self) -> int:
        """The longest time, in milliseconds."""
        return max(record.ended_ms - record.started_ms for record in self.records)

    @property
    def in_flight_rows(self) -> int:
        """The most rows."""
        return max(record.in_flight_rows for record in self.records)

    def said(self) -> str:
        """Say all of that in a line."""
        first, last = self.records[0], self.records[-1]
        if first is not last:
            counts = [
                f"{count:,} {outcome}"
                for outcome in KINDS
                if (count := sum(one.outcome == outcome for one in self.records))
            ]
            return (
                f"attempts {first.id} to {last.id}: {', '.join(counts)}; at most {self.ms:,} ms, "
                f"{self.in_flight_rows:,} rows in flight; until {time_text(last.ended_ms)}"
            )
        failed = failed_text(first, max_failed=3)
        return (
            f"attempt {first.id}, batch {first.batch_id}: {first.outcome}, {self.ms:,} ms, "
            f"{first.in_flight_rows:,} rows in flight; {time_text(first.ended_ms)}"
            + (f"; {failed}" if failed else "")
        )


def columns_of(records: Sequence[HistoryRecord]) -> list[Column]:
    """Return attempts by the columns that they are drawn in."""
    each = attempts_per_column(len(records))
    return [Column(records[at : at + each]) for at in range(0, len(records), each)]


def attempts_per_column(attempts: int) -> int:
    """Return how many attempts share a column."""
    return max(1, ceil(attempts / MAX_COLUMNS))


@dataclass(frozen=True)
class _Plane:
    """Where columns lie: beside the names, one after the other."""

    columns: Sequence[Column]
    each: int

    @property
    def width(self) -> float:
        """Pixels of a column."""
        return min(_WIDEST_COLUMN, _WIDTH / len(self.columns))

    @property
    def span(self) -> float:
        """Pixels of all columns."""
        return self.width * len(self.columns)

    def x(self, number: int) -> float:
        """Return where a column begins."""
        return _NAMES + number * self.width

    def drawn(self, columns: int = 1) -> float:
        """Return the width of a bar; there is a gap behind it if columns are wide enough."""
        whole = self.width * columns
        return whole - 1 if self.width > 3 else whole


def timeline(records: Sequence[HistoryRecord], troubled: Sequence[Troubled]) -> Element:
    """Return the picture of at least one attempt.

    Parameters
    ----------
    records : sequence of HistoryRecord
        Attempts, oldest first.
    troubled : sequence of Troubled
        Regions that failed in them; the first ones get a line.
    """
    plane = _Plane(columns_of(records), attempts_per_column(len(records)))
    parts = [*_times(plane, foot := _GAP + _TIME)]
    if any(record.in_flight_rows for record in records):
        parts += _rows(plane, foot := foot + _GAP + _ROWS)
    lines = troubled[:MAX_LINES]
    if lines:
        parts += _lines(plane, lines, records, foot := foot + _GAP + _LINE * len(lines))
    parts += _restarts(plane, foot)
    first, last = records[0], records[-1]
    said = f"attempts {first.id} to {last.id}, {time_text(first.ended_ms)} to "
    parts.append(_text(said + time_text(last.ended_ms), _NAMES, foot + 18))
    counts = ", ".join(
        f"{sum(record.outcome == outcome for record in records):,} {outcome}" for outcome in KINDS
    )
    return svg(
        _NAMES + max(plane.span, _LEAST_WIDTH) + 4,
        foot + 28,
        *parts,
        said=f"Timeline of {len(records):,} attempts: {counts}.",
    )


def _text(text: str, x: float, y: float, kind: str = "quiet") -> Element:
    return element("text", text, x=x, y=y, class_=kind)


def _grid(scale: Scale, foot: float, width: float) -> Iterator[Element]:
    for tick in scale.ticks():
        y = foot - scale.at(tick)
        yield element("path", d=f"M{_NAMES:g} {y:.1f}h{width:.1f}", class_="axis")
        yield _text(figure_text(tick), _NAMES - 8, y + 4, "quiet right")


def _times(plane: _Plane, foot: float) -> Iterator[Element]:
    scale = Scale.of([column.ms for column in plane.columns], _TIME)
    name = "time in ms" + (", logarithmic" if scale.logarithmic else "")
    yield _text(f"{name}, by outcome", 0, foot - _TIME - 12, "")
    yield from _grid(scale, foot, plane.span)
    for number, column in enumerate(plane.columns):
        tall = max(scale.at(column.ms), 2.0)
        kind = KINDS[column.outcome]
        bar = swatch_rect(kind, plane.x(number), foot - tall, plane.drawn(), tall)
        bar.insert(0, element("title", column.said()))
        yield bar


def _rows(plane: _Plane, foot: float) -> Iterator[Element]:
    scale = Scale.of([column.in_flight_rows for column in plane.columns], _ROWS)
    name = "rows in flight" + (", logarithmic" if scale.logarithmic else "")
    yield _text(name, 0, foot - _ROWS - 12, "")
    yield from _grid(scale, foot, plane.span)
    for number, column in enumerate(plane.columns):
        if column.in_flight_rows:
            tall = max(scale.at(column.in_flight_rows), 1.0)
            bar = swatch_rect("violet", plane.x(number), foot - tall, plane.drawn(), tall)
            bar.insert(0, element("title", column.said()))
            yield bar


def _lines(
    plane: _Plane, lines: Sequence[Troubled], records: Sequence[HistoryRecord], foot: float
) -> Iterator[Element]:
    top = foot - _LINE * len(lines)
    yield _text("regions that failed", 0, top - 12, "")
    for number, one in enumerate(lines):
        y = top + number * _LINE
        yield element("path", d=f"M{_NAMES:g} {y + 8:.1f}h{plane.span:.1f}", class_="axis")
        name = printable(one.region)
        shown = name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"
        yield element("g", element("title", name), _text(shown, _NAMES - 8, y + 12, "right"))
        for fallback in one.fallbacks:
            first, last = fallback.first // plane.each, fallback.last // plane.each
            bar = swatch_rect("orange", plane.x(first), y + 3, plane.drawn(last - first + 1), 10.0)
            said = (
                f"{one.region}: {fallback.attempts:,} attempts, {records[fallback.first].id} to "
                f"{records[fallback.last].id}"
            )
            bar.insert(0, element("title", said))
            yield bar


def _restarts(plane: _Plane, foot: float) -> Iterator[Element]:
    run = plane.columns[0].records[0].run
    for number, column in enumerate(plane.columns):
        if any(record.run != run for record in column.records):
            run = column.records[-1].run
            path = f"M{plane.x(number) - 0.5:.1f} {_GAP - 8:g}V{foot:.1f}"
            said = element("title", "the pipeline was started again")
            yield element("path", said, d=path, class_="restart")
