"""Deleting metadata that is only too old: what storage refuses is tried again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.base.sparing_log import SparingLog

LOG: Final = logging.getLogger(__name__)

#: Refusals after which the rest waits for the next checkpoint: where a file system refuses
#: everything, each one costs the batch a request that may take long.
MAX_REFUSED: Final = 3


class CleanUp:
    """Drops the metadata of subsumed checkpoints (R76).

    Parameters
    ----------
    folders : CheckpointFolders
        Where the metadata lies.
    """

    def __init__(self, folders: CheckpointFolders) -> None:
        self._folders = folders
        self._together = folders.dropped_together > 1
        self._warnings = SparingLog(LOG)

    def drop(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Delete the metadata of checkpoints as far as storage lets it; return what is gone."""
        # What is refused is not told apart then; what is gone already is deleted once more.
        if self._together:
            with suppress(OSError):
                self._folders.drop(*ids)
                return tuple(sorted(ids))
        gone: list[int] = []
        refused = 0
        # What was refused before is the oldest: it must not keep the rest from being deleted.
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
            # Of those that were not tried again, some may have gone with the others.
            with suppress(OSError):
                there = set(list_metadata(self._folders.metadata))
                gone = [id for id in ids if id not in there]
        return tuple(sorted(gone))
