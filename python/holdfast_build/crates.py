"""The crates that Cargo links into a library of Holdfast."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_build.tools import ROOT, find_cargo, run

#: Platforms with wheels. Crates that only other platforms need are left out.
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


@dataclass(frozen=True, order=True)
class Crate:
    """A version of a crate.

    Attributes
    ----------
    license : str
        SPDX expression of its manifest.
    folder : Path
        Its sources, in Cargo's cache or in this repository.
    checksum : str or None
        SHA-256 of its package in hexadecimal digits; None for a crate of this repository.
    needs : tuple of str
        `identifier` of each crate of the same library that it calls.
    """

    name: str
    version: str
    license: str
    repository: str
    authors: tuple[str, ...]
    folder: Path
    checksum: str | None
    needs: tuple[str, ...]

    @property
    def identifier(self) -> str:
        """Package URL, which names it in an SBOM."""
        return f"pkg:cargo/{self.name}@{self.version}"


def linked(package: str, *, targets: Sequence[str] = TARGETS) -> tuple[Crate, ...]:
    """Return the crates that are compiled into a library, with its own, by name and version.

    Build scripts and procedural macros are left out: they ran when the library was built. `package`
    is the library's, and `targets` are platforms, as Rust names them.
    """
    edges = _tree(package, targets)
    described = {
        (found["name"], found["version"]): found for found in _metadata(targets)["packages"]
    }
    checksums = _checksums()
    return tuple(
        sorted(_crate(described[key], checksums.get(key), edges[key]) for key in sorted(edges))
    )


def host() -> str:
    """Return the platform that Cargo builds for here, as Rust names it."""
    (found,) = re.findall(r"^host: (\S+)$", _cargo("--version", "--verbose"), re.MULTILINE)
    return str(found)


def _crate(
    described: Mapping[str, Any], checksum: str | None, needs: Iterable[tuple[str, str]]
) -> Crate:
    return Crate(
        name=described["name"],
        version=described["version"],
        license=described["license"] or "",
        repository=described["repository"] or "",
        authors=tuple(described["authors"]),
        folder=Path(described["manifest_path"]).parent,
        checksum=checksum,
        needs=tuple(sorted(f"pkg:cargo/{name}@{version}" for name, version in needs)),
    )


def _tree(package: str, targets: Iterable[str]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return every linked crate with the crates it needs, from ``cargo tree``."""
    lines = _cargo(
        *("tree", "--package", package, "--edges", "normal,no-proc-macro", "--no-dedupe"),
        *("--prefix", "depth", "--format", " {p}", "--locked"),
        *(part for target in targets for part in ("--target", target)),
    )
    edges: dict[tuple[str, str], set[tuple[str, str]]] = {}
    path: list[tuple[str, str]] = []
    for line in filter(None, lines.splitlines()):
        # "2 libc v0.2.190", and for crates of this repository their folder at the end.
        depth, name, version, *_ = line.split()
        key = (name, version.removeprefix("v"))
        del path[int(depth) :]
        if path:
            edges[path[-1]].add(key)
        edges.setdefault(key, set())
        path.append(key)
    return edges


def _metadata(targets: Iterable[str]) -> Mapping[str, Any]:
    # Without a filter, Cargo would fetch the crates of every platform there is.
    filters = (part for target in targets for part in ("--filter-platform", target))
    text = _cargo("metadata", "--format-version", "1", "--locked", *filters)
    found: Mapping[str, Any] = json.loads(text)
    return found


def _checksums() -> dict[tuple[str, str], str]:
    with (ROOT / "Cargo.lock").open("rb") as file:
        packages = tomllib.load(file)["package"]
    return {
        (package["name"], package["version"]): package["checksum"]
        for package in packages
        if "checksum" in package
    }


def _cargo(*arguments: str) -> str:
    return run(f"cargo {arguments[0]}", find_cargo(), *arguments)
