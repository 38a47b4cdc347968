"""The data of regions in a history: their batches and splits, as bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast import Owner, SegmentRef, SnapshotManager
from holdfast._core import InFlight, OperatorEntry, Piece, RegionEntry, Staged, StateEntry
from holdfast.regions.base.quarantine import quarantined
from holdfast.regions.coordinator import Acked, Declined

PIPELINE = "p"


class Store(Protocol):
    """A place for bytes of regions."""

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes: ...

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes: ...


class InlineStore:
    """Bytes stay in the metadata."""

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes:
        return data

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes:
        assert isinstance(stored, bytes)
        return stored


class ManagerStore:
    """Bytes go to a snapshot manager."""

    def __init__(self, manager: SnapshotManager) -> None:
        self.manager = manager

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes:
        return self.manager.append(owner, attempt, data)

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes:
        assert isinstance(stored, SegmentRef)
        return self.manager.read(stored, owner)


@dataclass(frozen=True)
class Regions:
    """Makes the answers of regions, and reads their content."""

    store: Store

    def ack(
        self,
        attempt: int,
        region: str,
        base: RegionEntry | None,
        batch: int | None,
        splits: Sequence[int],
        *,
        unaligned: bool,
        finished: bool,
    ) -> Acked:
        """Apply the base's pending rows, then the batch; or leave the batch in flight."""
        batches: list[int] = []
        held: set[int] = set()
        if base is not None:
            (seen, had), owed = self.content(base)
            batches = [*seen, *(row for rows in owed for row in rows)]
            held = set(had)
        in_flight = []
        if batch is not None and unaligned:
            in_flight = [self.stored_rows(attempt, region, batch)]
        elif batch is not None:
            batches = [*batches, batch]
        data = json.dumps([batches, sorted(held | set(splits))]).encode()
        stored = self.store.put(Owner(PIPELINE, "stats", region, "seen"), attempt, data)
        where: dict[str, Any] = (
            {"inline": stored}
            if isinstance(stored, bytes)
            else {"pieces": [Piece(stored, 0, len(data))]}
        )
        state = StateEntry("seen", "value", "|u1", (len(data),), **where)
        entry = RegionEntry(
            region,
            origin=attempt,
            operators=[OperatorEntry("stats", [state], finished=finished)],
            in_flight=in_flight,
            staged=[Staged(f"{attempt}/{region}", target(region, attempt), 1, 1)],
            finished=finished,
        )
        return Acked(attempt=attempt, region=region, entry=entry)

    def retire(self, attempt: int, region: str) -> Acked:
        """Put out the last rows, and keep nothing."""
        staged = [Staged(f"{attempt}/{region}", target(region, attempt), 1, 1)]
        entry = RegionEntry(region, origin=attempt, staged=staged)
        return Acked(attempt=attempt, region=region, entry=entry)

    def keep(self, attempt: int, base: RegionEntry, batch: int | None, *, merged: int) -> Acked:
        """Store a batch after pending rows of a region in quarantine, merged with some pieces."""
        region, pieces = base.region, list(base.in_flight)
        if batch is not None:
            first = max(0, len(pieces) - merged)
            before = [row for piece in pieces[first:] for row in self.rows_of(region, piece)]
            pieces[first:] = [self.stored_rows(attempt, region, *before, batch)]
        return Acked(attempt=attempt, region=region, entry=quarantined(base, pieces))

    def decline(
        self,
        attempt: int,
        region: str,
        batch: int | None,
        cause: str,
        *,
        saved: bool,
    ) -> Declined:
        stored = [self.stored_rows(attempt, region, batch)] if batch is not None and saved else []
        had_rows = batch is not None
        return Declined(
            attempt=attempt, region=region, cause=cause, in_flight=stored, had_rows=had_rows
        )

    def stored_rows(self, attempt: int, region: str, *batches: int) -> InFlight:
        data = json.dumps(batches).encode()
        stored = self.store.put(in_flight_owner(region, attempt), attempt, data)
        if isinstance(stored, bytes):
            return InFlight(attempt, "source", len(batches), len(data), inline=stored)
        return InFlight(attempt, "source", len(batches), len(data), ref=stored)

    def rows_of(self, region: str, rows: InFlight) -> tuple[int, ...]:
        stored = rows.inline if rows.ref is None else rows.ref
        assert stored is not None
        return tuple(json.loads(self.store.get(in_flight_owner(region, rows.created), stored)))

    def content(self, entry: RegionEntry) -> tuple[Any, list[tuple[int, ...]]]:
        """Return the batches and splits in a region's state, and its stored rows."""
        state: Any = ((), ())
        for operator in entry.operators:
            (seen,) = operator.states
            owner = Owner(PIPELINE, operator.name, entry.region, seen.name)
            stored = seen.pieces[0].ref if seen.inline is None else seen.inline
            batches, splits = json.loads(self.store.get(owner, stored))
            state = (tuple(batches), tuple(splits))
        return state, [self.rows_of(entry.region, rows) for rows in entry.in_flight]


def segments_of(answer: Acked | Declined) -> set[SegmentRef]:
    """Return the segments that an answer refers to."""
    if isinstance(answer, Acked):
        return {ref for _, _, ref in answer.entry.refs()}
    return {rows.ref for rows in answer.in_flight if rows.ref is not None}


def in_file(answer: Any, path: str) -> Acked:
    """Return an acknowledgement with all of its output in a file."""
    entry: RegionEntry = answer.entry
    entry = RegionEntry(
        entry.region,
        origin=entry.origin,
        operators=entry.operators,
        in_flight=entry.in_flight,
        staged=[Staged(path, one.target, one.rows, one.bytes) for one in entry.staged],
        finished=entry.finished,
    )
    return Acked(attempt=answer.attempt, region=answer.region, entry=entry)


def target(region: str, attempt: int) -> str:
    """Name the output that a region stages in an attempt."""
    return f"{region}-{attempt}"


def in_flight_owner(region: str, created: int) -> Owner:
    return Owner(PIPELINE, "in-flight", region, str(created))
