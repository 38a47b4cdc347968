"""The clean-up of files whose managers are gone, by the side that reaches the folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast._core import CheckpointMetadata, OrphanReclaimer
from holdfast.files.reached import HadoopPath, call_jvm
from holdfast.regions.files.folders import CheckpointFolders


def orphan_reclaimer(
    folders: CheckpointFolders, pipeline: str, bridge: Any
) -> tuple[Callable[..., tuple[str, list[str]]], Callable[[], None]]:
    """Return the clean-up of a pipeline's segments, and the release of its resources.

    The first has the signature of `holdfast._core.OrphanReclaimer.reclaim`. `bridge` is py4j's view
    of ``io.holdfast.spark.RegionalBridge``.
    """
    segments = folders.segments
    if not isinstance(segments, HadoopPath):
        return OrphanReclaimer(segments, pipeline).reclaim, lambda: None
    opened = (str(segments), str(folders.metadata), pipeline)
    handle = call_jvm("looking at the files of", segments, lambda _: bridge.openOrphans(*opened))

    def reclaim(
        retained: Sequence[CheckpointMetadata], *, live_terms: set[int], newest_term: int
    ) -> tuple[str, list[str]]:
        needed = ([metadata.id for metadata in retained], sorted(live_terms), newest_term)
        done = call_jvm(
            "reclaiming files in", segments, lambda _: bridge.reclaimOrphans(handle, *needed)
        )
        summary, *wasteful = map(str, done)
        return summary, wasteful

    return reclaim, lambda: bridge.closeOrphans(handle)
