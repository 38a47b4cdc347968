"""The documents that the command line prints with ``--json``, for programs.

Sizes are in bytes, times in milliseconds since 1970. A value that is unknown or absent is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.files.verdicts import Verdict
from holdfast.queries.folder import QueryCheckpoint
from holdfast.queries.parked import ParkedPartition
from holdfast.queries.state import StatefulOperator, StoredSegment
from holdfast.regions.checkpoint.quarantine import quarantined_regions
from holdfast.regions.checkpoint.read import Summary, in_flight_rows
from holdfast.regions.checkpoint.skips import Skipped
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.coordinator.event_record import decode_all
from holdfast.regions.splits.assignment import skipped_splits

#: Figures of the index of a run.
_INDEX: Final = ("groups", "blocks", "separator_bytes", "filters", "filter_bytes")


def print_document(document: dict[str, Any]) -> None:
    """Print a document to stdout."""
    print(json.dumps(document, indent=1))


def of_checkpoints(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Return the checkpoints of a regional pipeline."""
    return {"checkpoints": [_checkpoint(summary) for summary in summaries]}


def _checkpoint(summary: Summary) -> dict[str, Any]:
    metadata = summary.metadata
    return {
        "id": metadata.id,
        "batch": metadata.batch_id,
        "kind": metadata.kind,
        "global": metadata.is_global,
        "created_ms": metadata.created_ms,
        "regions": len(metadata.regions),
        "finished_regions": summary.finished_regions,
        "failed": [
            {"region": region, "origin": origin} for region, origin in metadata.failed.items()
        ],
        "in_flight_rows": summary.in_flight_rows,
        "in_flight_bytes": summary.in_flight_bytes,
        "staged_files": summary.staged_files,
        "stored_bytes": summary.stored_bytes,
        "skipped_splits": _skipped(metadata),
        "waiting_events": events_of(metadata),
        "properties": dict(metadata.properties),
    }


def of_regions(metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return one checkpoint of a regional pipeline with its regions."""
    return {
        "id": metadata.id,
        "batch": metadata.batch_id,
        "regions": [_region(entry) for entry in metadata.regions.values()],
        "skipped_splits": _skipped(metadata),
        "waiting_events": events_of(metadata),
    }


def events_of(metadata: CheckpointMetadata) -> list[dict[str, Any]]:
    """Return the events of coordinators that wait for a region that fell back."""
    return [
        {"operator": operator, "region": region, "attempt": attempt, "bytes": len(event)}
        for operator, events in decode_all(metadata.coordinators).items()
        for region, waiting in events.waiting.items()
        for attempt, event in waiting
    ]


def _skipped(metadata: CheckpointMetadata) -> list[dict[str, Any]]:
    return [
        {
            "path": one.split.path,
            "row_groups": one.split.groups,
            "bytes": one.split.size,
            "reason": one.reason,
        }
        for one in skipped_splits(metadata)
    ]


def _region(entry: RegionEntry) -> dict[str, Any]:
    return {
        "region": entry.region,
        "failed": entry.failed,
        "finished": entry.finished,
        "origin": entry.origin,
        "fallbacks": entry.fallbacks,
        "stale_since_ms": entry.stale_since_ms,
        "in_flight_rows": in_flight_rows(entry),
        "in_flight_bytes": entry.in_flight_bytes,
        "operators": len(entry.operators),
        "segments": len(refs := entry.refs()),
        "stored_bytes": sum(ref.length for _, _, ref in refs),
        "staged_files": len(entry.staged),
        "cause": entry.cause or None,
    }


def of_query(query: QueryCheckpoint, operators: Sequence[StatefulOperator]) -> dict[str, Any]:
    """Return the checkpoint of an ordinary query, and its stateful operators."""
    return {
        "query": {**asdict(query), "folder": str(query.folder)},
        "operators": [asdict(operator) for operator in operators],
    }


def of_history(records: Sequence[HistoryRecord]) -> dict[str, Any]:
    """Return attempts that ended, oldest first."""
    return {"attempts": [_attempt(record) for record in records]}


def _attempt(record: HistoryRecord) -> dict[str, Any]:
    found = asdict(record)
    found["batch"] = found.pop("batch_id")
    found["unnamed_failed"] = found.pop("unnamed")
    found["cause"] = record.cause or None
    return found


def of_verdicts(verdicts: Sequence[Verdict], *, number: str, part: str) -> list[dict[str, Any]]:
    """Return the readable parts of checkpoints or batches, by number, and the damage."""
    return [
        {
            number: verdict.id,
            "damaged": bool(verdict.damage),
            f"{part}s": verdict.parts,
            f"readable_{part}s": verdict.readable_parts,
            "segments": verdict.segments,
            "readable_segments": verdict.readable_segments,
            "damage": [{part: one.part, "message": one.message} for one in verdict.damage],
        }
        for verdict in verdicts
    ]


def of_move(
    batch: int,
    source: str,
    target: str,
    operators: Sequence[Mapping[str, Any]],
    *,
    ms: int,
    moved: bool,
) -> dict[str, Any]:
    """Return the state that a batch gets from another provider, by operator.

    - `ms`: how long it took, or would take.
    - `moved`: False if nothing was changed; rows and bytes are estimates then.
    """
    shown = ("operator", "name", "partitions", "rows", "bytes")
    return {
        "batch": batch,
        "from": source,
        "to": target,
        "moved": moved,
        "ms": ms,
        "operators": [{key: one[key] for key in shown} for one in operators],
    }


def of_parked(parked: Sequence[ParkedPartition]) -> dict[str, Any]:
    """Return the parked partitions of a query with their pending input."""
    return {"parked": [_parked(one) for one in parked]}


def _parked(one: ParkedPartition) -> dict[str, Any]:
    return {
        "operator": one.operator,
        "name": one.name,
        "partition": one.partition,
        "since_batch": one.inputs[0].batch,
        "since_ms": one.since_ms,
        "tries": one.tries,
        "keys": one.keys,
        "rows": one.rows,
        "bytes": one.bytes,
        "error": one.error,
        "inputs": [
            {
                "batch": input.batch,
                "rows": input.rows,
                "skipped_rows": input.skipped_rows,
                "bytes": input.bytes,
            }
            for input in one.inputs
        ],
    }


def of_quarantine(metadata: CheckpointMetadata, skipped: Skipped) -> dict[str, Any]:
    """Return the regions in quarantine in a checkpoint of a regional pipeline."""
    found = quarantined_regions(metadata, skipped)
    return {"id": metadata.id, "quarantined": [asdict(one) for one in found]}


def of_segments(batch: int, segments: Sequence[StoredSegment]) -> dict[str, Any]:
    """Return the segments that a batch of a query consists of."""
    return {"batch": batch, "segments": [_segment(segment) for segment in segments]}


def _segment(segment: StoredSegment) -> dict[str, Any]:
    found = segment.report
    place = {
        "operator": segment.operator,
        "partition": segment.partition,
        "file": segment.ref.file,
        "offset": segment.ref.offset,
        "stored_bytes": segment.ref.length,
        "damage": segment.message,
    }
    if isinstance(found, str):
        return place
    return {
        **place,
        "store": found.owner.store,
        "kind": "pending_input" if found.kind == "in_flight" else found.kind,
        "version": found.created,
        # The last piece of an input counts all rows.
        "entries": found.entries or None if found.kind == "in_flight" else found.entries,
        "bytes": found.payload_bytes,
        "index": {name: getattr(found, name) for name in _INDEX} if found.kind == "run" else None,
    }
