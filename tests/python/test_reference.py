"""docs/reference has what the code declares, and the declarations hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

import holdfast
from holdfast import _jars, regions
from holdfast._options import OPTIONS, StoreOptions
from holdfast.regions import PipelineOptions, RegionalWriter
from holdfast.regions.api import options
from holdfast.regions.base import errors as base_errors
from holdfast.regions.runners.spark.runner import KEEP_FREED_MEMORY
from support import TESTS
from support.markdown import cells_of, with_tables
from support.prometheus import metric_names, relabelled, samples
from support.reference import errors, monitoring, settings

PACKAGE = TESTS.parent / "python" / "holdfast"

#: The smallest step of an option's values.
STEPS = {"max_failure_ratio": 1e-9}


def test_the_tables_of_settings_are_what_the_code_declares() -> None:
    text = settings.DOCUMENT.read_text()
    assert with_tables(text, settings.tables()) == text, "run `make reference`"


def test_every_option_has_a_meaning_and_says_what_it_may_be() -> None:
    names = [field.name for field in fields(PipelineOptions)]
    assert names == [*options.ALLOWED] == [*settings.meanings(PipelineOptions)]
    hints = get_type_hints(StoreOptions)
    assert [*OPTIONS] == [*hints]
    for name, option in OPTIONS.items():
        names, bare = get_args(get_args(hints[name])[0]), {*get_args(hints[name])}
        assert option.type != "name" or tuple(map(str, names)) == tuple(option.names), name
        assert option.type != "flag" or bare == {bool, NoneType}, name
        assert option.type != "share" or bare == {float, NoneType}, name
        assert option.type != "size" or bare == {int, str, NoneType}, name
        assert option.type != "count" or bare == {int, NoneType}, name
        assert option.type != "path" or bare == {str, Path, NoneType}, name
    assert {*OPTIONS, "spark"} == settings.meanings(holdfast.spark_conf).keys()
    assert settings.meanings(RegionalWriter.start).keys() >= {"checkpoint", "trigger"}


def test_docstrings_have_the_defaults_of_the_code() -> None:
    for field in fields(PipelineOptions):
        kind, _ = settings.described(PipelineOptions)[field.name]
        _, _, said = kind.partition(", default ")
        if field.default is None:
            assert kind.endswith(", optional"), field.name
        else:
            unit = options.ALLOWED[field.name].unit
            assert said == settings.default(field.default, unit).strip("`"), field.name


def values(option: str, *counts: float) -> list[Any]:
    if options.ALLOWED[option].kind == "time":
        return [timedelta(seconds=count) for count in counts]
    return [*counts]


NUMBERS = [
    option
    for option, allowed in options.ALLOWED.items()
    if allowed.kind in ("integer", "time") or option in STEPS
]


@pytest.mark.parametrize("option", NUMBERS)
def test_the_bounds_of_an_option_are_those_that_are_declared(option: str) -> None:
    allowed = options.ALLOWED[option]
    step = 1e-3 if allowed.kind == "time" else STEPS.get(option, 1)
    good, bad = [allowed.least + step], [allowed.least - step]
    (bad if allowed.above else good).append(allowed.least)
    if allowed.most is not None:
        good.append(allowed.most)
        bad.append(allowed.most + step)
    for value in values(option, *good):
        assert getattr(PipelineOptions(**{option: value}), option) == value
    for value in values(option, *bad):
        with pytest.raises(ValueError, match=f"^{option}=.* is not allowed"):
            PipelineOptions(**{option: value})
    for value in [None] if allowed.optional else []:
        assert getattr(PipelineOptions(**{option: value}), option) is None


@pytest.mark.parametrize(
    ("option", "least", "most"),
    [
        ("max_file_bytes", "4k", "1t"),
        ("max_memory_bytes", "1m", None),
        ("target_memory_bytes", "1m", None),
    ],
)
def test_a_size_of_stores_has_the_bounds_that_its_error_names(
    option: str, least: str, most: str | None
) -> None:
    declared = OPTIONS[option]
    bounds = f"from {least}" + (f" to {most}" if most else "")
    assert declared.expected.endswith(f", {bounds}")
    ends = {least: declared.least} | ({most: declared.most} if most else {})
    for text, size in ends.items():
        for value in (text, size):
            given: dict[str, Any] = {option: value}
            assert holdfast.spark_conf(**given)[declared.key] == str(size)
    for size in (declared.least - 1, declared.most + 1):
        given = {option: size}
        with pytest.raises(ValueError, match=f"^{option}={size} is not allowed: .*{bounds}$"):
            holdfast.spark_conf(**given)


def test_bounds_and_defaults_are_written_for_people() -> None:
    assert settings.bounds(options.ALLOWED["max_failure_ratio"]) == "above 0, at most 1"
    assert settings.bounds(options.ALLOWED["name"]) == "1 to 1 KiB"
    assert settings.bounds(options.ALLOWED["global_timeout"]) == "0 or more"
    assert settings.bounds(options.ALLOWED["quarantine_after"]) == "1 or more, or `None`"
    assert settings.bounds(options.ALLOWED["verify_state"]) == "`True`, `False`"
    shown = [
        settings.default(value, unit)
        for value, unit in [
            (None, "time"),
            (32 << 20, "bytes"),
            (5000, "bytes"),
            ((10, timedelta(minutes=10)), ""),
            (timedelta(seconds=5), "time"),
        ]
    ]
    assert shown == ["none", "32 MiB", "5,000 bytes", "(10, 10 minutes)", "5 s"]


def variables(text: str) -> Iterator[str]:
    """Environment variables that a module looks at by name."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(str(name)), *_]
            ):
                if ast.unparse(node.func).startswith("os.environ."):
                    yield name
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[ast.Constant(str(name)), *_]):
                yield name
            case ast.Subscript(slice=ast.Constant(str(name))):
                if ast.unparse(node.value) == "os.environ":
                    yield name
            case ast.Compare(left=ast.Constant(str(name)), comparators=[container]):
                if ast.unparse(container) == "os.environ":
                    yield name


def test_every_environment_variable_that_the_package_reads_is_in_the_reference() -> None:
    read = {name for file in PACKAGE.rglob("*.py") for name in variables(file.read_text())}
    assert {"JAVA_HOME", "SPARK_REMOTE", "SPARK_LOCAL_DIRS"} <= read
    table = settings.DOCUMENT.read_text().partition("## Environment variables")[2]
    first = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
    listed = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    # PySpark reads that one for us.
    assert listed == read | set(KEEP_FREED_MEMORY) | {"SPARK_CONNECT_MODE"}


def test_environment_variables_are_found_however_they_are_read() -> None:
    text = (
        "import os\nos.environ.get('A')\nos.environ['B']\n'C' in os.environ\nos.getenv('D', '')\n"
    )
    assert sorted(variables(text)) == ["A", "B", "C", "D"]


def exceptions_of_python() -> set[str]:
    """Exceptions that users can import, and those that pipelines end with."""
    named = {
        name: getattr(module, name) for module in (holdfast, regions) for name in module.__all__
    }
    named |= vars(base_errors) | {"UnsupportedSparkError": _jars.UnsupportedSparkError}
    return {
        name for name, one in named.items() if isinstance(one, type) and issubclass(one, Exception)
    }


def test_every_exception_is_in_the_reference() -> None:
    written = set(re.findall(r"`(\w+)`", errors.DOCUMENT.read_text()))
    of_python = exceptions_of_python()
    assert {"RegionalQueryError", "FolderLostError", "CorruptSegmentError"} <= of_python
    java = TESTS.parent / "spark_plugin" / "src"
    of_java = {file.stem for file in java.rglob("*Exception.java")}
    assert "FencedException" in of_java
    assert (of_python | of_java) - written == set()


def test_the_reference_shows_messages_of_the_program() -> None:
    program = errors.sources()
    shown = list(errors.messages(errors.DOCUMENT.read_text()))
    assert len(shown) > 35
    assert all(errors.parts(message) for message in shown)
    gone = [part for message in shown for part in errors.parts(message) if part not in program]
    assert gone == []


def test_messages_are_read_from_tables_and_across_lines_of_the_program() -> None:
    text = (
        "| message | cause |\n|---|---|\n| `E`: `a b … c d` | `x` |\n\n| other |\n|---|\n| `y` |\n"
    )
    assert list(errors.messages(text)) == ["a b … c d"]
    assert errors.parts("holdfast: … is in … a, … and more") == ["is in", "and more"]
    joined = errors._CONTINUED.sub("", 'f"one "\n  f"two" "a"\n + "b" one \\\n   two')
    assert joined == 'f"one twoab" one two'


def test_kinds_of_errors_become_the_exceptions_that_the_reference_names() -> None:
    text = errors.DOCUMENT.read_text().partition("| kind |")[2].partition("\n\n")[0]
    rows = {
        cells[0].strip("`"): [re.findall(r"`(\w+)`", cell)[0] for cell in cells[1:3]]
        for cells in cells_of(f"| kind |{text}")
    }
    rust = TESTS.parent / "rust"
    declared = (rust / "core/src/error.rs").read_text().partition("pub enum ErrorKind {")[2]
    assert [*rows] == re.findall(r"^    (\w+),$", declared.partition("}")[0], re.MULTILINE)
    python = re.findall(
        r"ErrorKind::(\w+) => (\w+)::new_err", (rust / "py/src/errors.rs").read_text()
    )
    java = re.findall(
        r"ErrorKind::(\w+) => jni_str!\(\"[\w/]+/(\w+)\"\)", (rust / "jni/src/guard.rs").read_text()
    )
    assert len(python) > 6
    assert len(java) > 4
    for kind, (of_python, of_java) in rows.items():
        assert of_python == dict(python).get(kind, "OSError").removeprefix("Py"), kind
        assert of_java == dict(java).get(kind, "HoldfastException"), kind


def test_the_page_on_tuning_names_settings_and_metrics_that_the_references_have() -> None:
    docs = settings.DOCUMENT.parents[1]
    rows = [row for row in (docs / "tuning.md").read_text().splitlines() if row.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([A-Za-z_.]+)`", row)}
    assert len(named) > 30
    references = "".join(
        (docs / "reference" / page).read_text() for page in ("settings.md", "metrics.md")
    )
    unknown = {name for name in named if not re.search(rf"\b{re.escape(name)}\b", references)}
    assert unknown == {"executorIdleTimeout", "spark.sql.shuffle.partitions"}, "Spark's own"


def test_the_names_that_the_page_on_prometheus_shows_are_those_of_the_rules() -> None:
    rules = monitoring.scrape_config()["metric_relabel_configs"]
    head = "| metric of Spark |"
    page = (monitoring.DOCS / "monitoring.md").read_text()
    rows = list(cells_of(head + page.partition(head)[2].partition("\n\n")[0]))
    assert len(rows) == 4
    for scraped, becomes in rows:
        found = relabelled({"__name__": scraped.strip("`")}, rules)
        name, labels = re.fullmatch(r"`(\w+)\{(.*)\}`", becomes).groups()
        assert found == {"__name__": name, **dict(re.findall(r'(\w+)="(\w+)"', labels))}
    executor = "metrics_delays_3_plugin_io_holdfast_spark_HoldfastPlugin_memoryBytes"
    assert relabelled({"__name__": f"{executor}_Number"}, rules) == {}
    named = {"__name__": "holdfast_memoryBytes", "application": "delays", "executor": "3"}
    assert relabelled({"__name__": f"{executor}_Value"}, rules) == named


def test_a_scrape_with_a_gauge_without_a_number_is_refused() -> None:
    assert [*samples('a_b{type="gauges"} 1.5')] == [({"__name__": "a_b", "type": "gauges"}, 1.5)]
    with pytest.raises(ValueError, match="null"):
        list(samples('a_b{type="gauges"} null'))


def test_names_of_metrics_are_found_in_expressions() -> None:
    text = 'sum by (x) (rate(a_b{c="d"}[5m])) > 0.5 * e and min_over_time(f_g[1h]) > 10'
    assert metric_names(text) == {"a_b", "e", "f_g"}
