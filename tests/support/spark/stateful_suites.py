"""Spark's suites with state: each is run, or left out for a reason."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from support.spark.class_files import ClassFile, parse

#: Names in a suite that opens stores, has an operator with state, or reads state.
_STATE = re.compile(
    "StateStore|streaming/state/|operators/stateful|datasources/v2/state|GroupState|StatefulProcessor"
)
#: A suite of streaming queries has state if a query calls one of these.
_STREAMING = re.compile("MemoryStream|StreamTest")
_STATEFUL_CALL = re.compile(
    "(group|join|limit|distinct|dropDup|flatMapGroups|mapGroups|transformWith).*|agg"
)
#: Shared parts of all suites of queries name stores as well.
_SHARED = frozenset({"StreamTest", "StateStoreMetricsTest", "SharedSparkSession", "QueryTest"})


def _simple(name: str) -> str:
    return name.rpartition("/")[2]


def stateful(classes: Iterable[ClassFile]) -> set[str]:
    """Names of the suites that name state, or from which a superclass or nested class does."""
    by_name = {found.name: found for found in classes}
    nested: dict[str, list[ClassFile]] = defaultdict(list)
    for name, found in by_name.items():
        nested[name.partition("$")[0]].append(found)

    def texts(name: str) -> Iterable[str]:
        if name not in by_name or _simple(name) in _SHARED:
            return
        for found in nested[name]:
            yield from found.texts
        for parent in by_name[name].parents:
            yield from texts(parent)

    def has_state(name: str) -> bool:
        own = set(texts(name))
        calls = any(_STATEFUL_CALL.fullmatch(text) for text in own)
        return any(map(_STATE.search, own)) or (calls and any(map(_STREAMING.search, own)))

    return {
        _simple(name)
        for name, found in by_name.items()
        if name.endswith("Suite") and "$" not in name and not found.abstract and has_state(name)
    }


def read(jar: Path) -> list[ClassFile]:
    """The classes of a jar."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.endswith(".class")]
        return [parse(archive.read(name)) for name in names]


def left_out(text: str) -> dict[str, str]:
    """The reason by suite, in a TOML document with suites by reason."""
    suites = tomllib.loads(text)["suites"]
    return {name: part["why"] for part in suites for name in part["names"]}


def unaccounted(found: set[str], run: Iterable[str], left: Mapping[str, str]) -> list[str]:
    """An error for each suite that is in neither list, or in one by mistake."""
    neither = found.difference(run, left)
    said = [f"{suite}: has to do with state, and is neither run nor left out" for suite in neither]
    said += [
        f"{suite}: is left out, and Spark has no such suite of state" for suite in set(left) - found
    ]
    return sorted(said)
