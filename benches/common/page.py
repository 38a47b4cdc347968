"""``benches/run.py report RECORD...``: a page made of result files, and of nothing else.

For each file it has a plot of every metric with all figures of all rounds, the ratios, and the
targets; of files that differ in one quantity alone, such as the number of partitions, lines over
that. What is not in a file is not drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import compare
from common.charts import Line, Point, Row, lines_plot, rows_plot
from common.rounds import Metric
from common.targets import COLUMNS, MEASURED, title_of
from harness.figures import Spread
from harness.screen import Screen
from holdfast.cli.pages.elements import Element, element, page
from holdfast.cli.pages.parts import table
from holdfast.cli.pages.tables import Table

#: Result of a run: what `common.report.save` writes.
Record = Mapping[str, Any]

#: Colours of providers; what is compared beside them is grey.
_COLOURS = {
    MEASURED: "blue",
    "rocksdb-changelog": "orange",
    "rocksdb": "violet",
    "spark": "green",
}

#: What records may differ in to make a line: in the plan, and on the axis.
SWEPT = {
    "partitions": "partitions",
    "keys": "keys in the state",
    "state_mib": "MiB of state",
}


def report_page(records: Sequence[Record]) -> str:
    """Return the page of at least one record."""
    return page("Benchmarks of Holdfast", _sections(records))


def _sections(records: Sequence[Record]) -> Iterator[Element]:
    yield element("h1", "Benchmarks of Holdfast")
    yield element(
        "p",
        "A dot is one measurement of one round, the upright mark the median of all. Beside it "
        "stand the median and the range. Ratios are medians over rounds of the medians within a "
        "round: compare these rather than times, which depend on the machine.",
    )
    for swept, of_axis in sweeps(records).items():
        for group in of_axis:
            yield from _sweep(swept, group)
    for record in records:
        yield from _of_record(record)


def sweeps(records: Sequence[Record]) -> dict[str, list[list[Record]]]:
    """Return records that differ in one quantity of their plans alone, in its order.

    Returns
    -------
    dict
        By quantity, groups of at least two records on one machine with the same versions.
    """
    found: dict[str, list[list[Record]]] = {}
    for swept in SWEPT:
        groups: dict[str, dict[float, Record]] = {}
        for record in records:
            plan = dict(record["plan"])
            place = plan.pop(swept, None)
            plan.pop("curves", None)
            if not isinstance(place, int | float):
                continue
            names = [metric["name"] for metric in record["metrics"]]
            same = [plan, names, record["machine"], record["versions"]]
            # Of two at one place the later one counts.
            groups.setdefault(json.dumps(same, sort_keys=True), {})[place] = record
        of_axis = [
            [group[place] for place in sorted(group)] for group in groups.values() if len(group) > 1
        ]
        if of_axis:
            found[swept] = of_axis
    return found


def values_of(record: Record, metric: str, provider: str) -> list[float]:
    """Return every measurement of a metric."""
    return [
        value
        for run in record["runs"]
        if run["provider"] == provider
        for value in run["values"].get(metric, ())
    ]


def _metrics(record: Record) -> list[Metric]:
    return [Metric(**metric) for metric in record["metrics"]]


def _providers(record: Record) -> list[str]:
    return list(dict.fromkeys(run["provider"] for run in record["runs"]))


def _spread(record: Record, metric: str, provider: str) -> Spread | None:
    values = values_of(record, metric, provider)
    return Spread.of(values) if values else None


def _of_record(record: Record) -> Iterator[Element]:
    yield element("h2", record["benchmark"])
    if record.get("described"):
        yield element("p", *_in_lines(record["described"]))
    for metric in _metrics(record):
        rows = [
            Row(
                name=title_of(provider),
                colour=_COLOURS.get(provider, "grey"),
                spread=spread,
                values=values_of(record, metric.name, provider),
            )
            for provider in _providers(record)
            if (spread := _spread(record, metric.name, provider)) is not None
        ]
        if rows:
            yield _figure(rows_plot(metric.title, rows, text=metric.text, width=760.0), [record])
    if record.get("notes"):
        yield element("p", *_in_lines(record["notes"]), class_="muted")
    yield from _ratios(record)
    yield from _targets(record)


def _in_lines(text: str) -> Iterator[Element | str]:
    for number, line in enumerate(text.splitlines()):
        yield element("br") if number else ""
        yield line


def _figure(picture: Element, records: Sequence[Record]) -> Element:
    return element(
        "figure",
        element("div", picture, class_="wide"),
        element("figcaption", *_origin(records)),
    )


def _origin(records: Sequence[Record]) -> Iterator[Element | str]:
    """Say what was run, where and how often, for each figure again: figures are copied alone."""
    first = records[0]
    rounds = sorted({len({run["round_number"] for run in one["runs"]}) for one in records})
    loads = Spread.of(run["load"] for one in records for run in one["runs"])
    machine = first["machine"]
    of_rounds = f"{' or '.join(map(str, rounds))} round{'' if rounds == [1] else 's'}"
    yield (
        f"{of_rounds}, {machine['cores']} cores, {machine['system']}, "
        f"{first['versions']}, load {loads.median:.1f} ({loads.low:.1f}..{loads.high:.1f}). "
    )
    commands = dict.fromkeys(one["command"] for one in records if one.get("command"))
    for command in commands:
        yield element("code", command)
        yield " "
    measured = sorted(one["measured"] for one in records if one.get("measured"))
    if measured:
        yield (
            f"on {measured[0]}"
            if measured[0] == measured[-1]
            else (f"from {measured[0]} to {measured[-1]}")
        )


def _ratios(record: Record) -> Iterator[Element]:
    measured = _providers(record)
    bases = [
        base
        for base in dict.fromkeys(base for line in record["summary"] for base in line["ratios"])
        if base in measured
    ]
    if not bases:
        return
    metrics = {metric.name: metric for metric in _metrics(record)}
    columns = ["metric", "provider", "median", *(f"of {title_of(base)}" for base in bases)]
    rows = [
        [
            metrics[line["metric"]].title,
            title_of(line["provider"]),
            metrics[line["metric"]].text(line["spread"]["median"]),
            *(_ratio_text(line["ratios"][base]) for base in bases),
        ]
        for line in record["summary"]
    ]
    yield element("h3", "Ratios")
    yield table(Table(columns, rows, frozenset({"metric", "provider"})), of="ratios")


def _ratio_text(found: Mapping[str, float] | None) -> str:
    return "-" if found is None else "{median:.3f} ({low:.3f}..{high:.3f})".format(**found)


def _targets(record: Record) -> Iterator[Element]:
    rows = []
    for one in record["targets"]:
        target, spread = one["target"], Spread(**one["measured"])
        metric = Metric(**target["metric"])
        text = metric.text if target["to"] is None else "{:.3f}".format
        base = f", of {title_of(target['to'])}" if target["to"] else ""
        rows.append(
            [
                metric.title + base,
                text(target["at_most"]),
                text(spread.median),
                f"{text(spread.low)}..{text(spread.high)}",
                "met" if one["met"] else "missed",
            ]
        )
    if rows:
        yield element("h3", "Targets")
        columns = [*COLUMNS[1:-1], "verdict"]
        yield table(Table(columns, rows, frozenset({"target", "verdict"})), of="targets")


def _sweep(swept: str, group: Sequence[Record]) -> Iterator[Element]:
    names = dict.fromkeys(record["benchmark"] for record in group)
    yield element("h2", f"By {SWEPT[swept]}")
    yield element("p", ", ".join(names))
    for metric in _metrics(group[0]):
        lines = []
        for provider in _providers(group[0]):
            points = [
                Point(
                    x=record["plan"][swept],
                    spread=spread,
                    values=values_of(record, metric.name, provider),
                )
                for record in group
                if (spread := _spread(record, metric.name, provider)) is not None
            ]
            if len(points) > 1:
                colour = _COLOURS.get(provider, "grey")
                lines.append(Line(name=title_of(provider), colour=colour, points=points))
        if lines:
            picture = lines_plot(metric.title, lines, of=SWEPT[swept], text=metric.text)
            yield _figure(picture, group)


def save_page(records: Sequence[Path], file: Path) -> None:
    """Write the page of result files.

    Raises
    ------
    NotComparableError
        If one of them is no result file.
    OSError
        If the page cannot be written.
    """
    text = report_page([compare.read(path) for path in records])
    staged = file.with_name(f".{file.name}.new")
    staged.write_text(text, encoding="utf-8")
    staged.replace(file)


def main(arguments: Sequence[str]) -> int:
    """Make a page of result files."""
    parser = argparse.ArgumentParser(prog="benches/run.py report", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="a result file")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page")
    options = parser.parse_args(arguments)
    try:
        save_page(options.records, options.output)
    except (compare.NotComparableError, OSError) as error:
        parser.error(str(error))
    Screen().say(f"{options.output} has the page")
    return 0
