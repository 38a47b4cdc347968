"""Output for the user: progress bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from harness.figures import BatchFigures
from holdfast.regions.base.tables import aligned

#: Width of plain output; rich would cut tables at 80 columns when it sees no terminal.
_PLAIN_WIDTH = 120
_LABEL_WIDTH = 30


class RunLine:
    """Progress of one run, counted in input rows, if any."""

    def __init__(
        self, console: Console, progress: Progress | None, *, label: str, rows: int | None
    ) -> None:
        self._console = console
        self._progress = progress
        self._label = label
        self._rows_total = rows
        self._rows = 0
        self._task: TaskID | None = None
        if progress is not None:
            self._task = progress.add_task(
                label.ljust(_LABEL_WIDTH), total=rows, read=self._read(), note="starting Spark"
            )

    def batch(self, figures: BatchFigures) -> None:
        """Show that another micro-batch is committed."""
        self._rows += figures.input_rows
        self.note(f"batch {figures.batch_id}: {figures.batch_ms / 1000:.1f} s")

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run of the same query has already read."""
        self._rows += rows

    def finish(self, text: str) -> None:
        """Show the end of the run, and stop its clock."""
        self.note(text)
        if self._progress is not None and self._task is not None:
            self._progress.stop_task(self._task)

    def note(self, text: str) -> None:
        """Show the present work of the run."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._rows, read=self._read(), note=text)
        else:
            line = f"  {self._label:<{_LABEL_WIDTH}} {self._read()}  {text}"
            self._console.print(line.rstrip(), highlight=False)

    def _read(self) -> str:
        if self._rows_total is None:
            return ""
        return f"{self._rows:>7,} of {self._rows_total:,} rows"


class Screen:
    """Standard output of the demo."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._console = Console(highlight=False, width=None if self._live else _PLAIN_WIDTH)
        self._progress: Progress | None = None

    def heading(self, text: str) -> None:
        """Start a new part."""
        self._console.print(f"\n[bold]{text}[/bold]")

    def say(self, text: str) -> None:
        """Print a line or a paragraph."""
        self._console.print(text, markup=False, soft_wrap=True)

    def verdict(self, text: str, *, good: bool) -> None:
        """Print the outcome of one check."""
        colour, word = ("green", "ok  ") if good else ("red", "FAIL")
        self._console.print(f"[{colour}]{word}[/{colour}] ", end="")
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Keep live bars on the screen for the runs of one part."""
        if not self._live:
            yield
            return
        with Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[read]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
        ) as progress:
            self._progress = progress
            try:
                yield
            finally:
                self._progress = None

    def run(self, label: str, *, rows: int | None) -> RunLine:
        """Add the line of one run; `rows` is None where progress is not counted in rows."""
        return RunLine(self._console, self._progress, label=label, rows=rows)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print an aligned table: the first two columns are words, the others figures."""
        head, *lines = aligned(columns, rows, words=columns[:2])
        self._console.print(Text(head, style="bold"), soft_wrap=True)
        for line in lines:
            self.say(line)
