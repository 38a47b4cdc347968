"""Tables on stdout and progress on stderr.

With rich in a terminal where it is installed, else plain text, which programs can read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Final

from holdfast._core import CheckpointMetadata
from holdfast.cli.output import documents
from holdfast.cli.output.tables import Table
from holdfast.files.printable import printable
from holdfast.regions.base.tables import GAP, aligned, padded
from holdfast.regions.files.folders import (
    RESTORE_MODE_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_FROM_PROPERTY,
)

#: Takes the part that is done, and the whole.
Progress = Callable[[int, int], None]

#: Bound on the lines of a section, for readers in a terminal.
MAX_LINES: Final = 50

#: Colours of words that are whole cells, and of signs.
_COLOURS: Final = {
    **dict.fromkeys(("global", "healthy", "finished", "ok", "G"), "green"),
    **dict.fromkeys(("regional", "fell back", "r"), "yellow"),
    **dict.fromkeys(("aborted", "damaged", "missing", "quarantined", "x"), "red"),
    "#": "cyan",
}


def print_either(
    document: dict[str, Any], table: Callable[[Mapping[str, Any]], Table], *, json: bool
) -> None:
    """Print a document as JSON, or as a table."""
    if json:
        documents.print_document(document)
    else:
        print_table(table(document))


def print_beginning(metadata: CheckpointMetadata) -> None:
    """Print on stderr the checkpoint that a pipeline began with, and whether it is needed."""
    path = metadata.properties.get(RESTORED_FROM_PROPERTY)
    if path is None:
        return
    id = printable(metadata.properties.get(RESTORED_CHECKPOINT_PROPERTY, "?"))
    fate = (
        "which it has claimed and deletes"
        if metadata.properties.get(RESTORE_MODE_PROPERTY) == "claim"
        else "which it copied and does not need: that folder may be deleted"
    )
    said = f"the pipeline began with checkpoint {id} of {printable(path)}, {fate}"
    print(f"holdfast: {said}", file=sys.stderr)


def refuse(wrong: Sequence[str], said: str) -> None:
    """Raise OSError for any findings, with their number, `said` and a line for each."""
    if wrong:
        raise OSError("\n  ".join([f"{len(wrong)} {said}", *wrong]))


@contextmanager
def progress(of: str) -> Iterator[Callable[[int], Progress]]:
    """Show a verification on stderr; the yielded function begins a checkpoint or batch."""

    def plain(id: int) -> Progress:
        print(f"holdfast: verifying {of} {id}", file=sys.stderr)
        return lambda done, total: None

    if not (sys.stderr.isatty() and find_spec("rich")):
        yield plain
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True), transient=True) as bars:

        def rich(id: int) -> Progress:
            task = bars.add_task(f"{of} {id}", total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield rich


def print_section(title: str, table: Table) -> None:
    """Print the first lines of a table below an empty line and a title."""
    more = len(table.rows) - MAX_LINES
    said = f", the first {MAX_LINES} of {len(table.rows):,}" if more > 0 else ""
    print(f"\n{title}{said}")
    print_table(replace(table, rows=table.rows[:MAX_LINES]))


def print_table(table: Table) -> None:
    """Print words to the left and figures to the right, with colours in a terminal."""
    rows = [["-" if cell is None else str(cell) for cell in row] for row in table.rows]
    if sys.stdout.isatty() and find_spec("rich"):
        _print_rich(table, rows)
        return
    for line in aligned(table.columns, rows, words=table.words):
        print(line)


def _print_rich(table: Table, rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.text import Text

    # A table of rich would cut cells on a narrow screen, so this prints text.
    console = Console(highlight=False, soft_wrap=True)
    head, *lines = padded(table.columns, rows, words=table.words)
    console.print(Text(GAP.join(head).rstrip(), style="bold"))
    for cells in lines:
        text = Text()
        for column, cell in zip(table.columns, cells, strict=True):
            # Names from data must not be read as markup.
            for part in cell if column in table.signs else [cell]:
                text.append(part, style=_COLOURS.get(part.strip(), ""))
            text.append(GAP)
        text.rstrip()
        console.print(text)
