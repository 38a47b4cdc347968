"""Which regions fell back, for how many checkpoints and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast._core import RegionEntry
from holdfast.cli.pages.tables import Cell, Table, state_of, time_text
from holdfast.regions.base.printable import printable
from holdfast.regions.coordinator import HistoryRecord


@dataclass
class Fallback:
    """Consecutive attempts in which a region failed.

    Attributes
    ----------
    first, last : int
        Places of the attempts among those that were read.
    started_ms, ended_ms : int
        From the beginning of the first of them to the end of the last.
    """

    first: int
    last: int
    started_ms: int
    ended_ms: int

    @property
    def attempts(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


@dataclass
class Troubled:
    """A region that failed in attempts.

    Attributes
    ----------
    region : str
        Its name.
    attempts : int
        How many it failed in.
    fallbacks : list of Fallback
        Those attempts, oldest first.
    cause : str
        Why it failed in the last of them.
    """

    region: str
    attempts: int = 0
    fallbacks: list[Fallback] = field(default_factory=list)
    cause: str = ""

    @property
    def longest(self) -> Fallback:
        """The one of the most attempts, the newest of these."""
        return max(self.fallbacks, key=lambda one: (one.attempts, one.last))


def troubled_regions(records: Sequence[HistoryRecord]) -> list[Troubled]:
    """Return the regions that failed, those of the most attempts first.

    Parameters
    ----------
    records : sequence of HistoryRecord
        Attempts, oldest first. Only the failed regions that they name are known.
    """
    found: dict[str, Troubled] = {}
    for place, record in enumerate(records):
        for failed in record.failed:
            one = found.setdefault(failed.region, Troubled(failed.region))
            one.attempts += 1
            one.cause = failed.cause
            if one.fallbacks and one.fallbacks[-1].last == place - 1:
                one.fallbacks[-1].last = place
                one.fallbacks[-1].ended_ms = record.ended_ms
            else:
                new = Fallback(place, place, record.started_ms, record.ended_ms)
                one.fallbacks.append(new)
    return sorted(found.values(), key=lambda one: (-one.attempts, one.region))


def of_troubled(
    troubled: Sequence[Troubled],
    records: Sequence[HistoryRecord],
    regions: Mapping[str, RegionEntry],
) -> Table:
    """Return one line per region that failed.

    Parameters
    ----------
    troubled : sequence of Troubled
        The regions.
    records : sequence of HistoryRecord
        The attempts that they were found in.
    regions : mapping of str to RegionEntry
        Regions of the newest checkpoint.
    """
    columns = ["region", "failed attempts", "longest in a row", "of attempts", "lasted ms"]
    columns += ["from", "now", "last cause"]
    rows: list[list[Cell]] = []
    for one in troubled:
        longest = one.longest
        rows.append(
            [
                printable(one.region),
                one.attempts,
                longest.attempts,
                _ids(records[longest.first].id, records[longest.last].id),
                longest.ended_ms - longest.started_ms,
                time_text(longest.started_ms),
                _now(regions.get(one.region)),
                printable(one.cause) or None,
            ]
        )
    words = frozenset({"region", "of attempts", "from", "now", "last cause"})
    return Table(columns, rows, words)


def _ids(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _now(entry: RegionEntry | None) -> str | None:
    if entry is None:
        return None
    return f"state of checkpoint {entry.origin}" if entry.failed else state_of(entry)
