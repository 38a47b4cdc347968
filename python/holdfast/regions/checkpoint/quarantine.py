"""The regions of a checkpoint that are in quarantine, and the rows that they owe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast._core import CheckpointMetadata, InFlight
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.files.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.files.segments import stored_segments
from holdfast.regions.state.segments import read_in_flight

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns beside those of the rows: the checkpoint that stored a row, and the row's number among
#: all that its region owes.
CHECKPOINT: Final = "_checkpoint"
ROW: Final = "_row"


@dataclass(frozen=True, kw_only=True)
class QuarantinedRegion:
    """A region in quarantine.

    Attributes
    ----------
    region : str
        Its name.
    since_ms : int or None
        When it fell back first, in milliseconds since 1970.
    fallbacks : int
        How often it failed since.
    origin : int
        Id of the checkpoint that took its state.
    rows, bytes : int
        Rows that it owes, and their size as they are stored.
    error : str
        Why it failed last.
    """

    region: str
    since_ms: int | None
    fallbacks: int
    origin: int
    rows: int
    bytes: int
    error: str


def quarantined_regions(metadata: CheckpointMetadata) -> list[QuarantinedRegion]:
    """Return the regions in quarantine, by name."""
    return [
        QuarantinedRegion(
            region=region,
            since_ms=entry.stale_since_ms,
            fallbacks=entry.fallbacks,
            origin=entry.origin,
            rows=in_flight_rows(entry),
            bytes=entry.in_flight_bytes,
            error=entry.cause,
        )
        for region, entry in metadata.regions.items()
        if in_quarantine(entry)
    ]


def require_quarantined(metadata: CheckpointMetadata, region: str) -> Sequence[InFlight]:
    """Return where the rows of a region in quarantine are.

    Raises
    ------
    ValueError
        If it is not in quarantine.
    """
    entry = metadata.regions.get(region)
    if entry is None or not in_quarantine(entry):
        raise ValueError(
            f"region {region!r} is not in quarantine in checkpoint {metadata.id}; in quarantine: "
            f"{', '.join(repr(one.region) for one in quarantined_regions(metadata)) or 'none'}"
        )
    return entry.in_flight


def owed_rows(folders: CheckpointFolders, metadata: CheckpointMetadata, region: str) -> pa.Table:
    """Read the rows that a region in quarantine owes, oldest first.

    Rows that wait between two operators have the columns of the operator in front.

    Raises
    ------
    ValueError
        If it is not in quarantine.
    CorruptSegmentError, FileNotFoundError
        If rows are damaged or missing.
    """
    import pyarrow as pa

    pieces = require_quarantined(metadata, region)
    owners = RegionOwners(metadata.properties.get(PIPELINE_PROPERTY, ""), region)
    tables: list[pa.Table] = []
    with stored_segments(folders.segments) as stored:
        for piece in pieces:
            for channel in read_in_flight(stored, owners, piece):
                for batch in channel.batches:
                    created = pa.array([piece.created] * batch.num_rows, pa.int64())
                    table = pa.Table.from_batches([batch])
                    tables.append(table.add_column(0, CHECKPOINT, created))
    rows = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    return rows.add_column(0, ROW, pa.array(range(rows.num_rows), pa.int64()))
