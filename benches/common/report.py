"""Tables, bars and the result file of all benchmarks."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.rounds import Metric, Run, ratio, spread
from common.targets import COLUMNS, Target, Verdict, judge, title_of
from harness.figures import Spread
from harness.screen import Screen

#: Ratios are taken to these: first Spark's fastest way to checkpoint changes, its default last.
BASES = ("rocksdb-changelog", "rocksdb", "spark")

_BAR_WIDTH = 60


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything one benchmark measured.

    Attributes
    ----------
    name
        Names the result file; words joined by dashes.
    plan
        How it was measured; goes into the result file.
    notes
        Printed below the table: what the figures mean.
    bases
        Base of the ratios, where it was measured.
    """

    name: str
    plan: Mapping[str, Any]
    metrics: Sequence[Metric]
    targets: Sequence[Target]
    runs: Sequence[Run]
    notes: str
    bases: Sequence[str] = BASES

    def verdicts(self) -> list[Verdict]:
        """Hold what was measured against the targets."""
        return judge(self.name, self.targets, self.runs)


def result_of(record: Mapping[str, Any]) -> Result:
    """Return what a result file says, as `save` was given it."""
    targets = [verdict["target"] for verdict in record.get("targets", ())]
    bases = [base for line in record["summary"] for base in line["ratios"]]
    return Result(
        name=record["benchmark"],
        plan=record["plan"],
        metrics=[Metric(**metric) for metric in record["metrics"]],
        targets=[Target(**{**target, "metric": Metric(**target["metric"])}) for target in targets],
        runs=[Run(**run) for run in record["runs"]],
        notes=record.get("notes", ""),
        bases=list(dict.fromkeys(bases)),
    )


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of one provider over all rounds.

    Attributes
    ----------
    spread
        Over all measurements of all rounds.
    ratios
        By base; see `common.rounds.ratio`. None without that base.
    """

    metric: str
    provider: str
    spread: Spread
    ratios: Mapping[str, Spread | None]


def lines(runs: Sequence[Run], metric: Metric, bases: Sequence[str]) -> list[Line]:
    """Summarise one metric for every provider, in the order of first appearance."""
    found = []
    for provider in dict.fromkeys(run.provider for run in runs):
        values = spread(runs, metric.name, provider)
        if values is not None:
            ratios = {base: ratio(runs, metric.name, provider, base) for base in bases}
            found.append(Line(metric=metric.name, provider=provider, spread=values, ratios=ratios))
    return found


def show(result: Result, *, screen: Screen) -> None:
    """Print the table, bars of medians, and the verdicts."""
    measured = {run.provider for run in result.runs}
    bases = [base for base in result.bases if base in measured]
    columns = [
        "metric",
        "provider",
        "median",
        "min..max",
        *(f"of {title_of(base)}" for base in bases),
    ]
    rows: list[list[str]] = []
    for metric in result.metrics:
        found = lines(result.runs, metric, bases)
        for number, line in enumerate(found):
            rows.append(
                [
                    "" if number else metric.title,
                    title_of(line.provider),
                    metric.text(line.spread.median),
                    f"{metric.text(line.spread.low)}..{metric.text(line.spread.high)}",
                    *(_ratio_text(line.ratios[base]) for base in bases),
                ]
            )
        if found:
            rows.append([""] * len(columns))
    screen.say("")
    screen.table(columns, rows[:-1])
    loads = Spread.of(run.load for run in result.runs)
    screen.say(
        f"Ratio: median over rounds of the medians within a round (min..max). Load average at the "
        f"start of the runs: {loads.median:.1f} ({loads.low:.1f}..{loads.high:.1f}).\n"
        f"{result.notes}"
    )
    # Bars for what has a target; the table has the rest.
    for metric in dict.fromkeys(target.metric for target in result.targets):
        _show_bars(metric, lines(result.runs, metric, bases), screen)
    show_verdicts(result.verdicts(), screen=screen)


def _show_bars(metric: Metric, found: Sequence[Line], screen: Screen) -> None:
    largest = max((line.spread.median for line in found), default=0)
    screen.say(f"\n{metric.title}, median")
    for line in found:
        drawn = bar(line.spread.median, largest)
        screen.say(f"  {title_of(line.provider):<20} {drawn} {metric.text(line.spread.median)}")


def show_verdicts(verdicts: Sequence[Verdict], *, screen: Screen) -> None:
    """Print which targets are met; nothing where there are none."""
    if verdicts:
        screen.say("")
        screen.table(COLUMNS, [verdict.cells() for verdict in verdicts])


def _ratio_text(ratio: Spread | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.median:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"


def bar(value: float, largest: float) -> str:
    """Draw a bar whose length is the value's share of the largest one."""
    length = round(_BAR_WIDTH * value / largest) if largest else 0
    return "#" * length


def save(
    result: Result, *, versions: str, folder: Path, described: str = "", command: str = ""
) -> Path:
    """Write all figures as one JSON file and return its path.

    Parameters
    ----------
    described
        The measurement in a few lines.
    command
        The command that measured it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {
        "benchmark": result.name,
        "command": command,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": versions,
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "cpu": _cpu()},
        "described": described,
        "notes": result.notes,
        "plan": dict(result.plan),
        "metrics": [asdict(metric) for metric in result.metrics],
        "summary": [
            asdict(line)
            for metric in result.metrics
            for line in lines(result.runs, metric, result.bases)
        ],
        "targets": [{**asdict(verdict), "met": verdict.met} for verdict in result.verdicts()],
        "runs": [asdict(run) for run in result.runs],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _cpu() -> str:
    """Return what the processor calls itself; empty where the kernel does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")
