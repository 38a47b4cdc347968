"""History of attempts in a pipeline's checkpoint folder, only for people.

No decision depends on it. So a failure to write is a warning, and a reader skips unreadable lines
and says so. Pages are files of JSON objects, one per line, see "History of attempts" in
rust/core/FORMAT.md.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Final, get_args

from holdfast._checks import optional_int
from holdfast._core import NewerFormatError
from holdfast.files.modes import create
from holdfast.files.paths import AnyPath, listed
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.base.versions import require_known
from holdfast.regions.coordinator import CheckpointKind, FailedRegion, HistoryRecord, Outcome
from holdfast.regions.files.folders import CheckpointFolders

LOG: Final = logging.getLogger(__name__)

VERSION: Final = 1

#: Names in the folder of the pages.
PAGE_NAME: Final = re.compile(r"[0-9a-f]{16}\.jsonl", re.ASCII)

#: Size of a full page, and number of retained pages. A healthy attempt takes 250 bytes.
PAGE_BYTES: Final = 1 << 18
MAX_PAGES: Final = 1_000

#: Milliseconds between writes of a page where only the JVM reaches it, if all attempts are global.
REMOTE_PAUSE_MS: Final = 30_000

#: Newest attempts of a run that are kept in memory.
MAX_RECENT: Final = 1_000

#: Failed regions of an attempt that a page names, and the longest text of a cause or a region: a
#: line has less than 100 * 2 * 500 characters of them.
MAX_FAILED: Final = 100
MAX_TEXT: Final = 500

#: Days for which attempts are kept: enough to look back at a failure of the last weekend.
KEPT_DAYS: Final = 7
DAY_MS: Final = 24 * 60 * 60 * 1000

#: Fields of a line, in their order, with their types.
_FIELDS: Final = {
    "version": int,
    "run": str,
    "id": int,
    "batch": int,
    "kind": str,
    "outcome": str,
    "started_ms": int,
    "ended_ms": int,
    "in_flight_rows": int,
    "cause": str,
    "failed": list,
    "unnamed_failed": int,
}
#: Fields that have another name in a record.
_RENAMED: Final = {"batch": "batch_id", "unnamed_failed": "unnamed"}


@dataclass(frozen=True)
class History:
    """The content of history pages: attempts, oldest first, and a line for each damaged part."""

    records: tuple[HistoryRecord, ...]
    damage: tuple[str, ...]


class HistoryLog:
    """The history of a pipeline, of this run and of earlier ones.

    Each run has its own pages. On a mounted file system each attempt is appended at once; nothing
    is synced, because no decision depends on it. Elsewhere a page is written as a whole, and a
    healthy pipeline does that every 30 seconds at most. After a failure the next attempt tries
    again, in another page. Attempts are kept for `days`.
    """

    def __init__(
        self,
        folders: CheckpointFolders,
        *,
        run: str,
        days: int = KEPT_DAYS,
        clock: Clock | None = None,
    ) -> None:
        self._folder = folders.history
        self._run = run
        self._kept_ms = days * DAY_MS
        self._clock = clock or Clock()
        self._warnings = SparingLog(LOG)
        self._lock = threading.Lock()
        # The newest attempts of this run, and the number of unwritten ones.
        self._recent: deque[HistoryRecord] = deque(maxlen=MAX_RECENT)
        self._waiting = 0
        self._page: AnyPath | None = None
        self._content = b""
        self._written_ms = 0

    def note(self, record: HistoryRecord) -> None:
        """Keep an attempt that has ended."""
        with self._lock:
            self._recent.append(bounded(replace(record, run=self._run)))
            self._waiting = min(self._waiting + 1, MAX_RECENT)
            is_early = 0 <= self._clock.now_ms() - self._written_ms < REMOTE_PAUSE_MS
            if self._folder.appends or not is_early or record.outcome != "global":
                self._write()

    def records(self, *, last: int | None = None) -> tuple[HistoryRecord, ...]:
        """Return the kept attempts of all runs, oldest first; `last` limits it to the newest."""
        last = optional_int("last", last, at_least=0)
        since_ms = self._clock.now_ms() - self._kept_ms
        with self._lock:
            found = [record for record in self._recent if record.ended_ms >= since_ms]
        if last is None or last > len(found):
            older = self._read(last, since_ms)
            found = list({(one.run, one.id): one for one in (*older, *found)}.values())
        return tuple(found if last is None else found[max(len(found) - last, 0) :])

    def close(self) -> None:
        """Write the attempts that are not written yet; may be repeated."""
        with self._lock:
            if self._waiting:
                self._write()

    def _read(self, last: int | None, since_ms: int) -> tuple[HistoryRecord, ...]:
        try:
            history = read_history(self._folder, last=last, since_ms=since_ms)
        except Exception as error:  # py4j has errors of its own for a lost JVM.
            self._warnings.warn("read", f"older attempts cannot be read: {error}")
            return ()
        for wrong in history.damage:
            self._warnings.warn("damage", f"a part of the history cannot be read: {wrong}")
        return history.records

    def _write(self) -> None:
        """Write the attempts that are not written yet."""
        self._written_ms = self._clock.now_ms()
        try:
            if self._page is None or len(self._content) >= PAGE_BYTES:
                self._page, self._content = self._next_page(), b""
            lines = b"".join(map(encoded, list(self._recent)[-self._waiting :]))
            content = self._content + lines
            if self._page.local is not None:
                self._page.parent.make_folder(exist_ok=True)
                with open(self._page.local, "ab" if self._content else "xb", opener=create) as file:
                    file.write(lines)
            elif self._content:
                self._page.write_bytes(content)
            else:
                # A process that took the folder over may have a page of this name.
                self._page.create(content)
            self._content, self._waiting = content, 0
        except Exception as error:  # py4j has errors of its own for a lost JVM.
            # The page may end in a part of a line, so nothing may follow in it.
            self._page = None
            self._warnings.warn(
                "write", f"the history is not written, and the pipeline goes on without: {error}"
            )

    def _next_page(self) -> AnyPath:
        """Delete pages that are too old, and return the path of a new one."""
        pages = list_pages(self._folder)
        before_ms = self._clock.now_ms() - self._kept_ms
        for number, page in enumerate(pages):
            records, _ = read_page(page)
            is_old = bool(records) and records[-1].ended_ms < before_ms
            if not is_old and len(pages) - number < MAX_PAGES:
                break
            try:
                page.unlink(missing_ok=True)
            except OSError as error:
                self._warnings.warn("delete", f"an old page of the history stays: {error}")
        number = int(pages[-1].name.partition(".")[0], 16) + 1 if pages else 1
        return self._folder / f"{number:016x}.jsonl"


def list_pages(folder: AnyPath) -> list[AnyPath]:
    """Return the pages in a folder, oldest first; none if it is not there."""
    return [path for path in listed(folder) if PAGE_NAME.fullmatch(path.name)]


def read_history(folder: AnyPath, *, last: int | None = None, since_ms: int = 0) -> History:
    """Read the newest `last` attempts since `since_ms` (ms since 1970), and no older pages."""
    # A page may repeat attempts of the one before, whose write seemed to fail.
    newest_first: dict[tuple[str, int], HistoryRecord] = {}
    damage: list[str] = []
    for page in reversed(list_pages(folder)):
        records, wrong = read_page(page)
        damage[:0] = wrong
        for record in reversed(records):
            if record.ended_ms >= since_ms:
                newest_first.setdefault((record.run, record.id), record)
        is_older = bool(records) and records[-1].ended_ms < since_ms
        if is_older or (last is not None and len(newest_first) >= last):
            break
    return History(tuple(reversed(list(newest_first.values())[:last])), tuple(damage))


def read_page(path: AnyPath) -> tuple[list[HistoryRecord], list[str]]:
    """Return the attempts of a page, oldest first, and a line for each part that cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], []  # Old pages are deleted at any time.
    except OSError as error:
        return [], [f"{path}: {error}"]
    records: list[HistoryRecord] = []
    damage: list[str] = []
    # Skip the rest after the last line end: the process died in that write, or still writes.
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            records.append(decoded(line))
        except (ValueError, RecursionError, NewerFormatError) as error:
            damage.append(f"{path}, line {number}: {error}")
    return records, damage


def bounded(record: HistoryRecord) -> HistoryRecord:
    """Return the form of a record that a page holds: the first failed regions, and short texts."""
    failed = tuple(
        FailedRegion(region=_cut(one.region), origin=one.origin, cause=_cut(one.cause))
        for one in record.failed[:MAX_FAILED]
    )
    unnamed = record.unnamed + len(record.failed) - len(failed)
    return replace(record, failed=failed, unnamed=unnamed, cause=_cut(record.cause))


def encoded(record: HistoryRecord) -> bytes:
    """Return the line of an attempt that is `bounded`, with its end."""
    found = {"version": VERSION, **asdict(record)}
    content = {name: found[_RENAMED.get(name, name)] for name in _FIELDS}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> HistoryRecord:
    """Return the attempt of a line; ValueError without one, NewerFormatError if it is newer."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    if type(found.get("version")) is int:
        require_known("a line of the history", found["version"], VERSION)
    for name, wanted in _FIELDS.items():
        value = found.get(name)
        if type(value) is not wanted:
            raise ValueError(f"expected {name!r} of type {wanted.__name__}, found {value!r:.80}")
    kind, outcome = found["kind"], found["outcome"]
    if kind not in get_args(CheckpointKind) or outcome not in get_args(Outcome):
        raise ValueError(f"no attempt is of kind {kind!r} with the outcome {outcome!r}")
    try:
        failed = tuple(FailedRegion(**one) for one in found["failed"])
    except TypeError as error:
        raise ValueError(f"no failed region: {error}") from None
    known = {_RENAMED.get(name, name): found[name] for name in _FIELDS if name != "version"}
    return HistoryRecord(**{**known, "failed": failed})


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
