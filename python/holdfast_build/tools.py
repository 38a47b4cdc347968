"""The repository, its version, and tools for every step of the build."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class BuildError(RuntimeError):
    """The build cannot continue; the message names the missing part and how to get it."""


def say(message: str) -> None:
    """Print to stderr: stdout belongs to the PEP 517 frontend."""
    print(f"holdfast_build: {message}", file=sys.stderr, flush=True)


def run(what: str, *command: str, shown: bool = False, cwd: Path | None = ROOT) -> str:
    """Run a program, or raise a BuildError, in which its name is `what`.

    If it is `shown`, its output goes to stderr, for the person who builds. Otherwise it is
    returned. `cwd` is its working directory, None for this process's.
    """
    stdout = sys.stderr if shown else subprocess.PIPE
    done = subprocess.run(command, cwd=cwd, stdout=stdout, check=False, text=True)
    if done.returncode != 0:
        raise BuildError(f"{what} failed with status {done.returncode}.")
    return done.stdout or ""


def version() -> str:
    """Return the version of the workspace, the only place where it is written."""
    with (ROOT / "Cargo.toml").open("rb") as file:
        return str(tomllib.load(file)["workspace"]["package"]["version"])


def find_cargo() -> str:
    """Return the path of ``cargo``."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise BuildError(
            "cargo was not found on PATH. Building Holdfast from source needs Rust: "
            "https://rustup.rs (a wheel needs neither)."
        )
    return cargo
