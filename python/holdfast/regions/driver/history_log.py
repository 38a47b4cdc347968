"""Keeps what became of attempts, over restarts: for people, so that it never ends a pipeline."""

from __future__ import annotations

import io
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.regions.base.clock import Clock
from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.checkpoint.history_pages import (
    bounded,
    encoded,
    list_pages,
    page_name,
    read_history,
)
from holdfast.regions.coordinator import HistoryRecord

LOG: Final = logging.getLogger(__name__)

#: Attempts, and bytes, after which a page is full. With `MAX_PAGES` that is a million attempts.
PAGE_RECORDS: Final = 1_000
PAGE_BYTES: Final = 1 << 20

#: The same where a page that grows is written anew each time.
REMOTE_PAGE_RECORDS: Final = 200
REMOTE_PAGE_BYTES: Final = 1 << 18

#: The most pages that stay, however young they are: a pipeline that is started again and again
#: begins a page each time.
MAX_PAGES: Final = 5_000

#: Milliseconds between two writes of a page on a file system that only the JVM reaches, as long as
#: all checkpoints are global.
REMOTE_PAUSE_MS: Final = 30_000

DAY_MS: Final = 24 * 60 * 60 * 1000


class HistoryLog:
    """The history of a pipeline, of this run and of earlier ones.

    Attempts of this run go into pages of its own. On a mounted file system each is appended at
    once; nothing is synced, because no decision depends on it. Elsewhere a page is written as a
    whole, and a healthy pipeline does that every 30 seconds at most. A failure to write is a
    warning: the page stays in memory, and the next attempt tries again.

    Parameters
    ----------
    folders : CheckpointFolders
        Where the pages lie.
    run : str
        Identifies this start of the pipeline.
    days : int
        How long attempts are kept.
    clock : Clock, optional
        What time it is.
    """

    def __init__(
        self, folders: CheckpointFolders, *, run: str, days: int, clock: Clock | None = None
    ) -> None:
        self._folder = folders.history
        self._run = run
        self._kept_ms = days * DAY_MS
        self._clock = clock or Clock()
        self._warnings = SparingLog(LOG)
        self._lock = threading.Lock()
        remote = isinstance(self._folder, HadoopPath)
        self._max_records = REMOTE_PAGE_RECORDS if remote else PAGE_RECORDS
        self._max_bytes = REMOTE_PAGE_BYTES if remote else PAGE_BYTES
        # The page under way: what is in it, how much of that is written, and where. It has no
        # number until the folder was looked at.
        self._records: list[HistoryRecord] = []
        self._lines: list[bytes] = []
        self._written = 0
        self._number: int | None = None
        self._file: io.FileIO | None = None
        self._written_ms = 0

    def begin(self) -> None:
        """Delete pages that are too old, and find out which one is the next."""
        with self._lock:
            try:
                self._number_page()
            except Exception as error:
                self._warn(error)

    def note(self, record: HistoryRecord) -> None:
        """Keep an attempt that has ended."""
        record = bounded(replace(record, run=self._run))
        with self._lock:
            line = encoded(record)
            full = len(self._lines) >= self._max_records
            if full or sum(map(len, self._lines)) + len(line) > self._max_bytes:
                self._begin_page()
            self._records.append(record)
            self._lines.append(line)
            if self._is_due(record):
                self._write()

    def records(self, *, last: int | None = None) -> tuple[HistoryRecord, ...]:
        """Return the attempts that are kept, of all runs, oldest first.

        Parameters
        ----------
        last : int, optional
            Return so many at most, the newest.
        """
        with self._lock:
            own, number = list(self._records), self._number
        since_ms = self._clock.now_ms() - self._kept_ms
        own = [record for record in own if record.ended_ms >= since_ms]
        if last is not None and len(own) >= last:
            return tuple(own[len(own) - last :])
        more = None if last is None else last - len(own)
        try:
            found = read_history(self._folder, last=more, since_ms=since_ms, below=number)
        except Exception as error:  # Also where the JVM that alone reaches the pages is gone.
            self._warnings.warn("read", f"older attempts cannot be read: {error}")
            return tuple(own)
        for wrong in found.damage:
            self._warnings.warn("damage", f"a part of the history cannot be read: {wrong}")
        known = {(record.run, record.id) for record in own}
        older = [record for record in found.records if (record.run, record.id) not in known]
        return (*older, *own)

    def close(self) -> None:
        """Write what is not written yet; may be repeated."""
        with self._lock:
            self._write()
            self._close_file()

    # --- writing, under the lock ------------------------------------------------------------------

    def _is_due(self, record: HistoryRecord) -> bool:
        if not isinstance(self._folder, HadoopPath) or record.outcome != "global":
            return True
        return not 0 <= self._clock.now_ms() - self._written_ms < REMOTE_PAUSE_MS

    def _write(self) -> None:
        """Write what the page under way has and its file has not."""
        if self._written == len(self._lines):
            return
        self._written_ms = self._clock.now_ms()
        try:
            number = self._number_page() if self._number is None else self._number
            if isinstance(self._folder, HadoopPath):
                self._replace(self._folder / page_name(number))
            else:
                self._append(self._folder / page_name(number))
        # Not an OSError alone: py4j has errors of its own for a JVM that is gone.
        except Exception as error:
            self._warn(error)
            if self._file is not None or not self._written:
                self._leave_page()

    def _append(self, path: Path) -> None:
        if self._file is None:
            path.parent.mkdir(exist_ok=True)
            # Unbuffered: a line that is cut off is known, and nothing follows it in this page.
            self._file = io.FileIO(path, "xb")
        for line in self._lines[self._written :]:
            if self._file.write(line) != len(line):
                raise OSError(f"{path}: a line was written in part")
            self._written += 1

    def _replace(self, path: HadoopPath) -> None:
        content = b"".join(self._lines)
        if self._written:
            path.write_bytes(content)
        else:
            # Another process may have the number, if it took the folder over from this one.
            path.create(content)
        self._written = len(self._lines)

    def _begin_page(self) -> None:
        """Make room: in the next page, or in memory if this one cannot be written."""
        self._write()
        self._leave_page()
        if self._lines:
            del self._records[0], self._lines[0]

    def _leave_page(self) -> None:
        """Go on in another page with what is not written yet."""
        self._close_file()
        del self._records[: self._written], self._lines[: self._written]
        self._written, self._number = 0, None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _number_page(self) -> int:
        """Delete pages that are too old, and return the number of the next one."""
        pages = list_pages(self._folder)
        before_ms = self._clock.now_ms() - self._kept_ms
        for place, page in enumerate(pages):
            if page.modified_ms < before_ms or place < len(pages) - MAX_PAGES:
                try:
                    page.path.unlink(missing_ok=True)
                except OSError as error:
                    self._warnings.warn("delete", f"an old page of the history stays: {error}")
        self._number = pages[-1].number + 1 if pages else 1
        return self._number

    def _warn(self, error: Exception) -> None:
        self._warnings.warn(
            "write", f"the history is not written, and the pipeline goes on without: {error}"
        )
