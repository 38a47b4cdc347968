"""The notices of the crates that a wheel of Holdfast contains.

They are part of the repository, so a build needs nothing else to pack them. ``make notices`` writes
them after a change of ``Cargo.lock``, and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from holdfast_build.crates import Crate, linked
from holdfast_build.tools import ROOT, BuildError

#: Libraries in a wheel: the JNI library in the plugin jar, and the Python extension.
LIBRARIES = ("holdfast-jni", "holdfast-py")

FILE = ROOT / "THIRD-PARTY-NOTICES.txt"

_LEGAL = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
_APACHE = "Apache-2.0"
_RULE = "=" * 80

_HEAD = """\
Third-party notices of Holdfast

The native libraries of Holdfast (holdfast/_core in the wheel, libholdfast_jni in the plugin jar)
contain the Rust standard library, Copyright (c) The Rust Project Contributors, which is licensed
under MIT OR Apache-2.0 (https://www.rust-lang.org/policies/licenses), and the crates below. The
texts behind the list are those that the crates are published with.
"""

_WITHOUT_TEXT = """\
These crates are published without a text of their licence. They are used under the Apache License,
Version 2.0, whose text is that of Holdfast's own licence.
"""


def notices() -> str:
    """Return the notices of all crates in all libraries."""
    crates = sorted(
        {
            (crate.name, crate.version): crate
            for library in LIBRARIES
            for crate in linked(library)
            if crate.checksum is not None
        }.values()
    )
    texts: dict[str, list[str]] = {}
    without = []
    for crate in crates:
        found = list(legal_texts(crate.folder))
        for text in found:
            texts.setdefault(text, []).append(f"{crate.name} {crate.version}")
        if not found:
            without.append(_without_text(crate))
    parts = [_HEAD, "".join(f"{_line(crate)}\n" for crate in crates)]
    if without:
        parts.append(_WITHOUT_TEXT + "\n" + "".join(f"{line}\n" for line in without))
    parts += [f"{_RULE}\n{_wrapped(names)}\n{_RULE}\n\n{text}" for text, names in texts.items()]
    return "\n".join(parts)


def legal_texts(folder: Path) -> Iterable[str]:
    """Yield licences and notices that a crate is published with, each in one form of blanks."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and _LEGAL.fullmatch(file.name):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def _line(crate: Crate) -> str:
    return f"{crate.name} {crate.version}, {crate.license}, {crate.repository}".rstrip(", ")


def _without_text(crate: Crate) -> str:
    # Old manifests write "MIT/Apache-2.0" for OR.
    if _APACHE not in re.split(r" OR |/", crate.license.strip("()")):
        raise BuildError(
            f"{crate.folder} has no text of its licence, {crate.license}, and Holdfast has none "
            "of its own: add the text to the notices by hand, see holdfast_build/notices.py"
        )
    return f"{crate.name} {crate.version}, by {', '.join(crate.authors) or crate.repository}"


def _wrapped(names: Iterable[str]) -> str:
    """Put names into lines of 80 characters."""
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + len(name) > 78:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{name}"
    return ",\n".join(lines)
