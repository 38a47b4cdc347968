"""Tables of aligned text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

GAP: Final = "  "


def aligned(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[str]
) -> list[str]:
    """Return the lines of a table, the head first, without trailing spaces.

    Parameters
    ----------
    rows : sequence of sequence of str
        A cell for each column, without line breaks.
    words : collection of str
        Columns to align to the left; all others hold figures and go to the right.
    """
    lines = padded(columns, rows, words=words)
    return [GAP.join(cells).rstrip() for cells in lines]


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
