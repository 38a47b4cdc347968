"""The answer of a region at the end of an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._core import Owner, SegmentRef
from holdfast.regions.coordinator import Acked, Declined
from holdfast.regions.task.instance import Instances

if TYPE_CHECKING:
    from holdfast.regions.task.output_at_work import OutputAtWork


@dataclass(frozen=True)
class Answered:
    """An acknowledgement or a decline, not durable yet.

    Parameters
    ----------
    segments : sequence of (Owner, references)
        Segments that must be durable before the driver gets the answer.
    outputs : sequence of OutputAtWork
        Output that must be durable, too.
    shared : sequence of OutputAtWork
        Output whose rows go into files with those of other regions. The acknowledgement names these
        files once they are durable.
    keep : Instances or None
        Operators that the next attempt may continue with.
    figures : bytes
        Figures of its operators, see `protocol.figures`.
    """

    event: Acked | Declined
    segments: Sequence[tuple[Owner, Sequence[SegmentRef]]] = ()
    outputs: Sequence[OutputAtWork] = ()
    shared: Sequence[OutputAtWork] = ()
    keep: Instances | None = None
    figures: bytes = b""
