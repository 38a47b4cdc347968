"""Deletes metadata that is too old; the next checkpoint tries refused files again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.files.folders import CheckpointFolders

LOG: Final = logging.getLogger(__name__)

#: Refusals after which the rest waits for the next checkpoint: each may delay the batch for long.
MAX_REFUSED: Final = 3


class CleanUp:
    """Drops the metadata of subsumed checkpoints (R76)."""

    def __init__(self, folders: CheckpointFolders) -> None:
        self._folders = folders
        self._together = folders.dropped_together > 1
        self._warnings = SparingLog(LOG)

    def drop_checkpoints(
        self, ids: Sequence[int], retained: Sequence[CheckpointMetadata]
    ) -> tuple[int, ...]:
        """Delete the metadata of some of the retained checkpoints, see `drop`."""
        gone = self.drop(ids)
        kept = {metadata.base_file for metadata in retained if metadata.id not in gone}
        known = {metadata.base_file for metadata in retained}
        try:
            self._folders.drop_bases({name for name in known - kept if name is not None})
        except OSError as error:
            self._warnings.warn(
                "regions", f"files that no checkpoint names stay until the next start: {error}"
            )
        return gone

    def drop(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Delete the metadata of checkpoints as far as possible; returns the deleted ids."""
        if self._together:
            # An error does not say which files were refused, so then delete them one by one.
            with suppress(OSError):
                self._folders.drop(*ids)
                return tuple(sorted(ids))
        gone: list[int] = []
        refused = 0
        # The oldest were refused before, and must not prevent that the rest is deleted.
        for id in sorted(ids, reverse=True):
            try:
                self._folders.drop(id)
            except OSError as error:
                refused += 1
                self._warnings.warn(
                    "metadata",
                    f"checkpoint {id} cannot be deleted yet: it stays with all that it needs, and "
                    f"the next checkpoint tries again: {error}",
                )
                if refused == MAX_REFUSED:
                    break
            else:
                gone.append(id)
        if self._together:
            # The request for all may have deleted files that were not tried again.
            with suppress(OSError):
                there = set(self._folders.ids())
                gone = [id for id in ids if id not in there]
        return tuple(sorted(gone))
