"""The quarantine of a running pipeline, for its user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.regions.checkpoint.quarantine import (
    QuarantinedRegion,
    owed_rows,
    quarantined_regions,
    require_quarantined,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.regions.driver.pipeline_driver import PipelineDriver

#: Bound on the regions that the text of a quarantine names.
SHOWN: Final = 10


class Quarantine:
    """Regions in quarantine: their rows are stored, and their operators do not run."""

    def __init__(self, driver: PipelineDriver) -> None:
        self._driver = driver

    @property
    def regions(self) -> Sequence[QuarantinedRegion]:
        """The regions that are in quarantine in the latest checkpoint, by name."""
        return quarantined_regions(self._driver.latest, self._driver.plan.skipped)

    def rows(self, region: str) -> pa.Table:
        """Return the pending rows of a region, oldest first.

        Waits until no batch is under way.

        Parameters
        ----------
        region : str
            Its name, as in `regions`.

        Returns
        -------
        pyarrow.Table
            With columns ``_row``, a row's number among all of them, and ``_checkpoint``, which
            stored it.

        Raises
        ------
        ValueError
            If the region is not in quarantine.
        """
        with self._driver.turn("quarantine().rows()"):
            return owed_rows(self._driver.folders, self._driver.latest, region)

    def release(self, region: str) -> None:
        """Let a region run again with the next batch.

        It begins with its pending rows. If it fails, it is in quarantine again at once. Waits until
        no batch is under way.

        Parameters
        ----------
        region : str
            Its name, as in `regions`.

        Raises
        ------
        ValueError
            If the region is not in quarantine.
        """
        with self._driver.turn("quarantine().release()"):
            require_quarantined(self._driver.latest, region)
            self._driver.replay(region)

    def __repr__(self) -> str:
        names = ", ".join(repr(one.region) for one in self.regions[:SHOWN])
        more = f", and {len(self.regions) - SHOWN} more" if len(self.regions) > SHOWN else ""
        return f"<Quarantine of {len(self.regions)} regions{': ' if names else ''}{names}{more}>"
