"""The structure of the product: circles of files, and the types with the most fields.

``python -m support.structure`` prints both, and fails if there is a circle, or a type with more
than `MOST_FIELDS`. In a circle of files, each leads to each other by the names in it: modules of
Python, classes of Java in one source file each, and modules of Rust. Names within text and
comments, and within Rust's tests, do not count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.regions.base.tables import aligned

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
JAVA = ROOT / "spark_plugin" / "src" / "main" / "java"
RUST = [ROOT / "rust" / crate / "src" for crate in ("core", "wire", "jni", "py", "sim")]

#: Number of printed types.
SHOWN = 5

MOST_FIELDS = 15

Graph = dict[str, set[str]]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of names that lead to each other, sorted (Tarjan)."""
    place: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        place[name] = low[name] = len(place)
        open_.append(name)
        for other in graph[name] & graph.keys():
            if other not in place:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in open_:
                low[name] = min(low[name], place[other])
        if low[name] == place[name]:
            group = open_[open_.index(name) :]
            del open_[-len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in place:
            visit(name)
    return sorted(found)


def python_graph(package: Path) -> Graph:
    """Return the modules that a module imports when it is loaded."""
    files = {_dotted(file, package.parent): file for file in sorted(package.rglob("*.py"))}
    graph: Graph = {}
    for name, file in files.items():
        graph[name] = set()
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                graph[name] |= inner or {node.module} & files.keys()
        graph[name].discard(name)
    return graph


def _dotted(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def java_graph(folder: Path) -> Graph:
    """Return the classes that a class names, by their files."""
    texts = {file.stem: _without_comments(file.read_text()) for file in folder.rglob("*.java")}
    texts.pop("package-info", None)
    return {
        name: set(re.findall(r"\b[A-Z]\w*", text)) & texts.keys() - {name}
        for name, text in texts.items()
    }


def _without_comments(text: str) -> str:
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text, flags=re.DOTALL)


def rust_graph(source: Path) -> Graph:
    """Return the modules that a module of a crate uses."""
    files: dict[tuple[str, ...], str] = {}
    for file in sorted(source.rglob("*.rs")):
        parts = file.relative_to(source).with_suffix("").parts
        if parts[-1].endswith("tests") or "tests" in parts:
            continue
        name = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        files[name] = _without_comments(file.read_text()).split("#[cfg(test)]\nmod tests {")[0]
    graph: Graph = {}
    for name, text in files.items():
        used = {_module(name, path, files) for path in _uses(text)}
        graph["::".join(name)] = {"::".join(one) for one in used - {name, ()}}
    return graph


def _uses(text: str) -> Iterator[list[str]]:
    """Yield the paths of the ``use`` lines that begin in the crate, without their braces."""
    for use in re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", text):
        for path in _unfolded(re.sub(r"\s+", "", re.sub(r"\bas \w+", "", use))):
            yield path.split("::")


def _unfolded(path: str) -> Iterator[str]:
    """Yield the paths of a path such as ``a::{b, c::d}``."""
    if not path.endswith("}"):
        yield path
        return
    prefix, inner = path[:-1].split("{", 1)
    depth, begin = 0, 0
    for place, letter in enumerate(f"{inner},"):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if part := inner[begin:place]:
                yield from _unfolded(prefix + part)
            begin = place + 1


def _module(
    name: tuple[str, ...], path: list[str], files: Mapping[tuple[str, ...], str]
) -> tuple[str, ...]:
    """Return the module with the item that a path of a module leads to."""
    at = list(name)
    while path and path[0] in ("crate", "super", "self"):
        at = [] if path[0] == "crate" else at[:-1] if path[0] == "super" else at
        path = path[1:]
    found = (*at, *path)
    while found and found not in files:
        found = found[:-1]
    return found


def fields() -> list[tuple[int, str, str]]:
    """Return number of fields, name and file of each type, the largest first."""
    found = [
        one for file in sorted((PYTHON / "holdfast").rglob("*.py")) for one in _of_python(file)
    ]
    words = "(?:(?:public|private|protected|static|final|volatile|transient) )*"
    java = rf"^  (?! ){words}[\w<>\[\], .?]+ \w+(?: =[^;]*)?;"
    rust = r"^(?:pub(?:\([^)]*\))? )?struct (\w+)[^;{]*\{\n(.*?)^\}"
    for file in sorted(JAVA.rglob("*.java")):
        text = _without_comments(file.read_text())
        # A constant is not state.
        own = [line for line in re.findall(java, text, re.MULTILINE) if " static " not in line]
        found.append((len(own), file.stem, _shown(file)))
    for folder in RUST:
        for file in sorted(folder.rglob("*.rs")):
            text = _without_comments(file.read_text())
            for name, body in re.findall(rust, text, re.MULTILINE | re.DOTALL):
                own = re.findall(r"^    (?:pub(?:\([^)]*\))? )?\w+:", body, re.MULTILINE)
                found.append((len(own), name, _shown(file)))
    return sorted(found, key=lambda one: (-one[0], one[1]))


def _of_python(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the classes of a module with their attributes; data classes are no state."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            own = {
                target.attr
                for part in ast.walk(node)
                if isinstance(part, (ast.Assign, ast.AnnAssign))
                for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
            yield len(own), node.name, _shown(file)


def _shown(file: Path) -> str:
    return str(file.relative_to(ROOT))


def found_circles() -> list[list[str]]:
    """Return the circles of the product."""
    graphs = [python_graph(PYTHON / "holdfast"), java_graph(JAVA), *map(rust_graph, RUST)]
    return [circle for graph in graphs for circle in circles(graph)]


def main() -> int:
    """Print the structure; returns 1 if there is a circle, or a type with too many fields."""
    found = found_circles()
    print(f"{len(found)} circles of files")
    for circle in found:
        print(f"  {', '.join(circle)}")
    largest = fields()[:SHOWN]
    rows = [[str(number), name, file] for number, name, file in largest]
    print("\n".join(aligned(["fields", "type", "file"], rows, words=["type", "file"])))
    return int(bool(found) or largest[0][0] > MOST_FIELDS)


if __name__ == "__main__":
    sys.exit(main())
