"""Parked partitions of an ordinary query: pending input, the reason, and the time.

A query with ``isolate_failures`` keeps it in its checkpoint: in ids of the commit log, in segments,
and in the markers of ``isolation``. Only `write_skips` changes a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast._core import CorruptSegmentError, Owner, SegmentRef
from holdfast.files.paths import AnyPath
from holdfast.files.skips import Range, read_records, write_records
from holdfast.queries.logs import OFFSETS_FOLDER, committed_batches, logged_batches
from holdfast.queries.state import StateOfQuery

#: Markers of batches, and the rows that were skipped.
ISOLATION_FOLDER: Final = "isolation"

_SKIPPED: Final = "skipped"


@dataclass(frozen=True)
class Input:
    """The pending rows of one batch in a partition.

    Attributes
    ----------
    pieces : tuple of SegmentRef
        Its segments, which have one owner. The last one identifies it.
    rows, bytes : int
        Number of pending rows, and their size with their description.
    skipped : tuple of Range
        Rows that were moved to dead letters, by their numbers.
    """

    batch: int
    pieces: tuple[SegmentRef, ...]
    owner: Owner
    rows: int
    bytes: int
    skipped: tuple[Range, ...]

    @property
    def segment(self) -> str:
        """The reference of its last piece, in hexadecimal."""
        return self.pieces[-1].to_bytes().hex()

    @property
    def skipped_rows(self) -> int:
        """Number of rows in dead letters."""
        return sum(end - begin for begin, end in self.skipped)


@dataclass(frozen=True)
class ParkedPartition:
    """A partition whose state lacks the rows of some batches.

    Attributes
    ----------
    name : str or None
        Name of the operator, if the markers say it.
    inputs : tuple of Input
        At least one, the oldest first.
    since_ms : int or None
        When it was parked, in milliseconds since 1970.
    tries : int or None
        Batches in which its task failed.
    keys : float
        Share of its keys that have pending rows; 1 if it is parked whole.
    error : str or None
        The error of the last try.
    """

    operator: int
    name: str | None
    partition: int
    inputs: tuple[Input, ...]
    since_ms: int | None
    tries: int | None
    keys: float
    error: str | None

    @property
    def rows(self) -> int:
        """Number of pending rows."""
        return sum(one.rows - one.skipped_rows for one in self.inputs)

    @property
    def bytes(self) -> int:
        """Size of the pending input."""
        return sum(one.bytes for one in self.inputs)


@dataclass(frozen=True)
class Skip:
    """Rows of one input that are left out of the replay; FORMAT.md has their format.

    `segment` identifies the input. The file `dead_letters` has the rows. It may be missing until
    they are `done`, and the query does not continue before.
    """

    operator: int
    partition: int
    batch: int
    segment: str
    rows: tuple[Range, ...]
    dead_letters: str
    done: bool


def read_skips(folder: AnyPath) -> list[Skip]:
    """Return what was skipped in a checkpoint, also of inputs that are no longer pending."""
    return read_records(folder / ISOLATION_FOLDER / _SKIPPED, Skip)


def write_skips(folder: AnyPath, skips: Iterable[Skip]) -> None:
    """Replace what is skipped, durably."""
    write_records(folder / ISOLATION_FOLDER / _SKIPPED, skips)


def parked_partitions(folder: AnyPath) -> list[ParkedPartition]:
    """Return the partitions that are parked after the newest batch in the commit log.

    Raises an OSError, NewerFormatError or NotImplementedError if pending input is gone or damaged,
    or a newer Holdfast wrote it.
    """
    committed = committed_batches(folder)
    if not committed:
        return []
    done: dict[str, list[Range]] = {}
    for skip in read_skips(folder):
        if skip.done:
            done.setdefault(skip.segment, []).extend(skip.rows)
    inputs: dict[tuple[int, int], list[Input]] = {}
    for operator, partition, batch, segments in StateOfQuery(folder).pending(committed[-1]):
        reports = []
        for segment in segments:
            if isinstance(segment.report, str):
                raise CorruptSegmentError(segment.report)
            reports.append(segment.report)
        if not (size := sum(report.payload_bytes for report in reports)):
            continue  # another store of the partition: the first one has the input
        pieces = tuple(segment.ref for segment in segments)
        skipped = tuple(sorted(done.get(pieces[-1].to_bytes().hex(), ())))
        one = Input(batch, pieces, reports[-1].owner, reports[-1].entries, size, skipped)
        inputs.setdefault((operator, partition), []).append(one)
    batches = {one.batch for found in inputs.values() for one in found}
    markers = {batch: _marker(folder, batch) for batch in batches}
    parked = []
    for (operator, partition), found in sorted(inputs.items()):
        first, last = markers[found[0].batch], markers[found[-1].batch]
        began, now = (one.get("parked", {}).get(str(partition), {}) for one in (first, last))
        parked.append(
            ParkedPartition(
                operator=operator,
                name=last.get("name"),
                partition=partition,
                inputs=tuple(found),
                since_ms=began.get("at_ms"),
                tries=now.get("tries"),
                keys=_share(now),
                error=now.get("error"),
            )
        )
    return parked


def _share(parked: Mapping[str, Any]) -> float:
    """Return the share of pending keys. Each bit of a group after its first halves it."""
    groups: Iterable[int] = parked.get("waits", (1,))
    return sum(2.0 ** (1 - group.bit_length()) for group in groups)


def _marker(folder: AnyPath, batch: int) -> Mapping[str, Any]:
    """Return the decision about a batch; empty without one."""
    file = folder / ISOLATION_FOLDER / str(batch)
    try:
        found: Mapping[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CorruptSegmentError(f"{file} is damaged: {error}") from None
    return found


def unfinished_batch(folder: AnyPath, partition: int) -> int | None:
    """Return the batch that may be giving pending rows of a partition to the sink, else None.

    That is a planned batch that is not in the commit log and does not park the whole partition.
    """
    planned = max(logged_batches(folder / OFFSETS_FOLDER), default=-1)
    committed = max(committed_batches(folder), default=-1)
    parked = _marker(folder, planned).get("parked", {}).get(str(partition))
    if planned <= committed or (parked is not None and _share(parked) == 1):
        return None
    return planned
