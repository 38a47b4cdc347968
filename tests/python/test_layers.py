"""The folders of the package import each other in one direction."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "holdfast"

#: Folders, and modules that lie in none, from the lowest to the highest: each may import those
#: before it. ``regions`` and ``__init__`` are what users import; they import lazily what is above.
ORDER = (
    "_checks",
    "_core",
    "_native",
    "_options",
    "_exact",
    "_jars",
    "_sessions",
    "_passes",
    "_spark",
    "files",
    "queries",
    "regions/base",
    "regions/files",
    "regions/coordinator",
    "regions/graph",
    "regions/sinks",
    "regions/splits",
    "regions/state/arrays",
    "regions/state/tables",
    "regions/state/kinds",
    "regions/state",
    "regions/protocol",
    "regions/task",
    "regions/task/region",
    "regions/task/partition",
    "regions/checkpoint",
    "regions/driver",
    "regions/runners",
    "regions/runners/spark",
    "regions/api",
    "regions",
    "reading",
    "__init__",
    "cli/output",
    "cli",
    "__main__",
)


def place(module: str) -> str:
    """Return where a module is, ``regions/base/clock``: its folder, or itself if it has none."""
    return module.rpartition("/")[0] or module


def imported(text: str, modules: frozenset[str], package: str) -> Iterator[str]:
    """Yield the modules of a package that a module imports, anywhere in its text.

    Parameters
    ----------
    text
        The module's source.
    modules
        All modules of the package, as paths without suffix; ``a/__init__`` is the folder a itself.
    package
        Name of the package.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named: list[tuple[str, ...]] = [(alias.name,) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}"
            # What is imported from a folder may be a module of it.
            named = [(f"{node.module}.{alias.name}", f"{node.module}") for alias in node.names]
        else:
            continue
        for names in named:
            paths = [name.split(".") for name in names]
            if paths[0][0] != package:
                continue
            inner = ["/".join(path[1:]) for path in paths]
            candidates = [
                module for path in inner for module in (path, f"{path}/__init__".lstrip("/"))
            ]
            found = [module for module in candidates if module in modules]
            assert found, f"{names[0]} is no module of the package"
            yield found[0]


def graph(sources: Mapping[str, str], package: str) -> dict[str, set[str]]:
    """Return which places each place imports, of the sources of a package by their paths."""
    modules = frozenset(sources)
    found: dict[str, set[str]] = {place(module): set() for module in modules}
    for module, text in sources.items():
        found[place(module)] |= {place(other) for other in imported(text, modules, package)}
    return {importer: others - {importer} for importer, others in found.items()}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the places of a circle, the first of them again at the end; empty without one."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def upward(imports: Mapping[str, set[str]], order: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the imports of a place that is not before its importer."""
    return sorted(
        (importer, other)
        for importer, others in imports.items()
        for other in others
        if order.index(other) >= order.index(importer)
    )


def sources_of(folder: Path) -> dict[str, str]:
    files = [file for suffix in (".py", ".pyi") for file in folder.rglob(f"*{suffix}")]
    return {str(file.relative_to(folder).with_suffix("")): file.read_text() for file in files}


def test_the_folders_of_the_package_import_what_is_below_them_and_nothing_else() -> None:
    sources = sources_of(PACKAGE)
    assert len(sources) > 100
    imports = graph(sources, "holdfast")
    assert sorted(imports) == sorted(ORDER)
    assert circle(imports) == []
    assert upward(imports, ORDER) == []


PLUGIN = Path(__file__).resolve().parents[2] / "spark_plugin" / "src"

#: Packages of the plugin, from the lowest to the highest. Classes above them, in none of them, are
#: what Spark and Python load, exceptions and the core's methods.
JAVA_ORDER = (
    *("storage", "merged", "minor", "plan", "sparklog", "rpc", "staging", "copies"),
    *("executor", "store"),
    *("isolation.task", "isolation.driver", "isolation.show", "isolation.plan"),
    *("badrows", "ui", "moves", "driver"),
)
JAVA_NAME = re.compile(r"\bio\.holdfast\.spark\.((?:[a-z]\w*\.)*[a-z]\w*)\.[A-Z]")


def java_graph(folder: Path) -> dict[str, set[str]]:
    """Return which packages each package of the plugin names, for all minors of Spark."""
    found: dict[str, set[str]] = {}
    for file in folder.glob("*/java/io/holdfast/spark/*/**/*.java"):
        package = ".".join(file.parent.relative_to(folder).parts[5:])
        found.setdefault(package, set()).update(JAVA_NAME.findall(file.read_text()))
        found[package].discard(package)
    return found


def test_the_packages_of_the_plugin_name_what_is_below_them_and_nothing_else() -> None:
    names = java_graph(PLUGIN)
    assert sorted(names) == sorted(JAVA_ORDER)
    assert circle(names) == []
    assert upward(names, JAVA_ORDER) == []


def test_a_name_of_java_upward_is_found(tmp_path: Path) -> None:
    for package, text in {
        "store": "package io.holdfast.spark.store;\nclass A { io.holdfast.spark.moves.B b; }\n",
        "moves": "package io.holdfast.spark.moves;\nimport io.holdfast.spark.store.A;\n",
    }.items():
        file = tmp_path / f"main/java/io/holdfast/spark/{package}/A.java"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    names = java_graph(tmp_path)
    assert set(circle(names)) == {"moves", "store"}
    assert upward(names, JAVA_ORDER) == [("store", "moves")]


#: What is one thing on a file system that is mounted, and another where only the JVM reaches it.
TWINS = re.compile(r"Mounted\w+|Reached\w+|HadoopPath|FolderLock|FolderLease|AnyPath|Hold")


def asked_for(text: str) -> list[str]:
    """Return the classes that a module asks for with ``isinstance`` or ``match``."""
    asked: list[ast.expr] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "isinstance",
            "issubclass",
        ):
            asked.append(node.args[1])
        elif isinstance(node, ast.MatchClass):
            asked.append(node.cls)
    names = (each for expression in asked for each in ast.walk(expression))
    return [found for each in names if (found := getattr(each, "id", getattr(each, "attr", "")))]


def test_only_the_folder_of_files_asks_who_reaches_a_file() -> None:
    found = {
        (module, name)
        for module, text in sources_of(PACKAGE).items()
        for name in asked_for(text)
        if TWINS.fullmatch(name)
    }
    assert {place(module) for module, _ in found} == {"files", "regions/files"}


@pytest.mark.parametrize(
    "line",
    [
        "x = isinstance(path, HadoopPath)",
        "if not isinstance(path, (str, reached.HadoopPath)): pass",
        "match path:\n    case HadoopPath(): pass",
    ],
)
def test_a_question_who_reaches_a_file_is_found(line: str) -> None:
    assert "HadoopPath" in asked_for(line)


@pytest.fixture
def small() -> dict[str, str]:
    return {
        "__init__": "def f() -> None:\n    from small.high import one\n",
        "alone": "import os\n",
        "low/__init__": "",
        "low/one": "from small import alone\nfrom elsewhere import high\n",
        "low/two": "import small.low.one\nfrom small.low import one\n",
        "high/__init__": "from small.low.one import A\n",
        "high/one": "from small.low import B\nfrom small.high import C\n",
    }


SMALL_ORDER = ("alone", "low", "high", "__init__")


def test_imports_are_of_folders_wherever_they_stand(small: dict[str, str]) -> None:
    imports = graph(small, "small")
    assert imports == {
        "__init__": {"high"},
        "alone": set(),
        "low": {"alone"},
        "high": {"low"},
    }
    assert (circle(imports), upward(imports, SMALL_ORDER)) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        "from small.high.one import D",
        "from small.high import one",
        "import small.high",
        "def f() -> None:\n    import small.high.one",
        "if TYPE_CHECKING:\n    from small.high.one import D",
    ],
)
def test_an_import_upward_that_closes_a_circle_is_found(small: dict[str, str], line: str) -> None:
    imports = graph(small | {"low/two": line}, "small")
    found = circle(imports)
    assert found[0] == found[-1]
    assert set(found) == {"low", "high"}
    assert upward(imports, SMALL_ORDER) == [("low", "high")]


def test_an_import_upward_is_found_where_it_closes_no_circle(small: dict[str, str]) -> None:
    imports = graph(
        small | {"high/one": "", "high/__init__": "", "low/two": "import small.high"}, "small"
    )
    assert circle(imports) == []
    assert upward(imports, SMALL_ORDER) == [("low", "high")]


@pytest.mark.parametrize(
    ("line", "error"),
    [("from .one import D", "a relative import of one"), ("import small.gone", "small.gone is no")],
)
def test_an_import_that_cannot_be_placed_is_refused(
    small: dict[str, str], line: str, error: str
) -> None:
    with pytest.raises(AssertionError, match=error):
        graph(small | {"low/two": line}, "small")
