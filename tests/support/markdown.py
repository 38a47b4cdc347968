"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int | None = None
) -> Iterator[str]:
    """Lines of a table, of which the columns from one on hold numbers."""
    left = len(head) if numbers_from is None else numbers_from
    yield _row(head)
    yield f"|{'---|' * left}{'---:|' * (len(head) - left)}"
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
