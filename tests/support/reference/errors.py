"""The content of docs/reference/errors.md, and the sources of the messages that it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from support import TESTS

DOCUMENT = TESTS.parent / "docs" / "reference" / "errors.md"

#: The sign for a name, a path or a number in a message of the page.
_VARIES = "…"

_SOURCES = (
    ("python/holdfast", "*.py"),
    ("spark_plugin/src", "*.java"),
    ("rust/core/src", "*.rs"),
    ("rust/jni/src", "*.rs"),
)
#: The break of a text between lines: Rust's backslash, adjacent literals, Java's plus.
_CONTINUED = re.compile(r"\\\n\s*|\"\s*(?:\+\s*)?[frb]?\"")


def sources() -> str:
    """The texts of the program, with literals of several lines joined."""
    files = (file for folder, name in _SOURCES for file in (TESTS.parent / folder).rglob(name))
    return "\n".join(_CONTINUED.sub("", file.read_text()) for file in sorted(files))


def messages(text: str) -> Iterator[str]:
    """The messages in tables with ``message`` in the head."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = table.splitlines()
        if "message" in head.split("|")[1]:
            for row in rows:
                yield re.findall(r"`([^`]*)`", row.split("|")[1])[-1]


def parts(message: str) -> list[str]:
    """Return the parts of a message that do not vary."""
    said = message.removeprefix("holdfast: ")
    return [part for part in map(str.strip, said.split(_VARIES)) if len(part) > 2]
