"""The newest attempts of a regional pipeline in a few lines of text, a sign for each attempt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from holdfast.cli.output.tables import Table, time_text
from holdfast.files.printable import printable
from holdfast.regions.coordinator import HistoryRecord

#: The width of a narrow terminal.
MAX_ATTEMPTS: Final = 60

#: Regions with a line of their own, those that failed most.
MAX_REGIONS: Final = 20

#: The sign of an attempt, by its outcome.
SIGNS: Final = {"global": "G", "regional": "r", "aborted": "x"}

_LEVELS: Final = "▁▂▃▄▅▆▇█"


def of_attempts(records: Sequence[HistoryRecord]) -> Table:
    """Return lines with the outcomes, times and rows in flight, and one per region that failed.

    `records` is at least one attempt, oldest first; only failed regions that they name are known.
    """

    def line(sign: Callable[[int], str]) -> str:
        """Join the sign of each attempt, with bars where the pipeline started."""
        return "".join(
            ("|" if place and records[place - 1].run != record.run else "") + sign(place)
            for place, record in enumerate(records)
        )

    counts = {name: sum(one.outcome == name for one in records) for name in SIGNS}
    said = ", ".join(f"{count:,} {name} ({SIGNS[name]})" for name, count in counts.items())
    rows = [["outcome", line(lambda place: SIGNS[records[place].outcome]), said]]
    figures = {
        "time ms": [one.ms for one in records],
        "rows in flight": [one.in_flight_rows for one in records],
    }
    for name, values in figures.items():
        if most := max(values):
            rows.append([name, line(_heights(values, most)), f"at most {most:,}"])
    for region, causes in _failed(records)[:MAX_REGIONS]:
        longest = _longest(causes)
        since = time_text(records[longest.start].started_ms)
        said = f"failed {len(causes):,} times, {len(longest):,} in a row from {since}: "
        signs = {place: SIGNS[records[place].outcome] for place in causes}
        cause = causes[max(causes)]
        rows.append([printable(region), line(lambda at, s=signs: s.get(at, ".")), said + cause])  # type: ignore[misc]
    columns = ["attempts", f"{records[0].id} to {records[-1].id}"]
    columns.append(f"{time_text(records[0].started_ms)} to {time_text(records[-1].ended_ms)}")
    return Table(columns, rows, frozenset(columns), frozenset({columns[1]}))


def _heights(values: Sequence[int], most: int) -> Callable[[int], str]:
    """Return the height of each value as a sign, or as a digit where the terminal is ASCII only."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    levels = _LEVELS if is_unicode else "12345678"
    return lambda place: levels[round((len(levels) - 1) * values[place] / most)]


def _failed(records: Sequence[HistoryRecord]) -> list[tuple[str, Mapping[int, str]]]:
    """Return the regions that failed, the most often first, with causes by place of the attempt."""
    found: dict[str, dict[int, str]] = {}
    for place, record in enumerate(records):
        for one in record.failed:
            found.setdefault(one.region, {})[place] = printable(one.cause)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def _longest(places: Iterable[int]) -> range:
    """Return the most consecutive places, the last of several."""
    found = run = range(0)
    for place in places:
        run = range(run.start if run and place == run.stop else place, place + 1)
        found = max(run, found, key=len)
    return found
