"""Tables on stdout and progress on stderr.

With rich in a terminal where it is installed, else plain text, which programs can read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from holdfast._core import CheckpointMetadata
from holdfast.cli.pages import tables
from holdfast.cli.pages.tables import Cell, Table
from holdfast.regions.base.printable import printable
from holdfast.regions.base.tables import aligned
from holdfast.regions.checkpoint.query_folder import QueryCheckpoint
from holdfast.regions.checkpoint.query_state import BatchVerdict
from holdfast.regions.checkpoint.verify import Verdict

if TYPE_CHECKING:
    from rich.progress import Progress


def print_beginning(metadata: CheckpointMetadata) -> None:
    """Say on stderr where a pipeline began, and whether it still needs that."""
    if (said := tables.beginning(metadata)) is not None:
        print(f"holdfast: {said}", file=sys.stderr)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print one line per checkpoint, then one per thing that cannot be read."""
    _print_verdicts(
        ["id", "verdict", "readable regions", "regions"],
        [(one, one.checkpoint, one.readable_regions, one.regions) for one in verdicts],
        of="checkpoint",
    )


def _print_verdicts(
    columns: Sequence[str],
    rows: Sequence[tuple[Verdict | BatchVerdict, int, int, int]],
    *,
    of: str,
) -> None:
    cells: list[list[Cell]] = [
        [
            number,
            "damaged" if verdict.damage else "ok",
            *(readable, parts, verdict.readable_segments, verdict.segments),
        ]
        for verdict, number, readable, parts in rows
    ]
    columns = [*columns, "readable segments", "segments"]
    print_table(Table(columns, cells, frozenset({"verdict"})))
    for verdict, number, _, _ in rows:
        for damage in verdict.damage:
            print(f"{of} {number}: {printable(damage.message)}")


def print_query(query: QueryCheckpoint) -> None:
    """Print what the checkpoint of an ordinary query says, and on stderr what it is."""
    print(f"holdfast: {printable(query.describe())}", file=sys.stderr)
    print_table(tables.of_query(query))


def print_batch_verdicts(verdicts: Sequence[BatchVerdict]) -> None:
    """Print one line per batch of a query, then one per thing that cannot be read."""
    _print_verdicts(
        ["batch", "verdict", "readable partitions", "partitions"],
        [(one, one.batch, one.readable_partitions, one.partitions) for one in verdicts],
        of="batch",
    )


class Bars(Protocol):
    """Shows how far a verification is."""

    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        """Begin with a checkpoint; the result takes how much of it is done, and of how much."""


def print_findings(findings: Iterable[tuple[str, str, str, str]]) -> None:
    """Print a line per check with its name, outcome and what it found, and what to do below."""
    for check, outcome, found, remedy in findings:
        print(f"{outcome:<8} {check:<18} {printable(found)}")
        if remedy:
            print(f"{'':<27} {printable(remedy)}")


@contextmanager
def progress() -> Iterator[Bars]:
    """Show progress on stderr until the end of the block."""
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _PlainBars()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield _RichBars(bars)


class _PlainBars:
    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        print(f"holdfast: verifying {of} {id}", file=sys.stderr)
        return lambda done, total: None


class _RichBars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    def start(self, id: int, *, of: str = "checkpoint") -> Callable[[int, int], None]:
        task = self._bars.add_task(f"{of} {id}", total=None)
        return lambda done, total: self._bars.update(task, completed=done, total=total)


def print_table(table: Table) -> None:
    """Print words to the left and figures to the right."""
    rows = [["-" if cell is None else str(cell) for cell in row] for row in table.rows]
    if sys.stdout.isatty() and find_spec("rich"):
        _print_rich(table.columns, rows, table.words)
        return
    for line in aligned(table.columns, rows, words=table.words):
        print(line)


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # Words wrap where the terminal is narrow; a figure is never cut.
        table.add_column(
            column,
            justify="left" if column in words else "right",
            no_wrap=column not in words,
        )
    for row in rows:
        # Names from data are no markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
