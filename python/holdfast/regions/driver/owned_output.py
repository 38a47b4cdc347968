"""Publishes the output of checkpoints while it belongs to the pipeline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from holdfast._core import RegionEntry
from holdfast.regions.base.errors import SinkFailedError
from holdfast.regions.base.problem import in_words
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.sinks import CheckpointId
from holdfast.regions.sinks.publisher import Publishes

LOG: Final = logging.getLogger(__name__)


class OwnedOutput:
    """The output of a pipeline; `may_publish` raises once output must not be changed."""

    def __init__(self, publisher: Publishes, may_publish: Callable[[], None] | None) -> None:
        self._publisher = publisher
        self._require_owned = may_publish or (lambda: None)
        self._warnings = SparingLog(LOG)

    def commit(
        self,
        checkpoint: CheckpointId,
        concerned: Collection[str],
        entries: Mapping[str, RegionEntry],
        *,
        recovering: bool,
    ) -> None:
        """Publish staged output of regions; at a start, the rest of it."""
        regions = [region for region in sorted(concerned) if region in entries]
        staged = [one for region in regions for one in entries[region].staged]
        self._require_owned()
        try:
            if recovering:
                self._publisher.recover(checkpoint, staged)
            else:
                self._publisher.commit(checkpoint, staged)
        except SinkFailedError as error:
            to_blame = [region for region in regions if entries[region].staged]
            raise error.of_regions(to_blame) from error.__cause__

    def sweep(self, before_attempt: int) -> None:
        """Throw away output that no reader sees; every later sweep tries again."""
        self._require_owned()
        try:
            self._publisher.sweep(before_attempt)
        except Exception as error:
            self._warnings.warn(
                "sweep",
                "output that no reader sees cannot be removed yet, and the next checkpoint tries "
                f"again: {in_words(error)}",
            )
