"""The programs in the document of recipes."""

from __future__ import annotations

from typing import Any

from support import TESTS
from support.spark.readme import blocks

PAGE = TESTS.parent / "docs" / "regional" / "recipes.md"


def programs() -> dict[str, Any]:
    """Run the programs of the page in the current folder; return their names."""
    names: dict[str, Any] = {"__name__": "recipes"}
    for block in blocks(PAGE):
        if block.language == "python":
            exec(block.text, names)  # noqa: S102
    return names
