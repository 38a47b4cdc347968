"""Copies a checkpoint, with all that it needs, into a folder of its own.

Savepoints are copies, and so is the first checkpoint of a pipeline that is restored in a new
folder. Copies refer to nothing outside their folder, so the original may be deleted at once (R72).
A copy appears by one rename, complete and durable. On object stores, its metadata appears last.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal

from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Owner,
    Piece,
    RegionEntry,
    SegmentRef,
    StateEntry,
)
from holdfast.files.paths import AnyPath
from holdfast.files.segments import (
    Image,
    StoredSegments,
    copy_segment,
    copy_table,
    divide_tables,
    mounted_tables,
    new_image,
    stored_segments,
)
from holdfast.files.skips import read_records, write_records
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.saved import SavedState
from holdfast.regions.checkpoint.skips import SkippedRows
from holdfast.regions.checkpoint.stream_log import copy_stream, rewind_stream
from holdfast.regions.files.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.graph import ChannelData
from holdfast.regions.state.kinds.restoring import small_state
from holdfast.regions.state.segments import (
    read_in_flight,
    read_operator,
    table_entry,
    write_in_flight,
    write_operator,
)
from holdfast.regions.state.tables.stored_table import (
    FrozenTable,
    saved_columns,
    saved_commit,
    saved_due,
)


class SegmentCopies:
    """Copies segments of a folder of pipeline `before` into merged files of one of `now`."""

    def __init__(self, source: StoredSegments, store: Image, *, before: str, now: str) -> None:
        self._source = source
        self._from = before
        self._owners = partial(RegionOwners, now)
        self._store = store
        self._copied: dict[tuple[Owner, SegmentRef], SegmentRef] = {}
        self._created: set[int] = set()

    def states(self, region: str, entry: OperatorEntry) -> list[SavedState]:
        """Read the states of an operator (instance) in the original; maps and lists as texts."""
        owners = RegionOwners(self._from, region)
        return [
            small_state(
                state, partial(self._source.read_table, owners.state(entry.name, state.name))
            )
            for state in read_operator(self._source, owners, entry)
        ]

    def rows_owed(self, region: str, data: InFlight) -> tuple[ChannelData, ...]:
        """Read a region's pending rows in the original."""
        return read_in_flight(self._source, RegionOwners(self._from, region), data)

    def operator(self, region: str, origin: int, entry: OperatorEntry) -> OperatorEntry:
        """Copy the states of an operator (instance)."""
        states = [self._state(region, origin, entry.name, state) for state in entry.states]
        return OperatorEntry(entry.name, states, finished=entry.finished)

    def in_flight(self, region: str, data: InFlight) -> InFlight:
        """Copy pending rows of a region."""
        if data.ref is None:
            return data
        owner = self._owners(region).in_flight(data.created)
        ref = self._segment(data.ref, owner, data.created, "in_flight", entries=data.rows)
        return InFlight(data.created, data.channel, data.rows, data.bytes, ref=ref)

    def new_in_flight(
        self, region: str, data: InFlight, channels: Sequence[ChannelData]
    ) -> InFlight:
        """Write pending rows of a region, in other channels than in the original."""
        self._created.add(data.created)
        owners = self._owners(region)
        return write_in_flight(self._store, owners, data.created, data.channel, channels)

    def new_operator(
        self,
        region: str,
        origin: int,
        name: str,
        states: Sequence[SavedState | FrozenTable],
        *,
        finished: bool,
    ) -> OperatorEntry:
        """Write states of an operator (instance) that are made from states of others."""
        self._created.add(origin)
        owners = self._owners(region)
        return write_operator(self._store, owners, origin, name, states, finished=finished)

    def divided_tables(
        self,
        region: str,
        origin: int,
        held: Mapping[str, SavedState],
        name: str,
        *,
        keys: Sequence[str],
        choose: Mapping[str, Callable[[int, int, Any], bytes]],
    ) -> list[FrozenTable]:
        """Write the table `name` of several operators (instances) with rows of others.

        `held` are tables of the original by operator (instance), `keys` the layouts of the key's
        columns. `choose` has a function per new one, see `holdfast.SnapshotManager.divide_tables`.
        """
        self._created.add(origin)
        of_region, owners = RegionOwners(self._from, region), self._owners(region)
        before = [
            (of_region.state(instance, name), saved_commit(state.data))
            for instance, state in held.items()
        ]
        columns = saved_columns(next(iter(held.values())).data)
        # Timers may be due later at an instance: an extra run is harmless.
        due = (saved_due(state.data) for state in held.values())
        first = min((us for us in due if us is not None), default=None)
        with mounted_tables(self._source, before, origin) as tables:
            divided = [
                divide_tables(
                    tables, self._store, owners.state(operator, name), origin, keys=keys, choose=one
                )
                for operator, one in choose.items()
            ]
        return [FrozenTable(name, columns, *table, first) for table in divided]

    def persist(self) -> None:
        """Make all new segments durable."""
        for created in sorted(self._created):
            self._store.persist(created)

    def _state(self, region: str, origin: int, operator: str, state: StateEntry) -> StateEntry:
        if state.kind == "table":
            return self._table(region, origin, operator, state)
        if state.inline is not None:
            return state
        owner = self._owners(region).state(operator, state.name)
        pieces = [
            Piece(
                self._segment(piece.ref, owner, origin, "snapshot", entries=1),
                piece.payload_offset,
                piece.length,
            )
            for piece in state.pieces
        ]
        return StateEntry(state.name, state.kind, state.dtype, state.shape, pieces=pieces)

    def _table(self, region: str, origin: int, operator: str, state: StateEntry) -> StateEntry:
        """Copy a table as one segment: its segments refer to each other."""
        self._created.add(origin)
        owner = self._owners(region).state(operator, state.name)
        before = RegionOwners(self._from, region).state(operator, state.name)
        data = memoryview(state.inline or b"")
        copied = copy_table(self._source, self._store, before, saved_commit(data), owner, origin)
        return table_entry(FrozenTable(state.name, saved_columns(data), *copied, saved_due(data)))

    def _segment(
        self,
        ref: SegmentRef,
        owner: Owner,
        created: int,
        kind: Literal["snapshot", "in_flight"],
        *,
        entries: int,
    ) -> SegmentRef:
        if (owner, ref) not in self._copied:
            self._created.add(created)
            before = Owner(self._from, owner.operator, owner.region, owner.store)
            self._copied[owner, ref] = copy_segment(
                self._source, self._store, ref, before, owner, created, kind=kind, entries=entries
            )
        return self._copied[owner, ref]


Adapt = Callable[[SegmentCopies, RegionEntry], tuple[list[OperatorEntry], list[InFlight]]]
"""Copies a region, perhaps into another layout."""


def copy_region(
    copies: SegmentCopies, entry: RegionEntry
) -> tuple[list[OperatorEntry], list[InFlight]]:
    """Copy the states and the pending rows of a region unchanged."""
    operators = [
        copies.operator(entry.region, entry.origin, operator) for operator in entry.operators
    ]
    return operators, [copies.in_flight(entry.region, data) for data in entry.in_flight]


def write_image(
    source: CheckpointFolders,
    metadata: CheckpointMetadata,
    target: AnyPath,
    *,
    kind: Literal["checkpoint", "savepoint"],
    pipeline: str,
    properties: Mapping[str, str],
    max_file_bytes: int,
    adapt: Adapt = copy_region,
) -> None:
    """Write a checkpoint, and all that it needs, into a new folder (see `require_free`).

    The output has to be published, since the copy does not have it. An error leaves no copy. The
    checkpoint keeps its id, and its regions their origins: ids of the copy continue from there
    (R2), so output of the restored pipeline has new names. `properties` are added to the
    original's.
    """
    with _appearing(target) as staged:
        folders = CheckpointFolders(staged)
        copy_stream(source.stream, folders.stream)
        # Spark may have planned or even run batches that are not in the checkpoint.
        rewind_stream(folders.stream, metadata.batch_id)
        if skips := read_records(source.skipped, SkippedRows):
            write_records(folders.skipped, skips)
        folders.note_attempt(max(source.read_last_attempt(), metadata.id))
        with (
            stored_segments(source.segments, into=folders.segments) as stored,
            new_image(
                folders.segments, source=source.segments, max_file_bytes=max_file_bytes
            ) as store,
        ):
            before = metadata.properties.get(PIPELINE_PROPERTY, pipeline)
            copies = SegmentCopies(stored, store, before=before, now=pipeline)
            regions = [_copied(copies, entry, adapt) for entry in metadata.regions.values()]
            copies.persist()
        folders.metadata.make_folder()
        # Last: on object stores the folder appears file by file, and is no checkpoint without it.
        folders.publish(
            CheckpointMetadata(
                metadata.id,
                metadata.batch_id,
                kind,
                metadata.created_ms,
                metadata.topology,
                regions,
                coordinators=metadata.coordinators,
                consecutive_regional=metadata.consecutive_regional,
                force_global=metadata.force_global,
                finished_operators=metadata.finished_operators,
                properties={**metadata.properties, **properties, PIPELINE_PROPERTY: pipeline},
            )
        )


@contextmanager
def _appearing(target: AnyPath) -> Iterator[AnyPath]:
    """Make a folder that gets its name once it is complete, or disappears after an error.

    Object stores cannot rename a folder, so there it has its name from the start.
    """
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    staged = partial if target.parent.renames else target
    try:
        staged.make_folder(exist_ok=staged == target)
        yield staged
        if staged != target:
            staged.appear_as(target.name)
    except BaseException:
        with suppress(OSError):
            staged.remove_tree()
        raise


def require_free(target: AnyPath) -> None:
    """Check that a folder can be created: it is not there, or empty."""
    if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
        raise FileExistsError(
            errno.EEXIST, "expected a new or an empty folder, found something", str(target)
        )


def _copied(copies: SegmentCopies, entry: RegionEntry, adapt: Adapt) -> RegionEntry:
    operators, in_flight = adapt(copies, entry)
    return RegionEntry(
        entry.region,
        origin=entry.origin,
        operators=operators,
        in_flight=in_flight,
        finished=entry.finished,
        failed=entry.failed,
        fallbacks=entry.fallbacks,
        stale_since_ms=entry.stale_since_ms,
        cause=entry.cause,
    )
