"""The content of docs/monitoring.md, the reference of metrics and examples/monitoring."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from support import TESTS
from support.markdown import cells_of

DOCS = TESTS.parent / "docs"
METRICS = DOCS / "reference" / "metrics.md"
FILES = TESTS.parent / "examples" / "monitoring"

_SHOWN_LABEL = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
_SELECTED_LABEL = re.compile(r"(\w+)\s*=~")


def settings() -> dict[str, str]:
    """The settings of Spark on the page."""
    block = re.search(r"^```text\n(.*?)^```", (DOCS / "monitoring.md").read_text(), re.M | re.S)
    assert block is not None
    return dict(line.split() for line in block[1].splitlines())


def scrape_config() -> dict[str, Any]:
    """The job of prometheus.yml."""
    (job,) = yaml.safe_load((FILES / "prometheus.yml").read_text())["scrape_configs"]
    found: dict[str, Any] = job
    return found


def of_the_dashboard() -> Iterator[tuple[str, set[str]]]:
    """Expressions of the dashboard, and the labels that each needs."""
    board = json.loads((FILES / "dashboard.json").read_text())
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield name, {label}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            labels = _SHOWN_LABEL.findall(target["legendFormat"])
            yield expression, {*labels, *_SELECTED_LABEL.findall(expression)}


def of_the_alerts() -> Iterator[tuple[str, set[str]]]:
    """Expressions of the alerts, and the labels that each shows."""
    for group in yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            said = " ".join(rule["annotations"].values())
            yield rule["expr"], set(_SHOWN_LABEL.findall(said))


def of_the_progress() -> dict[str, tuple[str, str]]:
    """Unit and meaning of each custom metric in the reference."""
    text = METRICS.read_text().partition("## In the progress of a query")[2].partition("\n## ")[0]
    return {name.strip("`"): (unit, meaning) for name, unit, meaning, _ in cells_of(text)}


def names_of_the_reference() -> set[str]:
    """Names in prometheus.yml of the reference's metrics of Spark's metrics system."""
    text = METRICS.read_text().partition("## In Spark's metrics system")[2]
    plain, found_there, regional = text.partition("`regional.NAME`")
    assert found_there, f"{METRICS} has no table of the metrics of a regional pipeline"
    found = {f"holdfast_{row[0].strip('`')}" for row in cells_of(plain)}
    for row in cells_of(regional):
        name = row[0].strip("`")
        own = name.removeprefix("operator.OPERATOR.")
        own = own.replace(".COUNTER", "").replace("GAUGE.", "").replace(".", "_")
        found.add(f"holdfast_{'regional' if own == name else 'operator'}_{own}")
    return found
