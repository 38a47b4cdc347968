"""What a region has to say at the end of an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._core import InFlight, Owner, RegionEntry, SegmentRef
from holdfast.regions.base.problem import Problem
from holdfast.regions.task.instance import Instances

if TYPE_CHECKING:
    from holdfast.regions.sinks.at_work import StageAtWork


@dataclass(frozen=True)
class Answered:
    """An acknowledgement or a decline, not durable yet.

    Parameters
    ----------
    entry : RegionEntry or None
        Of an acknowledgement; None: the region declines.
    segments : sequence of (Owner, references)
        What must be durable before the driver gets the answer.
    stage : StageAtWork or None
        Output that must be durable, too.
    cause : str
        Of a decline.
    in_flight : tuple of InFlight
        Of a decline: the stored rows.
    had_rows : bool
        The region had rows in this batch.
    keep : Instances or None
        Operators that the next attempt may continue with.
    problem : Problem or None
        Of a decline: the exception that was raised, if one was.
    figures : bytes
        What its operators did, see `protocol.figures`.
    """

    entry: RegionEntry | None
    segments: Sequence[tuple[Owner, Sequence[SegmentRef]]]
    stage: StageAtWork | None = None
    cause: str = ""
    in_flight: tuple[InFlight, ...] = ()
    had_rows: bool = True
    keep: Instances | None = None
    problem: Problem | None = None
    figures: bytes = b""
