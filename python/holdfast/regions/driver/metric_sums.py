"""Sums of what regions answer with, in arrays: ten thousand answers take milliseconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.protocol.figures import BUILT_IN, GAUGE_VALUES, Layout, head_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

LOG: Final = logging.getLogger(__name__)

#: Metrics of one operator's own, over all regions. With `MAX_REGIONS`, figures of one operator take
#: at most 64 * 32 bytes of each region, if all are gauges: 20 MB.
MAX_NAMES: Final = 64

#: Regions of which figures are kept one by one.
MAX_REGIONS: Final = 10_000

#: Heads that are remembered: as many as there are different sets of names, as a rule one.
_MAX_LAYOUTS: Final = 256


@dataclass(frozen=True, kw_only=True)
class GaugeMetrics:
    """What gauges of one name are at, over the instances that have set one.

    Attributes
    ----------
    min, max, mean : float
        Of their values.
    """

    min: float
    max: float
    mean: float


@dataclass(frozen=True)
class Sums:
    """Figures by column.

    Parameters
    ----------
    integers : array of shape (integers,)
        Sums.
    gauges : array of shape (gauges, 4)
        Minimum, maximum and sum of values, and how many there are.
    """

    integers: Integers
    gauges: Floats


@dataclass(frozen=True)
class _Columns:
    """Where the figures behind a head belong: `taken` of them into `integers` and `gauges`."""

    layout: Layout
    integers_taken: Integers
    integers: Integers
    gauges_taken: Integers
    gauges: Integers


class MetricSums:
    """Adds up figures: of the attempt that is under way, of all, and of each of the first regions.

    Parameters
    ----------
    operators : int
        How many there are.
    """

    def __init__(self, operators: int) -> None:
        import numpy as np

        self._np = np
        self._operators = operators
        built_in = len(BUILT_IN) * operators
        #: By operator, where its own counters and gauges are.
        self.counters: list[dict[str, int]] = [{} for _ in range(operators)]
        self.gauges: list[dict[str, int]] = [{} for _ in range(operators)]
        self._width = built_in
        self._gauge_width = 0
        self._layouts: dict[bytes, _Columns] = {}
        self._rows: dict[str, int] = {}
        self._of_regions = np.zeros((0, built_in), np.int64)
        self._gauges_of_regions = np.zeros((0, 0, GAUGE_VALUES))
        self.total = self._nothing()
        self.under_way = self._nothing()
        self._warnings = SparingLog(LOG)

    @property
    def regions(self) -> Iterable[str]:
        """The regions whose figures are kept one by one."""
        return self._rows

    def know(self, region: str) -> bool:
        """Keep the figures of a region from now on, if there is room; say whether they are."""
        if region not in self._rows and len(self._rows) < MAX_REGIONS:
            self._rows[region] = len(self._rows)
        return region in self._rows

    def of_region(self, region: str) -> Sums:
        """Return the figures of a region that is known."""
        self._make_room()
        row = self._rows[region]
        return Sums(self._of_regions[row].copy(), self._gauges_of_regions[row].copy())

    def add(self, answers: Sequence[tuple[str, bytes]]) -> None:
        """Take the figures of regions.

        Raises
        ------
        ValueError
            If these are no figures of the operators.
        """
        groups: dict[bytes, tuple[list[str], list[bytes]]] = {}
        for region, data in answers:
            head = head_of(data)
            group = groups.get(head)
            if group is None:
                group = groups[head] = ([], [])
            group[0].append(region)
            group[1].append(data[len(head) :])
        for head, (regions, values) in groups.items():
            self._add(self._columns(head), regions, values)

    def so_far(self) -> Sums:
        """Return the total with the attempt that is under way; gauges that are newer count."""
        now, before = self._wide(self.under_way), self._wide(self.total)
        gauges = self._np.where(now.gauges[:, 3:] > 0, now.gauges, before.gauges)
        return Sums(before.integers + now.integers, gauges)

    def end_attempt(self) -> Sums:
        """Add the sums of the attempt to the total, and return them."""
        ended, self.total = self._wide(self.under_way), self.so_far()
        self.under_way = self._nothing()
        return ended

    def integers_of(self, sums: Sums, operator: int) -> tuple[int, ...]:
        """Return the integers of an operator that every one has, see `figures.BUILT_IN`."""
        first = operator * len(BUILT_IN)
        return tuple(int(value) for value in sums.integers[first : first + len(BUILT_IN)])

    def counters_of(self, sums: Sums, operator: int) -> dict[str, int]:
        """Return the counters of an operator, without those that came later than the sums."""
        return {
            name: int(sums.integers[column])
            for name, column in self.counters[operator].items()
            if column < len(sums.integers)
        }

    def gauges_of(self, sums: Sums, operator: int) -> dict[str, GaugeMetrics]:
        """Return the gauges of an operator that have a value."""
        found = {}
        for name, column in self.gauges[operator].items():
            if column < len(sums.gauges) and sums.gauges[column, 3] > 0:
                least, most, added, instances = map(float, sums.gauges[column])
                found[name] = GaugeMetrics(min=least, max=most, mean=added / instances)
        return found

    # --- details --------------------------------------------------------------------------------

    def _add(self, columns: _Columns, regions: Sequence[str], values: Sequence[bytes]) -> None:
        np, layout = self._np, columns.layout
        if any(len(value) != layout.row_bytes for value in values):
            raise ValueError(f"expected figures of {layout.row_bytes} bytes behind the names")
        raw = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), layout.row_bytes)
        split = 8 * layout.integers
        integers = np.ascontiguousarray(raw[:, :split]).view("<i8")[:, columns.integers_taken]
        gauges = np.ascontiguousarray(raw[:, split:]).view("<f8")
        gauges = gauges.reshape(len(values), -1, GAUGE_VALUES)[:, columns.gauges_taken]
        self.under_way = self._wide(self.under_way)
        self.under_way.integers[columns.integers] += integers.sum(axis=0)
        if len(columns.gauges):
            of_all, at = self.under_way.gauges, columns.gauges
            of_all[at, 0] = np.minimum(of_all[at, 0], gauges[:, :, 0].min(axis=0))
            of_all[at, 1] = np.maximum(of_all[at, 1], gauges[:, :, 1].max(axis=0))
            of_all[at, 2:] += gauges[:, :, 2:].sum(axis=0)
        known = [place for place, region in enumerate(regions) if self.know(region)]
        self._make_room()
        rows = np.array([self._rows[regions[place]] for place in known], np.intp)
        places = np.ix_(rows, columns.integers)
        if len(np.unique(rows)) == len(rows):
            self._of_regions[places] += integers[known]
        else:  # A region answered twice: slower, but of both.
            np.add.at(self._of_regions, places, integers[known])
        if len(columns.gauges):
            self._gauges_of_regions[np.ix_(rows, columns.gauges)] = gauges[known]

    def _columns(self, head: bytes) -> _Columns:
        found = self._layouts.get(head)
        if found is None:
            layout = Layout.of(head)
            if len(layout.counters) != self._operators:
                raise ValueError(
                    f"expected figures of {self._operators} operators, found {len(layout.counters)}"
                )
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            found = self._layouts[head] = self._placed(layout)
        return found

    def _placed(self, layout: Layout) -> _Columns:
        """Find the columns of figures; new names have new ones, as far as an operator may."""
        integers: list[int] = []
        gauges: list[int] = []
        for operator in range(self._operators):
            first = operator * len(BUILT_IN)
            integers += range(first, first + len(BUILT_IN))
            for name in layout.counters[operator]:
                integers.append(self._column(operator, name, self.counters[operator]))
            for name in layout.gauges[operator]:
                gauges.append(self._column(operator, name, self.gauges[operator]))
        np = self._np
        kept = [place for place, column in enumerate(integers) if column >= 0]
        gauges_kept = [place for place, column in enumerate(gauges) if column >= 0]
        return _Columns(
            layout,
            np.array(kept, np.intp),
            np.array([integers[place] for place in kept], np.intp),
            np.array(gauges_kept, np.intp),
            np.array([gauges[place] for place in gauges_kept], np.intp),
        )

    def _column(self, operator: int, name: str, known: dict[str, int]) -> int:
        """Return the column of a counter or gauge; -1 if there is no room for another."""
        if name in known:
            return known[name]
        if len(self.counters[operator]) + len(self.gauges[operator]) >= MAX_NAMES:
            self._warnings.warn(
                "names",
                f"the metric {name!r} and others are left out: the instances of an operator may "
                f"have {MAX_NAMES} names together, and what differs from region to region belongs "
                "into rows",
            )
            return -1
        if known is self.counters[operator]:
            known[name], self._width = self._width, self._width + 1
        else:
            known[name], self._gauge_width = self._gauge_width, self._gauge_width + 1
        return known[name]

    def _nothing(self) -> Sums:
        return Sums(self._np.zeros(self._width, self._np.int64), self._no_gauges(self._gauge_width))

    def _no_gauges(self, count: int) -> Floats:
        gauges = self._np.zeros((count, GAUGE_VALUES))
        gauges[:, 0], gauges[:, 1] = self._np.inf, -self._np.inf
        return gauges

    def _wide(self, sums: Sums) -> Sums:
        """Return sums with columns for all names that are known by now."""
        integers, gauges = sums.integers, sums.gauges
        if (missing := self._width - len(integers)) > 0:
            integers = self._np.pad(integers, (0, missing))
        if (missing := self._gauge_width - len(gauges)) > 0:
            gauges = self._np.concatenate([gauges, self._no_gauges(missing)])
        return Sums(integers, gauges)

    def _make_room(self) -> None:
        """Let the arrays of the regions have all rows and columns that are known by now."""
        np, rows = self._np, len(self._rows)
        have = len(self._of_regions)
        # Twice as many, so that regions that come one by one cost no copy each.
        rows = have if have >= rows else min(max(2 * have, rows), MAX_REGIONS)
        if (rows, self._width) != self._of_regions.shape:
            more = (rows - have, self._width - self._of_regions.shape[1])
            self._of_regions = np.pad(self._of_regions, ((0, more[0]), (0, more[1])))
        if (rows, self._gauge_width) != self._gauges_of_regions.shape[:2]:
            wide = self._gauge_width - self._gauges_of_regions.shape[1]
            rows_more = rows - len(self._gauges_of_regions)
            self._gauges_of_regions = np.pad(
                self._gauges_of_regions, ((0, rows_more), (0, wide), (0, 0))
            )
