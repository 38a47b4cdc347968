"""``benches/run.py report RECORD... -o FOLDER``: tables and pictures of result files.

A picture of each file has every metric with all figures of all rounds; of files that differ in one
quantity alone, such as the number of partitions, another one has lines over that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common import compare, report
from common.charts import Line, Point, Row, draw_lines, draw_rows, figure, svg_text
from common.rounds import Metric, spread
from common.targets import MEASURED, title_of
from harness.figures import Spread
from harness.screen import Screen

#: Result of a run: what `common.report.save` writes.
Record = Mapping[str, Any]

#: Colours of providers; what is compared beside them is grey.
_COLOURS = {
    MEASURED: "tab:blue",
    "rocksdb-changelog": "tab:orange",
    "rocksdb": "tab:purple",
    "spark": "tab:green",
}

#: What records may differ in to make a line: in the plan, and on the axis.
SWEPT = {
    "partitions": "partitions",
    "keys": "keys in the state",
    "state_mib": "MiB of state",
    "executors": "executors",
}


def of_record(record: Record) -> Figure | None:
    """Return the picture of a result; None if it has no figure."""
    result = report.result_of(record)
    found: dict[Metric, list[Row]] = {}
    for metric in result.metrics:
        for line in report.lines(result.runs, metric, ()):
            row = Row(
                name=title_of(line.provider),
                colour=_COLOURS.get(line.provider, "tab:grey"),
                spread=line.spread,
                values=_values(result, metric, line.provider),
            )
            found.setdefault(metric, []).append(row)
    if not found:
        return None
    made = figure([0.9 + 0.25 * len(rows) for rows in found.values()], below=_origin([record]))
    for axes, (metric, rows) in zip(made.axes, found.items(), strict=True):
        draw_rows(axes, metric.title, rows, text=metric.text)
    return made


def of_sweeps(records: Sequence[Record]) -> Iterator[tuple[str, Figure]]:
    """Yield pictures of records that differ in one quantity alone, after its name."""
    for swept, group in sweeps(records):
        found = {metric: lines for metric, lines in _lines(swept, group) if lines}
        if found:
            made = figure([2.8] * len(found), below=_origin(group))
            for axes, (metric, lines) in zip(made.axes, found.items(), strict=True):
                draw_lines(axes, metric.title, lines, of=SWEPT[swept])
            yield swept, made


def sweeps(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Yield groups of records that differ in one quantity of their plans alone, in its order.

    They are at least two, on one machine with the same versions.
    """
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
            # If there are two at one place, the later one counts.
            groups.setdefault(json.dumps(same, sort_keys=True), {})[place] = record
        for group in groups.values():
            if len(group) > 1:
                yield swept, [group[place] for place in sorted(group)]


def _lines(swept: str, group: Sequence[Record]) -> Iterator[tuple[Metric, list[Line]]]:
    results = [(record["plan"][swept], report.result_of(record)) for record in group]
    _, first = results[0]
    for metric in first.metrics:
        lines = []
        for provider in dict.fromkeys(run.provider for run in first.runs):
            points = [
                Point(x=place, spread=found, values=_values(result, metric, provider))
                for place, result in results
                if (found := spread(result.runs, metric.name, provider)) is not None
            ]
            if len(points) > 1:
                colour = _COLOURS.get(provider, "tab:grey")
                lines.append(Line(name=title_of(provider), colour=colour, points=points))
        yield metric, lines


def _values(result: report.Result, metric: Metric, provider: str) -> list[float]:
    return [
        value
        for run in result.runs
        if run.provider == provider
        for value in run.values.get(metric.name, ())
    ]


def _origin(records: Sequence[Record]) -> str:
    """Say what was run, where and how often: pictures are copied alone."""
    first = records[0]
    rounds = sorted({len({run["round_number"] for run in one["runs"]}) for one in records})
    loads = Spread.of(run["load"] for one in records for run in one["runs"])
    machine = first["machine"]
    of_rounds = f"{' or '.join(map(str, rounds))} round{'' if rounds == [1] else 's'}"
    said = [
        f"{of_rounds}, {machine['cores']} cores, {machine['system']}, "
        f"{first['versions']}, load {loads.median:.1f} ({loads.low:.1f}..{loads.high:.1f})"
    ]
    said += dict.fromkeys(one["command"] for one in records if one.get("command"))
    measured = sorted(one["measured"] for one in records if one.get("measured"))
    if measured:
        said.append(" to ".join(dict.fromkeys([measured[0], measured[-1]])))
    return "\n".join(said)


def save(files: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Write the pictures of result files, and yield what was written.

    Raises
    ------
    NotComparableError
        If one of them is no result file.
    OSError
        If a picture cannot be written.
    """
    records = [compare.read(file) for file in files]
    made = [(file.stem, of_record(record)) for file, record in zip(files, records, strict=True)]
    made += [
        (f"by-{swept}-{time.strftime('%Y%m%d-%H%M%S')}-{number}", picture)
        for number, (swept, picture) in enumerate(of_sweeps(records))
    ]
    for name, picture in made:
        if picture is not None:
            path = folder / f"{name}.svg"
            path.write_text(svg_text(picture), encoding="utf-8")
            yield path


def main(arguments: Sequence[str]) -> int:
    """Print the tables of result files, and draw their pictures."""
    parser = argparse.ArgumentParser(prog="benches/run.py report", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="a result file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where pictures go"
    )
    options = parser.parse_args(arguments)
    screen = Screen()
    try:
        for path in save(options.records, options.output):
            screen.say(f"picture: {path}")
    except (compare.NotComparableError, OSError) as error:
        parser.error(str(error))
    for file in options.records:
        record = compare.read(file)
        screen.heading(record["benchmark"])
        screen.say(record.get("described", ""))
        report.show(report.result_of(record), screen=screen)
    return 0
