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
    columns : sequence of str
        What the head says.
    rows : sequence of sequence of str
        A cell for each column, without line breaks.
    words : collection of str
        Columns to align to the left; figures go to the right.
    """
    lines = [columns, *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    return [
        GAP.join(
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, width, cell in zip(columns, widths, line, strict=True)
        ).rstrip()
        for line in lines
    ]
