"""Tables of aligned text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

GAP: Final = "  "


def aligned(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[str]
) -> list[str]:
    """Return the lines of a table, the head first, without trailing spaces.

    Cells have no line breaks. Columns in `words` are aligned to the left, figures to the right.
    """
    return [GAP.join(cells).rstrip() for cells in padded(columns, rows, words=words)]


def padded(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[str]
) -> list[list[str]]:
    """Return the cells of `aligned`, each as wide as its column."""
    lines = [columns, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        [
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, width, cell in zip(columns, widths, line, strict=True)
        ]
        for line in lines
    ]
