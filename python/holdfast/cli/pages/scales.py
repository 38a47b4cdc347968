"""Scales of charts: where a figure lies, and which figures an axis names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: From this ratio of the largest figure to the middle one on, figures lie on a logarithmic scale.
_LOGARITHMIC_FROM = 8.0


@dataclass(frozen=True)
class Scale:
    """Figures from ``low`` to ``high`` on ``length`` pixels.

    Attributes
    ----------
    low, high : float
        What lies at 0 and at `length`. Above 0 if the scale is logarithmic.
    length : float
        Pixels in between.
    logarithmic : bool
        Whether equal ratios are equal distances.
    """

    low: float
    high: float
    length: float
    logarithmic: bool = False

    @classmethod
    def of(cls, values: Sequence[float], length: float) -> Scale:
        """Return a scale from 0, or a logarithmic one where most figures would lie at its foot."""
        largest = max(values, default=0.0)
        positive = sorted(value for value in values if value > 0)
        if positive and largest > _LOGARITHMIC_FROM * positive[len(positive) // 2]:
            low = 10.0 ** math.floor(math.log10(positive[0]))
            return cls(low, largest, length, logarithmic=True)
        return cls.linear(values, length)

    @classmethod
    def linear(cls, values: Sequence[float], length: float) -> Scale:
        """Return a scale from 0, for bars of several parts."""
        return cls(0.0, max(values, default=0.0) or 1.0, length)

    def at(self, value: float) -> float:
        """Return how many pixels above its foot a figure lies."""
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.length * min(1.0, max(0.0, share))

    def ticks(self, most: int = 5) -> list[float]:
        """Return round figures for an axis, ascending."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, math.ceil((last - first + 1) / most))
            return [10.0**power for power in range(first, last + 1, every)]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.999)
        count = math.floor((self.high - self.low) / step * 1.001)
        return [self.low + step * number for number in range(count + 1)]

    def byte_ticks(self) -> list[float]:
        """Return figures for an axis of bytes that are round in binary units, ascending."""
        unit = 1024.0 ** math.floor(math.log(max(self.high, 1.0), 1024))
        return [tick * unit for tick in Scale(0.0, self.high / unit, self.length).ticks()]


def figure_text(value: float) -> str:
    """Return a figure of an axis: ``2,500``, ``0.25``."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"
