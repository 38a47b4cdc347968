"""Tables of Markdown, and documents with made tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield _row(head)
    yield f"|{'---|' * len(head)}"
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def with_tables(text: str, tables: Mapping[str, Iterable[str]]) -> str:
    """A document with its tables made again, each between a comment with its name and an end.

    Raises a ValueError if the place of a table is missing, or there twice.
    """
    for name, made in tables.items():
        place = re.compile(rf"(<!-- {name}, .*? -->\n).*?(<!-- end -->)", re.DOTALL)
        lines = "\n".join(made).strip()
        parts = place.split(text)
        if len(parts) != 4:
            raise ValueError(f"{len(parts) // 3} places for the table of {name}, expected one")
        text = f"{parts[0]}{parts[1]}\n{lines}\n\n{parts[2]}{parts[3]}"
    return text


def cells_of(text: str) -> Iterator[list[str]]:
    """The cells of each row of the tables of a document, heads left out."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for row, below in zip(rows, [*rows[1:], ""], strict=True):
        if not row.startswith("|---") and not below.startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
