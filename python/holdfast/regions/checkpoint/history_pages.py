"""What became of attempts, in pages of a pipeline's checkpoint folder: for people alone.

No decision depends on a page, so a reader steps over what it cannot read and says so. A page is a
file of lines, each a JSON object, see "History of attempts" in rust/core/FORMAT.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, get_args

from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.coordinator import CheckpointKind, FailedRegion, HistoryRecord, Outcome

T = TypeVar("T")

VERSION: Final = 1

#: Names in the folder of the pages.
PAGE_NAME: Final = re.compile(r"([0-9a-f]{16})\.jsonl", re.ASCII)

#: Failed regions of an attempt that a page names, and the longest text of a cause or a region: a
#: line has less than 100 * 2 * 500 characters in it.
MAX_FAILED: Final = 100
MAX_TEXT: Final = 500


@dataclass(frozen=True)
class Page:
    """A page that is there.

    Attributes
    ----------
    number : int
        Later pages have greater ones.
    path : Path or HadoopPath
        The file.
    modified_ms : int
        When it was last written, in milliseconds since 1970.
    """

    number: int
    path: AnyPath
    modified_ms: int


@dataclass(frozen=True)
class History:
    """What pages say.

    Attributes
    ----------
    records : tuple of HistoryRecord
        Attempts, oldest first.
    damage : tuple of str
        What could not be read, a line each.
    """

    records: tuple[HistoryRecord, ...]
    damage: tuple[str, ...]


def page_name(number: int) -> str:
    """Return the name of a page."""
    return f"{number:016x}.jsonl"


def list_pages(folder: AnyPath) -> list[Page]:
    """Return the pages in a folder, oldest first; none if it is not there.

    Raises
    ------
    OSError
        If the file system does not say.
    """
    with suppress(FileNotFoundError):
        return sorted(_pages(folder), key=lambda page: page.number)
    return []


def _pages(folder: AnyPath) -> Iterator[Page]:
    if isinstance(folder, HadoopPath):
        for path, status in folder.entries():
            if (found := PAGE_NAME.fullmatch(path.name)) is not None and not status.is_folder:
                yield Page(int(found[1], 16), path, status.modified_ms)
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            found = PAGE_NAME.fullmatch(entry.name)
            if found is None or not entry.is_file(follow_symlinks=False):
                continue
            # Pages that are too old are deleted meanwhile.
            with suppress(FileNotFoundError):
                modified_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                yield Page(int(found[1], 16), folder / entry.name, modified_ns // 1_000_000)


def read_history(
    folder: AnyPath, *, last: int | None = None, since_ms: int = 0, below: int | None = None
) -> History:
    """Read attempts of all runs.

    Parameters
    ----------
    folder : Path or HadoopPath
        The folder of the pages.
    last : int, optional
        Return so many attempts at most, the newest. Older pages are not read then.
    since_ms : int, default 0
        Leave out attempts that ended before this time, in milliseconds since 1970.
    below : int, optional
        Read pages with lower numbers only.

    Raises
    ------
    OSError
        If the file system does not list the folder.
    """
    newest_first: list[HistoryRecord] = []
    damage: list[str] = []
    seen: set[tuple[str, int]] = set()
    for page in reversed(list_pages(folder)):
        if page.modified_ms < since_ms:
            break
        if below is not None and page.number >= below:
            continue
        records, wrong = read_page(page.path)
        damage[:0] = wrong
        for record in reversed(records):
            # A write that failed as it seemed was repeated in the next page.
            if record.ended_ms >= since_ms and (record.run, record.id) not in seen:
                seen.add((record.run, record.id))
                newest_first.append(record)
        if last is not None and len(newest_first) >= last:
            break
    return History(tuple(reversed(newest_first[:last])), tuple(damage))


def read_page(path: AnyPath) -> tuple[list[HistoryRecord], list[str]]:
    """Return the attempts of a page, oldest first, and what cannot be read of it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path}: {error}"]
    records: list[HistoryRecord] = []
    damage: list[str] = []
    # What is behind the last line end was being written when the process died, or still is.
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            records.append(decoded(line))
        except (ValueError, RecursionError) as error:
            damage.append(f"{path}, line {number}: {error}")
    return records, damage


def bounded(record: HistoryRecord) -> HistoryRecord:
    """Return what a page holds of an attempt: the first failed regions, and no endless texts."""
    failed = tuple(
        FailedRegion(region=_cut(one.region), origin=one.origin, cause=_cut(one.cause))
        for one in record.failed[:MAX_FAILED]
    )
    unnamed = record.unnamed + len(record.failed) - len(failed)
    return replace(record, failed=failed, unnamed=unnamed, cause=_cut(record.cause))


def encoded(record: HistoryRecord) -> bytes:
    """Return the line of an attempt that is `bounded`, with its end."""
    content = {
        "version": VERSION,
        "run": record.run,
        "id": record.id,
        "batch": record.batch_id,
        "kind": record.kind,
        "outcome": record.outcome,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "in_flight_rows": record.in_flight_rows,
        "cause": record.cause,
        "failed": [
            {"region": one.region, "origin": one.origin, "cause": one.cause}
            for one in record.failed
        ],
        "unnamed_failed": record.unnamed,
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> HistoryRecord:
    """Return the attempt of a line.

    Raises
    ------
    ValueError
        If the line is none of this version.
    """
    content = _Fields(json.loads(line))
    if (version := content.number("version")) != VERSION:
        raise ValueError(f"expected version {VERSION} of a line, found {version}")
    kind, outcome = content.text("kind"), content.text("outcome")
    if kind not in get_args(CheckpointKind) or outcome not in get_args(Outcome):
        raise ValueError(f"no attempt is of kind {kind!r} with the outcome {outcome!r}")
    failed = [_Fields(one) for one in content.items("failed")]
    return HistoryRecord(
        id=content.number("id"),
        batch_id=content.number("batch"),
        kind=kind,
        outcome=outcome,  # type: ignore[arg-type]
        failed=tuple(
            FailedRegion(
                region=one.text("region"),
                origin=one.number_or_none("origin"),
                cause=one.text("cause"),
            )
            for one in failed
        ),
        in_flight_rows=content.number("in_flight_rows"),
        cause=content.text("cause"),
        started_ms=content.number("started_ms"),
        ended_ms=content.number("ended_ms"),
        unnamed=content.number("unnamed_failed"),
        run=content.text("run"),
    )


class _Fields:
    """The fields of a JSON object, each of the type that is asked for."""

    def __init__(self, content: Any) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"expected an object, found {type(content).__name__}")
        self._content = content

    def text(self, name: str) -> str:
        return self._field(name, str)

    def number(self, name: str) -> int:
        return self._field(name, int)

    def number_or_none(self, name: str) -> int | None:
        return None if self._content.get(name) is None else self.number(name)

    def items(self, name: str) -> list[Any]:
        return self._field(name, list)

    def _field(self, name: str, kind: type[T]) -> T:
        value = self._content.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"expected {name!r} of type {kind.__name__}, found {value!r:.80}")
        return value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
