"""The clean-up of files whose managers are gone, by the side that reaches the folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast._core import CheckpointMetadata, OrphanReclaimer
from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.hadoop_path import HadoopPath, call_jvm


class Reclaimer(Protocol):
    """Deletes files of managers that are gone; see `holdfast._core.OrphanReclaimer`."""

    def reclaim(
        self, retained: Sequence[CheckpointMetadata], *, live_terms: set[int], newest_term: int
    ) -> str:
        """Delete what no retained checkpoint needs, and say what was done."""

    def close(self) -> None:
        """Let go of what it knows."""


def orphan_reclaimer(folders: CheckpointFolders, pipeline: str, bridge: Any) -> Reclaimer:
    """Return what cleans up a pipeline's segments.

    Parameters
    ----------
    folders : CheckpointFolders
        The pipeline's folder.
    pipeline : str
        Name of the pipeline.
    bridge
        py4j's view of ``io.holdfast.spark.RegionalBridge``.
    """
    segments = folders.segments
    if isinstance(segments, HadoopPath):
        return _InJvm(segments, folders, pipeline, bridge)
    return _Here(OrphanReclaimer(segments, pipeline))


class _Here:
    def __init__(self, reclaimer: OrphanReclaimer) -> None:
        self._reclaimer = reclaimer

    def reclaim(
        self, retained: Sequence[CheckpointMetadata], *, live_terms: set[int], newest_term: int
    ) -> str:
        return self._reclaimer.reclaim(retained, live_terms=live_terms, newest_term=newest_term)

    def close(self) -> None:
        pass


class _InJvm:
    def __init__(
        self, segments: HadoopPath, folders: CheckpointFolders, pipeline: str, bridge: Any
    ) -> None:
        self._segments = segments
        self._bridge = bridge
        self._handle = call_jvm(
            "looking at the files of",
            segments,
            lambda _files: bridge.openOrphans(str(segments), str(folders.metadata), pipeline),
        )

    def reclaim(
        self, retained: Sequence[CheckpointMetadata], *, live_terms: set[int], newest_term: int
    ) -> str:
        ids = [metadata.id for metadata in retained]
        terms = sorted(live_terms)
        return str(
            call_jvm(
                "reclaiming files in",
                self._segments,
                lambda _files: self._bridge.reclaimOrphans(self._handle, ids, terms, newest_term),
            )
        )

    def close(self) -> None:
        self._bridge.closeOrphans(self._handle)
