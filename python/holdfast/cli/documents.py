"""What the command line prints with ``--json``: one document, for programs.

Sizes are in bytes, times in milliseconds since 1970, what is not known or not there is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.checkpoint.query_folder import QueryCheckpoint
from holdfast.regions.checkpoint.query_state import BatchVerdict, StoredSegment
from holdfast.regions.checkpoint.read import Summary, in_flight_rows
from holdfast.regions.checkpoint.verify import Verdict
from holdfast.regions.coordinator import HistoryRecord


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
        "properties": dict(metadata.properties),
    }


def of_regions(metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return one checkpoint of a regional pipeline with its regions."""
    return {
        "id": metadata.id,
        "batch": metadata.batch_id,
        "regions": [_region(entry) for entry in metadata.regions.values()],
    }


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
        "segments": len(entry.refs()),
        "staged_files": len(entry.staged),
        "cause": entry.cause or None,
    }


def of_query(query: QueryCheckpoint) -> dict[str, Any]:
    """Return the checkpoint of an ordinary query."""
    return {"query": {**asdict(query), "folder": str(query.folder)}}


def of_history(records: Sequence[HistoryRecord]) -> dict[str, Any]:
    """Return what became of attempts, oldest first."""
    return {"attempts": [_attempt(record) for record in records]}


def _attempt(record: HistoryRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "batch": record.batch_id,
        "kind": record.kind,
        "outcome": record.outcome,
        "run": record.run,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "in_flight_rows": record.in_flight_rows,
        "failed": [
            {"region": failed.region, "origin": failed.origin, "cause": failed.cause}
            for failed in record.failed
        ],
        "unnamed_failed": record.unnamed,
        "cause": record.cause or None,
    }


def of_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what can be read of the checkpoints of a regional pipeline."""
    return {
        "checkpoints": [
            {
                "id": verdict.checkpoint,
                "damaged": bool(verdict.damage),
                "regions": verdict.regions,
                "readable_regions": verdict.readable_regions,
                "segments": verdict.segments,
                "readable_segments": verdict.readable_segments,
                "damage": [
                    {"region": damage.region, "message": damage.message}
                    for damage in verdict.damage
                ],
            }
            for verdict in verdicts
        ]
    }


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
        "kind": found.kind,
        "version": found.created,
        "entries": found.entries,
        "bytes": found.payload_bytes,
        "index": None
        if found.kind != "run"
        else {
            "groups": found.groups,
            "blocks": found.blocks,
            "separator_bytes": found.separator_bytes,
            "filters": found.filters,
            "filter_bytes": found.filter_bytes,
        },
    }


def of_batch_verdicts(verdicts: Sequence[BatchVerdict]) -> dict[str, Any]:
    """Return what can be read of the state of a query's batches."""
    return {
        "batches": [
            {
                "batch": verdict.batch,
                "damaged": bool(verdict.damage),
                "partitions": verdict.partitions,
                "readable_partitions": verdict.readable_partitions,
                "segments": verdict.segments,
                "readable_segments": verdict.readable_segments,
                "damage": [
                    {"partition": damage.partition, "message": damage.message}
                    for damage in verdict.damage
                ],
            }
            for verdict in verdicts
        ]
    }
