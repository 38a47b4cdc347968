"""Prometheus' treatment of a scrape: relabelling, and the names in expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SAMPLE = re.compile(r"(\w+)\{type=\"(\w+)\"\} (\S+)")
_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")
_SELECTOR = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)")
_NAME = re.compile(r"\b[A-Za-z_:][\w:]*\b(?!\s*\()")
_WORDS = {"and", "or", "unless", "on", "ignoring", "bool", "offset"}


def samples(text: str) -> Iterator[tuple[dict[str, str], float]]:
    """Labels and value of each line that Spark's servlet serves; the name is a label, too.

    Raises a ValueError for a line that Prometheus refuses, because it drops the whole scrape then.
    """
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise ValueError(f"no sample: {line}")
        yield {"__name__": found[1], "type": found[2]}, float(found[3])


def relabelled(labels: Mapping[str, str], rules: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The labels after ``metric_relabel_configs``; empty if the sample is dropped."""
    found = dict(labels)
    for rule in rules:
        text = ";".join(found.get(name, "") for name in rule["source_labels"])
        match = re.fullmatch(rule["regex"], text)
        action = rule.get("action", "replace")
        if action not in ("replace", "drop"):
            raise ValueError(f"the action {action} is not known here")
        if match is None:
            continue
        if action == "drop":
            return {}
        template = re.sub(r"\$(\d)", r"\\\1", rule.get("replacement", "$1"))
        found[rule["target_label"]] = match.expand(template)
    return found


def metric_names(expression: str) -> set[str]:
    """Names of metrics in an expression of PromQL."""
    bare = _SELECTOR.sub("", _STRING.sub("", expression))
    return set(_NAME.findall(bare)) - _WORDS
