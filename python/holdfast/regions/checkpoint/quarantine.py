"""The regions of a checkpoint that are in quarantine, and their pending rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast._core import CheckpointMetadata, InFlight, RegionEntry
from holdfast.files.segments import stored_segments
from holdfast.files.skips import ROW, Range
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.checkpoint.skips import Skipped, skipped_rows
from holdfast.regions.files.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.graph import SOURCE
from holdfast.regions.state.segments import read_in_flight

if TYPE_CHECKING:
    import pyarrow as pa

#: Column that is added to the rows: the checkpoint that stored a row.
CHECKPOINT: Final = "_checkpoint"

#: Number of a row among the rows that its checkpoint stored for the region; null between operators.
PLACE: Final = "_place"


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
        Its pending rows, and their stored size.
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


def quarantined_regions(metadata: CheckpointMetadata, skipped: Skipped) -> list[QuarantinedRegion]:
    """Return the regions in quarantine, by name; `skipped` is from `skipped_rows`."""
    return [
        QuarantinedRegion(
            region=region,
            since_ms=entry.stale_since_ms,
            fallbacks=entry.fallbacks,
            origin=entry.origin,
            rows=in_flight_rows(entry) - _moved(entry, skipped.get(region, {})),
            bytes=entry.in_flight_bytes,
            error=entry.cause,
        )
        for region, entry in metadata.regions.items()
        if in_quarantine(entry)
    ]


def _moved(entry: RegionEntry, skipped: Mapping[int, Sequence[Range]]) -> int:
    """Return how many rows of a region were moved to dead letters."""
    moved = (skipped.get(piece.created, ()) for piece in entry.in_flight) if skipped else ()
    return sum(end - begin for ranges in moved for begin, end in ranges)


def require_quarantined(metadata: CheckpointMetadata, region: str) -> Sequence[InFlight]:
    """Return where the rows of a region are; raises a ValueError if it is not in quarantine."""
    entry = metadata.regions.get(region)
    if entry is None or not in_quarantine(entry):
        raise ValueError(
            f"region {region!r} is not in quarantine in checkpoint {metadata.id}; in quarantine: "
            f"{', '.join(repr(one.region) for one in quarantined_regions(metadata, {})) or 'none'}"
        )
    return entry.in_flight


def owed_rows(folders: CheckpointFolders, metadata: CheckpointMetadata, region: str) -> pa.Table:
    """Read the pending rows of a region in quarantine, oldest first, without dead letters.

    Rows that wait between operators have the columns of the operator before. Raises the errors of
    `require_quarantined`, and CorruptSegmentError or FileNotFoundError for damaged or missing rows.
    """
    return placed_rows(folders, metadata, region).drop_columns([PLACE])


def placed_rows(folders: CheckpointFolders, metadata: CheckpointMetadata, region: str) -> pa.Table:
    """Return the rows of `owed_rows` with a column `PLACE`."""
    import pyarrow as pa

    pieces = require_quarantined(metadata, region)
    skipped = skipped_rows(folders).get(region, {})
    owners = RegionOwners(metadata.properties.get(PIPELINE_PROPERTY, ""), region)
    batches: list[pa.Table] = []
    created: list[int] = []
    places: list[int | None] = []
    with stored_segments(folders.segments) as stored:
        for piece in pieces:
            ranges = skipped.get(piece.created, ())
            channels = read_in_flight(stored, owners, piece, skipped=ranges)
            found = [batch for channel in channels for batch in channel.batches]
            batches += [pa.Table.from_batches([batch]) for batch in found]
            left_out = {number for one in ranges for number in range(*one)}
            numbers = [number for number in range(piece.rows) if number not in left_out]
            created += [piece.created] * len(numbers)
            places += numbers if piece.channel == SOURCE else [None] * len(numbers)
    rows = pa.concat_tables(batches, promote_options="permissive") if batches else pa.table({})
    for name, values in ((CHECKPOINT, created), (ROW, range(rows.num_rows)), (PLACE, places)):
        rows = rows.add_column(0, name, pa.array(values, pa.int64()))
    return rows
