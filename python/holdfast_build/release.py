"""Builds the published files: wheels for x86-64 and aarch64, and the source distribution.

Zig links for both processors against the glibc of manylinux2014, unlike this machine's.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import maturin

from holdfast_build.crates import TARGETS
from holdfast_build.plugin import build_plugin_jars
from holdfast_build.tools import BuildError, run, say

#: The glibc of manylinux2014 (PEP 599). Every Linux with Python 3.11 has a newer one.
GLIBC = (2, 17)

_SYMBOL_VERSION = re.compile(rb"\bGLIBC_(\d+)\.(\d+)")


def build_release(into: Path) -> list[Path]:
    """Build a wheel for every platform of `TARGETS`, and the source distribution, into a folder."""
    into.mkdir(parents=True, exist_ok=True)
    built = [into / _wheel(target, into) for target in TARGETS]
    return [*built, into / str(maturin.build_sdist(str(into)))]


def require_glibc(wheel: Path) -> None:
    """Check that no library in a wheel, or in a jar in it, needs a newer glibc than `GLIBC`."""
    with zipfile.ZipFile(wheel) as archive:
        needed = dict(_needed(archive))
    if not needed:
        raise BuildError(f"{wheel.name} holds no library.")
    for name, version in needed.items():
        if version > GLIBC:
            raise BuildError(
                f"{name} in {wheel.name} needs glibc {version[0]}.{version[1]}, and the wheel's "
                f"tag promises {GLIBC[0]}.{GLIBC[1]}."
            )


def _needed(archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in archive.namelist():
        if name.endswith(".so"):
            found = _SYMBOL_VERSION.findall(archive.read(name))
            yield name, max(((int(major), int(minor)) for major, minor in found), default=(0, 0))
        elif name.endswith(".jar"):
            with zipfile.ZipFile(io.BytesIO(archive.read(name))) as jar:
                yield from _needed(jar)


def _wheel(target: str, into: Path) -> str:
    glibc = f"{GLIBC[0]}.{GLIBC[1]}"
    build_plugin_jars(f"{target}.{glibc}")
    say(f"maturin build for {target}, glibc {glibc}")
    with tempfile.TemporaryDirectory(prefix="holdfast-wheel-") as folder:
        run(
            f"maturin build for {target}",
            *(sys.executable, "-m", "maturin", "build", "--locked", "--release", "--strip"),
            *("--zig", "--target", target, "--out", folder),
            *("--compatibility", f"manylinux_{glibc.replace('.', '_')}"),
            shown=True,
        )
        (wheel,) = Path(folder).iterdir()
        require_glibc(wheel)
        shutil.copy2(wheel, into)
    return wheel.name
