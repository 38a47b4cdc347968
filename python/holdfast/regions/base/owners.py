"""Owners of the segments of a region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast._core import Owner

#: Takes the operator's place in owners of in-flight data. No operator may have this name.
IN_FLIGHT_OPERATOR: Final = "in-flight"

#: The format's limit on each part of an owner's name, in UTF-8.
MAX_NAME_BYTES: Final = 1024


@dataclass(frozen=True)
class RegionOwners:
    """Owners of a region's segments."""

    pipeline: str
    region: str

    def state(self, operator: str, state: str) -> Owner:
        """Owner of one state of an operator (instance)."""
        return Owner(self.pipeline, operator, self.region, state)

    def in_flight(self, created: int) -> Owner:
        """Owner of in-flight data that attempt `created` stored; a region may need several."""
        return Owner(self.pipeline, IN_FLIGHT_OPERATOR, self.region, str(created))
