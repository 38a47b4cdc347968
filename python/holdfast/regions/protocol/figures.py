"""Figures of the operators of a region in an attempt, and their form in a region's answer.

The form is a JSON document: one list for each operator, in the order of the pipeline. A list has
rows in, rows out, nanoseconds at work, an object of counters, and an object of gauges; a gauge is
minimum, maximum, sum and number of its values. It is never stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: Largest value of a counter, which stays there: Java's numbers end there.
MAX_COUNT: Final = 2**63 - 1


class GaugeFigures(NamedTuple):
    """Values of the gauges of one name, over all instances."""

    min: float
    max: float
    sum: float
    instances: int

    @classmethod
    def of(cls, value: float) -> GaugeFigures:
        """Return the figures of one instance."""
        return cls(value, value, value, 1)

    def plus(self, other: GaugeFigures) -> GaugeFigures:
        """Return the figures of both."""
        return GaugeFigures(
            min(self.min, other.min),
            max(self.max, other.max),
            self.sum + other.sum,
            self.instances + other.instances,
        )


@dataclass(slots=True)
class OperatorFigures:
    """Figures of the instances of one operator; gauges without a value are missing."""

    rows_in: int = 0
    rows_out: int = 0
    busy_ns: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, GaugeFigures] = field(default_factory=dict)

    def add(self, other: OperatorFigures) -> None:
        """Add figures of other instances in the same attempt."""
        self._count(other)
        for name, gauge in other.gauges.items():
            known = self.gauges.get(name)
            self.gauges[name] = gauge if known is None else known.plus(gauge)

    def add_later(self, other: OperatorFigures) -> None:
        """Add later figures of the same instances, whose gauges replace the older ones."""
        self._count(other)
        self.gauges.update(other.gauges)

    def _count(self, other: OperatorFigures) -> None:
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.busy_ns += other.busy_ns
        for name, count in other.counters.items():
            self.counters[name] = min(self.counters.get(name, 0) + count, MAX_COUNT)


def encode(operators: Sequence[OperatorFigures]) -> bytes:
    """Return the figures of a region, operator by operator in the order of the pipeline."""
    fields = [
        (one.rows_in, one.rows_out, one.busy_ns, one.counters, one.gauges) for one in operators
    ]
    return json.dumps(fields).encode()


def decode(data: bytes) -> list[OperatorFigures]:
    """Return figures from `encode`, or raise ValueError."""
    try:
        found = [OperatorFigures(*fields) for fields in json.loads(data)]
    except (ValueError, TypeError) as error:
        raise ValueError(f"these are no figures of operators: {error}") from None
    for one in found:
        if one.gauges:
            one.gauges = {name: GaugeFigures(*values) for name, values in one.gauges.items()}
    return found
