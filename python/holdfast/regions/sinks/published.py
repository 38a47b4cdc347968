"""The record of published output in a checkpoint folder; see `Publishers`.

Published output belongs to the user, who may move, rewrite or delete it. So nothing looks for it
once its publication is recorded. The record is for the newest checkpoint. The metadata of
the next checkpoint says the same of all earlier ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from holdfast._core import CheckpointMetadata, Staged
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.base.versions import require_known
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks.layout import output_id

LOG: Final = logging.getLogger(__name__)

VERSION: Final = 1


class PublishedRecord:
    """Identity of the output that was published last, by the name of the output.

    A mounted file system gets each publication at once, and a sync at the end. On others a write
    costs several requests, so the record is written at the end. Until then Spark's own commit of
    the batch says the same; see `is_published`.
    """

    def __init__(self, folders: CheckpointFolders) -> None:
        self._folders = folders
        self._warnings = SparingLog(LOG)
        self._of: dict[str, str] | None = None
        self._changed = False

    def has(self, output: str, checkpoint: int, staged: Iterable[Staged]) -> bool:
        """Return whether the record says that this output of a checkpoint was published."""
        return self._content().get(output) == output_id(checkpoint, staged)

    def note(self, output: str, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Note that this output of a checkpoint is published, for every reader to see."""
        noted = output_id(checkpoint, staged)
        if self._content().get(output) == noted:
            return
        self._content()[output] = noted
        self._changed = True
        if self._folders.root.appends:
            self._write(durable=False)

    def close(self) -> None:
        """Make the record durable; may be repeated."""
        if self._changed:
            self._write(durable=True)

    def _content(self) -> dict[str, str]:
        if self._of is None:
            self._of = {}
            # A machine that crashed may leave an empty file: that is no record.
            with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
                found = json.loads(self._folders.published.read_text())
                require_known(str(self._folders.published), found["version"], VERSION)
                self._of = dict(found["outputs"])
        return self._of

    def _write(self, *, durable: bool) -> None:
        text = json.dumps({"version": VERSION, "outputs": self._content()})
        try:
            self._folders.write_published(text, durable=durable)
        except Exception as error:  # py4j has errors of its own for a lost JVM.
            self._warnings.warn(
                "published",
                "the publication of output cannot be recorded, so files of the newest checkpoint "
                f"have to stay where they are until the next one: {error}",
            )


def note_published(
    folders: CheckpointFolders, checkpoint: int, staged: dict[str, list[Staged]]
) -> None:
    """Record outputs of a checkpoint that are published, durably."""
    record = PublishedRecord(folders)
    for output, of_one in staged.items():
        record.note(output, checkpoint, of_one)
    record.close()


def is_published(
    folders: CheckpointFolders, metadata: CheckpointMetadata, output: str, staged: list[Staged]
) -> bool:
    """Return whether something in the checkpoint folder says that output was published.

    The next attempt begins after the publication, and so does Spark's commit of the batch. The
    last checkpoint of a run that replays rows has the batch of the one before.
    """
    return (
        PublishedRecord(folders).has(output, metadata.id, staged)
        or any(id > metadata.id for id in folders.ids())
        or (metadata.kind == "checkpoint" and folders.commit_of(metadata.batch_id).exists())
    )


def staged_by_output(metadata: CheckpointMetadata) -> dict[str, list[Staged]]:
    """Return the output that a checkpoint has published or must publish, by output name."""
    found: dict[str, list[Staged]] = {}
    if metadata.outputs_at_most():
        for entry in metadata.regions.values():
            for one in entry.staged:
                found.setdefault(one.output, []).append(one)
    return found
