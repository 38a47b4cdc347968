"""The id of a checkpoint, for the function of ``foreach_batch``."""

from __future__ import annotations

from typing import Any, Self

from holdfast._core import CheckpointMetadata
from holdfast.regions.files.folders import IDENTITY_PROPERTY


class CheckpointId(int):
    """Id of a checkpoint: an integer that also identifies batch and pipeline.

    Together with `pipeline_id` it names the same rows for ever: ids only rise in a pipeline, also
    after it went back to an older checkpoint.

    Attributes
    ----------
    batch_id : int
        Spark's id of the batch. It does not identify rows: a pipeline's final checkpoint repeats
        the last batch's id, and after going back, batch ids repeat.
    pipeline_id : str
        Identity of the checkpoint folder, also after a move: 32 hexadecimal digits. A pipeline
        that begins from a savepoint or another folder has another one.
    """

    batch_id: int
    pipeline_id: str

    def __new__(cls, id: int, batch_id: int, pipeline_id: str) -> Self:
        """Make the id of a checkpoint."""
        made = super().__new__(cls, id)
        made.batch_id = batch_id
        made.pipeline_id = pipeline_id
        return made

    @classmethod
    def of(cls, metadata: CheckpointMetadata) -> Self:
        """Return the id of a checkpoint."""
        pipeline_id = metadata.properties.get(IDENTITY_PROPERTY, "")
        return cls(metadata.id, metadata.batch_id, pipeline_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (int(self), self.batch_id, self.pipeline_id)
