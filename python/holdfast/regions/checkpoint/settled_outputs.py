"""Output of a checkpoint that the sinks of a pipeline do not know.

A pipeline may drop a side output, or write an output to another place. Rows that were staged for
the old sink have to be published before, because no sink would publish them later.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from holdfast._core import CheckpointMetadata, Staged
from holdfast.regions.files.folders import CheckpointFolders, output_property
from holdfast.regions.protocol.orders import OutputPlan, PipelinePlan
from holdfast.regions.sinks.delivered import last_delivered
from holdfast.regions.sinks.delta import LOG_FOLDER, DeltaSink
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.published import is_published, staged_by_output
from holdfast.regions.sinks.sink import TwoPhaseSink

LOG: Final = logging.getLogger(__name__)


def require_settled(
    metadata: CheckpointMetadata, folders: CheckpointFolders, plan: PipelinePlan
) -> None:
    """Check that rows of side outputs that a plan lacks were published, else a ValueError.

    `folders` is the folder of the checkpoint. Without a record, rows count as unpublished.
    """
    declared = {output.name for output in plan.outputs}
    if metadata.outputs_at_most() <= declared:
        return
    for name, staged in staged_by_output(metadata).items():
        if name not in declared and not _is_settled(metadata, folders, name, staged):
            raise ValueError(
                f"checkpoint {metadata.id} in {folders.root} has rows for the side output "
                f"{name!r}, which the pipeline does not declare, and nothing tells that they were "
                f"published: start it once more with .side({name!r}, ...), which publishes them, "
                "and leave that out later"
            )


def published_outputs(
    metadata: CheckpointMetadata, folders: CheckpointFolders, plan: PipelinePlan
) -> dict[str, list[Staged]]:
    """Return the outputs of a pipeline's own checkpoint that are known to be published.

    Raises a ValueError if an output now goes to another place, and nothing says that its rows were
    published.
    """
    known: dict[str, list[Staged]] = {}
    staged_for = staged_by_output(metadata)
    for output in plan.outputs:
        if not (staged := staged_for.get(output.name)):
            continue
        before, now = _places(metadata, output)
        if is_published(folders, metadata, output.name, staged) or (
            before != now and _is_settled(metadata, folders, output.name, staged)
        ):
            known[output.name] = staged
        elif before != now and not _came_along(output.sink, staged):
            raise ValueError(
                f"checkpoint {metadata.id} in {folders.root} has rows of {_called(output)} that "
                f"were staged for {before}, and nothing tells that they were published: start the "
                f"pipeline once more with this output in {before}, which publishes them, and write "
                f"to {now} later"
            )
    return known


def say_what_stays(metadata: CheckpointMetadata, plan: PipelinePlan) -> None:
    """Log which outputs go to another place than in a checkpoint."""
    for output in plan.outputs:
        before, now = _places(metadata, output)
        if before != now:
            LOG.warning(
                "%s went to %s up to checkpoint %d, and stays there as it is; it goes to %s from "
                "now on",
                _called(output),
                before,
                metadata.id,
                now,
            )


def _places(metadata: CheckpointMetadata, output: OutputPlan) -> tuple[str, str]:
    """Return where an output went, and where it goes now."""
    now = output.sink.location
    return metadata.properties.get(output_property(output.name), now), now


def _called(output: OutputPlan) -> str:
    return f"side output {output.name!r}" if output.name else "the main output"


def _came_along(sink: TwoPhaseSink, staged: list[Staged]) -> bool:
    """Return whether output may be in another place because its folder was moved there."""
    if not isinstance(sink, ParquetSink):
        return True  # Its `recover` finds out.
    waiting = set(sink.unpublished(staged))
    paths = {one.path for one in staged if str(sink.root / one.target) in waiting}
    return all((sink.root / path).exists() for path in paths)


def _is_settled(
    metadata: CheckpointMetadata, folders: CheckpointFolders, name: str, staged: list[Staged]
) -> bool:
    if is_published(folders, metadata, name, staged):
        return True
    function = folders.output(name)
    if function.is_dir():
        return metadata.id <= last_delivered(function)
    location = metadata.properties.get(output_property(name), "")
    # Metadata may come from anywhere: connect to no server that only metadata names (R92).
    if not location.startswith("/"):
        return False
    kind = DeltaSink if Path(location, LOG_FOLDER).is_dir() else ParquetSink
    return not kind(Path(location)).unpublished(staged)
