"""Targets of Holdfast, and their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.rounds import Metric, Run, ratio, spread
from harness.figures import Spread
from harness.providers import TITLES

MEASURED = "holdfast"


def title_of(provider: str) -> str:
    """Return how a provider is printed; what is no provider of state has its own name."""
    return TITLES.get(provider, provider)


@dataclass(frozen=True, kw_only=True)
class Target:
    """An upper bound of one metric of Holdfast.

    Attributes
    ----------
    at_most
        Times the figure of the provider ``to``, or the figure itself where ``to`` is None.
    """

    metric: Metric
    at_most: float
    to: str | None = None

    def title(self) -> str:
        """Say what is compared."""
        base = f", of {title_of(self.to)}" if self.to else ""
        return f"{self.metric.title}{base}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A target and what was measured; it is met where the median is within the bound."""

    suite: str
    target: Target
    measured: Spread

    @property
    def met(self) -> bool:
        """True if the median is within the bound."""
        return self.measured.median <= self.target.at_most

    def cells(self) -> list[str]:
        """Return the line of a table under `COLUMNS`."""
        text = self.target.metric.text if self.target.to is None else _ratio_text
        return [
            self.suite,
            self.target.title(),
            text(self.target.at_most),
            text(self.measured.median),
            f"{text(self.measured.low)}..{text(self.measured.high)}",
            "met" if self.met else "missed",
        ]


COLUMNS = ("benchmark", "target", "at most", "measured", "min..max", "")


def judge(suite: str, targets: Sequence[Target], runs: Sequence[Run]) -> list[Verdict]:
    """Hold runs against targets; a target whose providers did not run has no verdict."""
    verdicts = []
    for target in targets:
        name = target.metric.name
        if target.to is None:
            measured = spread(runs, name, MEASURED)
        else:
            measured = ratio(runs, name, MEASURED, target.to)
        if measured is not None:
            verdicts.append(Verdict(suite=suite, target=target, measured=measured))
    return verdicts


def _ratio_text(value: float) -> str:
    return f"{value:.3f}"
