"""The locked crates are what deny.toml allows. cargo-deny, which CI runs, reads the same file."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

_CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression: str, allowed: Collection[str]) -> bool:
    """Evaluate an SPDX expression: AND binds more tightly than OR, and old crates write ``/``."""
    licences = re.findall(r"[()]|[\w.+-]+(?: WITH [\w.+-]+)?", expression.replace("/", " OR "))
    words = {"AND": "and", "OR": "or", "(": "(", ")": ")"}
    terms = [words.get(part) or str(part in allowed) for part in licences]
    return bool(eval(" ".join(terms), {"__builtins__": {}}))  # noqa: S307 - words made above


def trees(roots: Collection[str], packages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of some crates and of all that they need."""
    needs = {package["id"]: package["needs"] for package in packages}
    due = [package["id"] for package in packages if name_of(package) in roots]
    found: set[str] = set()
    while due:
        if (package := due.pop()) not in found:
            found.add(package)
            due += needs[package]
    return found


def name_of(package: Mapping[str, Any]) -> str:
    return f"{package['name']}@{package['version']}"


def refused(packages: Sequence[Mapping[str, Any]], rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the rules of ``deny.toml`` say against packages of ``cargo metadata``."""
    banned = {ban["crate"] for ban in rules["bans"]["deny"]}
    skipped = {skip["crate"] for skip in rules["bans"]["skip"]}
    roots = {skip["crate"] for skip in rules["bans"]["skip-tree"]}
    for package in packages:
        name = name_of(package)
        if package["name"] in banned:
            yield f"{name} is banned"
        if not is_allowed(package["license"] or "none", rules["licenses"]["allow"]):
            yield f"{name} has the licence {package['license']}"
        if package["source"] not in (None, _CRATES_IO):
            yield f"{name} comes from {package['source']}"
    names = {name_of(package) for package in packages}
    in_trees = trees(roots, packages)
    counted = Counter(
        package["name"]
        for package in packages
        if package["id"] not in in_trees and name_of(package) not in skipped
    )
    for crate, count in counted.items():
        if count > 1:
            yield f"{crate} is there in {count} versions"
    for skip in sorted((skipped | roots) - names):
        yield f"{skip} is skipped, and not there"


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    return tomllib.loads((ROOT / "deny.toml").read_text())


def test_the_locked_crates_are_allowed(rules: dict[str, Any]) -> None:
    packages = {}
    for target in rules["graph"]["targets"]:
        done = subprocess.run(
            [
                *("cargo", "metadata", "--locked", "--all-features"),
                *("--format-version", "1", "--filter-platform", target),
            ],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        found = json.loads(done.stdout)
        needs = {node["id"]: node["dependencies"] for node in found["resolve"]["nodes"]}
        for package in found["packages"]:
            packages[package["id"]] = package | {"needs": needs[package["id"]]}
    assert len(packages) > 50
    assert list(refused([*packages.values()], rules)) == []


def crate(name: str, version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    fields = {"license": "MIT", "source": _CRATES_IO, "needs": []} | fields
    return {"id": f"{name}@{version}", "name": name, "version": version} | fields


def test_each_rule_refuses_what_it_is_there_for(rules: dict[str, Any]) -> None:
    skipped = [skip["crate"] for key in ("skip", "skip-tree") for skip in rules["bans"][key]]
    skips = [crate(*name.split("@")) for name in skipped]
    assert list(refused([*skips, crate("fine")], rules)) == []
    for packages, problem in (
        ([crate("tokio")], "tokio@1.0.0 is banned"),
        ([crate("a", license="GPL-3.0")], "a@1.0.0 has the licence GPL-3.0"),
        ([crate("a", source="git+https://x")], "a@1.0.0 comes from git+https://x"),
        ([crate("a"), crate("a", version="2.0.0")], "a is there in 2 versions"),
    ):
        assert list(refused([*skips, *packages], rules)) == [problem]
    assert list(refused([], rules)) == [
        f"{name} is skipped, and not there" for name in sorted(skipped)
    ]


def test_only_what_a_skipped_crate_needs_may_be_there_twice(rules: dict[str, Any]) -> None:
    bans = {"deny": [], "skip": [], "skip-tree": [{"crate": "top@1.0.0"}]}
    top = [crate("top", needs=["mid@1.0.0"]), crate("mid", needs=["a@1.0.0"]), crate("a")]
    assert list(refused([*top, crate("a", "2.0.0")], rules | {"bans": bans})) == []
    others = [crate("a", "2.0.0"), crate("a", "3.0.0")]
    problem = "a is there in 2 versions"
    assert list(refused([*top, *others], rules | {"bans": bans})) == [problem]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT OR GPL-3.0", True),
        ("MIT/GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", True),
        ("GPL-3.0 OR MIT AND GPL-3.0", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0 WITH LLVM-exception", False),
        ("MIT OR Apache-2.0 AND GPL-3.0", True),
    ],
)
def test_licences_are_combined_as_spdx_combines_them(
    rules: dict[str, Any], expression: str, allowed: bool
) -> None:
    assert is_allowed(expression, rules["licenses"]["allow"]) is allowed
