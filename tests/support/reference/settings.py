"""The tables of docs/reference/settings.md.

The meaning of an option is in the docstring of its function, its default in the signature, and its
allowed values in ``ALLOWED``, which also checks values of users.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Any

import holdfast
from holdfast import _spark
from holdfast._checks import Allowed
from holdfast._options import OPTIONS
from holdfast.regions import PipelineOptions, RegionalWriter
from holdfast.regions.api import options
from support import TESTS
from support.markdown import table

DOCUMENT = TESTS.parent / "docs" / "reference" / "settings.md"

_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : ([^\n]*)\n((?:    [^\n]*\n|\n)*)", re.MULTILINE)


def described(documented: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Type with default, and meaning, of each parameter of a docstring."""
    section = _SECTION.search(f"{inspect.getdoc(documented)}\n")
    assert section is not None
    found = {}
    for names, kind, text in _PARAMETER.findall(section[1]):
        said = re.sub(r"``(.*?)``", r"`\1`", " ".join(text.split()))
        found.update(dict.fromkeys(names.split(", "), (kind, said)))
    return found


def meanings(documented: Callable[..., Any]) -> dict[str, str]:
    """Meaning of each parameter of a docstring, in Markdown."""
    return {name: meaning for name, (_, meaning) in described(documented).items()}


def default(value: object, unit: str) -> str:
    """A default in its usual notation."""
    match value:
        case None:
            return "none"
        case bool():
            return f"`{value}`"
        case int() if unit == "bytes" and value >= 1024:
            return size(value)
        case timedelta():
            return time(value)
        case tuple():
            return f"({', '.join(default(part, '') for part in value)})"
        case str():
            return f'`"{value}"`'
        case _:
            return str(value)


def size(count: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    names = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = max(power for power in range(len(names)) if count % (1 << 10 * power) == 0)
    return f"{count >> 10 * power:,} {names[power]}"


def time(value: timedelta) -> str:
    """A time in whole minutes, or in seconds."""
    seconds = value.total_seconds()
    return f"{seconds / 60:g} minutes" if seconds and seconds % 60 == 0 else f"{seconds:g} s"


def bounds(allowed: Allowed) -> str:
    """Allowed values of an option, in words."""

    def shown(count: int) -> str:
        return size(count) if allowed.unit == "bytes" and count >= 1024 else f"{count:,}"

    if allowed.kind == "flag":
        return "`True`, `False`"
    parts = [allowed.note] if allowed.note else []
    if allowed.kind != "other" or not allowed.note:
        if allowed.above:
            upper = "" if allowed.most is None else f", at most {shown(allowed.most)}"
            parts.insert(0, f"above {shown(allowed.least)}{upper}")
        elif allowed.most is None:
            parts.insert(0, f"{shown(allowed.least)} or more")
        else:
            parts.insert(0, f"{shown(allowed.least)} to {shown(allowed.most)}")
    if allowed.optional:
        parts.append("or `None`")
    return ", ".join(parts)


def of_stores() -> Iterator[str]:
    """Options of `configure`, and the keys of Spark that they set."""
    said = meanings(holdfast.spark_conf)
    yield from table(
        ["option and key", "default", "allowed", "meaning"],
        [
            [
                f"`{name}` `{option.key.rpartition('.')[2]}`",
                f"`{option.default}`",
                option.expected,
                said[name],
            ]
            for name, option in OPTIONS.items()
        ],
    )


def of_queries() -> Iterator[str]:
    """Settings of `configure` for every query."""
    default, provider = _spark.DEFAULT_KEY, _spark.PROVIDER_KEY
    newer, older = _spark.of_queries("4.3"), dict(_spark.of_queries("4.2"))
    yield from table(
        ["key", "value"],
        [
            [f"`{default}`, on Spark 4.3", f"`{newer[default]}`; `configure` sets `always`"],
            [f"`{provider}`, on Spark 4.0 to 4.2", f"`{older.pop(provider)}`"],
            *([f"`{key}`", f"`{value}`"] for key, value in older.items()),
            ["`spark.plugins`", f"a list with `{_spark.PLUGIN}`"],
            ["`spark.jars`", "a list with the two jars that `holdfast jar` prints"],
            [f"`{_spark.UI_METRICS_KEY}`", f"a list with {', '.join(_spark.UI_METRICS)}"],
        ],
    )


def of_start() -> Iterator[str]:
    """Arguments of `start` that are no options."""
    signature = inspect.signature(RegionalWriter.start).parameters
    yield from table(
        ["argument", "default", "meaning"],
        [
            [f"`{name}`", "has to be given" if absent else default(value, ""), meaning]
            for name, meaning in meanings(RegionalWriter.start).items()
            for value in [signature[name].default]
            for absent in [value is inspect.Parameter.empty]
        ],
    )


def of_pipelines() -> Iterator[str]:
    """Options of `start` and `open_local`."""
    said = meanings(PipelineOptions)
    defaults = {field.name: field.default for field in fields(PipelineOptions)}
    yield from table(
        ["option", "default", "allowed", "meaning"],
        [
            [
                f"`{option}`",
                default(defaults[option], allowed.unit),
                ", ".join(filter(None, [unit, bounds(allowed)])),
                said[option],
            ]
            for option, allowed in options.ALLOWED.items()
            for unit in ["`timedelta`" if allowed.kind == "time" else allowed.unit]
        ],
    )


def tables() -> dict[str, Iterator[str]]:
    """The tables, by the name in their first comment."""
    return {
        "of stores": of_stores(),
        "of queries": of_queries(),
        "of start": of_start(),
        "of pipelines": of_pipelines(),
    }
