"""What every step of the build uses: the repository, its version, and the tools it needs."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class BuildError(RuntimeError):
    """The build cannot go on; the message says what is missing and how to get it."""


def say(message: str) -> None:
    """Tell the person who builds what happens; stdout belongs to the PEP 517 frontend."""
    print(f"holdfast_build: {message}", file=sys.stderr, flush=True)


def version() -> str:
    """Return the version of the workspace, the only place where it is written."""
    with (ROOT / "Cargo.toml").open("rb") as file:
        return str(tomllib.load(file)["workspace"]["package"]["version"])


def find_cargo() -> str:
    """Return the path of ``cargo``.

    Raises
    ------
    BuildError
        If there is none on ``PATH``.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise BuildError(
            "cargo was not found on PATH. Building Holdfast from source needs Rust: "
            "https://rustup.rs (a wheel needs neither)."
        )
    return cargo
