"""The programs of the recipes, as the documents show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import TESTS
from support.spark.readme import blocks

DOCUMENTS = TESTS.parent / "docs" / "regional"
PAGES = ("recipes", "recipes-joins")


def page(name: str) -> Path:
    return DOCUMENTS / f"{name}.md"


def programs(name: str) -> dict[str, Any]:
    """Run the programs of a page in the current folder; return what they define."""
    names: dict[str, Any] = {"__name__": name}
    for block in blocks(page(name)):
        if block.language == "python":
            exec(block.text, names)  # noqa: S102
    return names
