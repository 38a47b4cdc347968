"""Figures, ratios, bars and the result file of the Spark benchmarks."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.demo.figures import Spread
from holdfast.demo.objects import HOW_COUNTED
from holdfast.demo.providers import TITLES
from holdfast.demo.screen import Screen
from spark.groupby_count import Plan, Run

#: Ratios are taken to this provider: Spark's fastest way to checkpoint changes.
BASE = "rocksdb-changelog"

_BAR_WIDTH = 60


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured quantity: its values in one run, and how to print one of them."""

    title: str
    values: Callable[[Run], Sequence[float]]
    text: Callable[[float], str]


METRICS = (
    Metric(
        title="objects per batch",
        values=lambda run: [run.objects_per_batch],
        text=lambda value: f"{value:,.1f}",
    ),
    Metric(
        title="KiB per batch",
        values=lambda run: [run.bytes_per_batch / 1024],
        text=lambda value: f"{value:,.0f}",
    ),
    Metric(
        title="commitTimeMs, summed",
        values=lambda run: [batch.commit_ms for batch in run.measured],
        text=lambda value: f"{value:,.0f}",
    ),
    Metric(
        title="allUpdatesTimeMs, summed",
        values=lambda run: [batch.updates_ms for batch in run.measured],
        text=lambda value: f"{value:,.0f}",
    ),
    Metric(
        title="batch time, ms",
        values=lambda run: [batch.batch_ms for batch in run.measured],
        text=lambda value: f"{value:,.0f}",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of one provider over all rounds.

    Attributes
    ----------
    spread
        Over all measured batches of all rounds (objects and bytes: over the rounds).
    ratio
        To `BASE`: the medians of the same round are divided, so that a slow spell of the
        machine hits both; then median and range over the rounds. None without `BASE`.
    """

    metric: str
    provider: str
    spread: Spread
    ratio: Spread | None


def lines(runs: Sequence[Run], metric: Metric) -> list[Line]:
    """Summarise one metric for every provider, in the order of first appearance."""
    return [
        Line(
            metric=metric.title,
            provider=provider,
            spread=Spread.of(
                value for run in runs if run.provider == provider for value in metric.values(run)
            ),
            ratio=_ratio(runs, metric, provider),
        )
        for provider in dict.fromkeys(run.provider for run in runs)
    ]


def _ratio(runs: Sequence[Run], metric: Metric, provider: str) -> Spread | None:
    medians = {
        (run.provider, run.round_number): Spread.of(metric.values(run)).median for run in runs
    }
    ratios = [
        value / medians[BASE, number]
        for (name, number), value in medians.items()
        if name == provider and medians.get((BASE, number))
    ]
    return Spread.of(ratios) if ratios else None


def show(runs: Sequence[Run], *, screen: Screen) -> None:
    """Print the table, and bars of the medians."""
    columns = ["metric", "provider", "median", "min..max", f"ratio to {TITLES[BASE]}"]
    rows: list[list[str]] = []
    for metric in METRICS:
        for number, line in enumerate(lines(runs, metric)):
            rows.append(
                [
                    "" if number else metric.title,
                    TITLES[line.provider],
                    metric.text(line.spread.median),
                    f"{metric.text(line.spread.low)}..{metric.text(line.spread.high)}",
                    _ratio_text(line.ratio),
                ]
            )
        rows.append([""] * len(columns))
    screen.say("")
    screen.table(columns, rows[:-1])
    screen.say(
        "commitTimeMs and allUpdatesTimeMs are summed over tasks. Ratio: median over rounds of the "
        f"medians within a round (min..max).\n{HOW_COUNTED}."
    )
    for metric in METRICS:
        found = lines(runs, metric)
        largest = max(line.spread.median for line in found)
        screen.say(f"\n{metric.title}, median")
        for line in found:
            drawn = bar(line.spread.median, largest)
            screen.say(f"  {TITLES[line.provider]:<20} {drawn} {metric.text(line.spread.median)}")


def _ratio_text(ratio: Spread | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.median:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"


def bar(value: float, largest: float) -> str:
    """Draw a bar whose length is the value's share of the largest one."""
    length = round(_BAR_WIDTH * value / largest) if largest else 0
    return "#" * length


def save(runs: Sequence[Run], *, plan: Plan, versions: str, folder: Path) -> Path:
    """Write all figures as one JSON file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"groupby_count-{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {
        "benchmark": "groupby_count",
        "versions": versions,
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "plan": {key: value for key, value in asdict(plan).items() if key != "folder"},
        "ratios_to": BASE,
        "summary": [asdict(line) for metric in METRICS for line in lines(runs, metric)],
        "runs": [asdict(run) for run in runs],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
