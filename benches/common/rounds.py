"""Rounds of runs: every provider once per round, in an order that rotates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.figures import Spread

#: Spark's three configurations, then Holdfast.
ALL_PROVIDERS = ("spark", "rocksdb", "rocksdb-changelog", "holdfast")


class WrongStateError(RuntimeError):
    """A run ended with another state than its input has."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one provider in one round.

    Attributes
    ----------
    load
        The 1 minute load average at its start.
    values
        Measurements by the name of their metric.
    """

    provider: str
    round_number: int
    load: float
    values: Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured quantity, and how to print it."""

    name: str
    title: str
    decimals: int = 0
    more_is_better: bool = False

    def text(self, value: float) -> str:
        """Print one figure."""
        return f"{value:,.{self.decimals}f}"


def rotated(providers: Sequence[str], round_number: int) -> tuple[str, ...]:
    """Return the providers in the order of one round."""
    turn = round_number % len(providers)
    return (*providers[turn:], *providers[:turn])


def in_rounds(
    providers: Sequence[str], rounds: int, run: Callable[[str, int], Run]
) -> Iterator[Run]:
    """Yield the runs of all rounds as they end."""
    for number in range(rounds):
        for provider in rotated(providers, number):
            yield run(provider, number)


def spread(runs: Sequence[Run], metric: str, provider: str) -> Spread | None:
    """Summarise all measurements of one metric of one provider; None without any."""
    values = [
        value for run in runs if run.provider == provider for value in run.values.get(metric, ())
    ]
    return Spread.of(values) if values else None


def ratio(runs: Sequence[Run], metric: str, provider: str, base: str) -> Spread | None:
    """Compare two providers.

    The medians of the same round are divided, so that a slow spell of the machine hits both;
    then median and range over the rounds. None where there is nothing to divide by.
    """
    medians = {
        (run.provider, run.round_number): Spread.of(run.values[metric]).median
        for run in runs
        if run.values.get(metric)
    }
    ratios = [
        value / medians[base, number]
        for (name, number), value in medians.items()
        if name == provider and medians.get((base, number))
    ]
    return Spread.of(ratios) if ratios else None
