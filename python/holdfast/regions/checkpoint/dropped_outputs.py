"""Side outputs that a checkpoint has rows of, and that the pipeline does not declare any more."""

from __future__ import annotations

from pathlib import Path

from holdfast._core import CheckpointMetadata, Staged
from holdfast.regions.files.folders import CheckpointFolders, output_property
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks.delivered import last_delivered
from holdfast.regions.sinks.delta import LOG_FOLDER, DeltaSink
from holdfast.regions.sinks.parquet import ParquetSink


def require_settled(
    metadata: CheckpointMetadata, folders: CheckpointFolders, plan: PipelinePlan
) -> None:
    """Check that rows of side outputs that a plan lacks were published.

    Parameters
    ----------
    folders : CheckpointFolders
        The folder of the checkpoint.

    Raises
    ------
    ValueError
        If they were not, or nothing tells.
    """
    declared = {output.name for output in plan.outputs}
    if metadata.outputs_at_most() <= declared:
        return
    dropped: dict[str, list[Staged]] = {}
    for entry in metadata.regions.values():
        for one in entry.staged:
            if one.output not in declared:
                dropped.setdefault(one.output, []).append(one)
    for name, staged in dropped.items():
        if not _is_settled(metadata, folders, name, staged):
            raise ValueError(
                f"checkpoint {metadata.id} in {folders.root} has rows for the side output "
                f"{name!r}, which the pipeline does not declare, and nothing tells that they were "
                f"published: start it once more with .side({name!r}, ...), which publishes them, "
                "and leave that out later"
            )


def _is_settled(
    metadata: CheckpointMetadata, folders: CheckpointFolders, name: str, staged: list[Staged]
) -> bool:
    function = folders.output(name)
    if function.is_dir():
        return metadata.id <= last_delivered(function)
    location = metadata.properties.get(output_property(name), "")
    # Metadata may come from anywhere, so no server is connected to that only metadata names (R92).
    if not location.startswith("/"):
        return False
    kind = DeltaSink if Path(location, LOG_FOLDER).is_dir() else ParquetSink
    return not kind(Path(location)).unpublished(staged)
