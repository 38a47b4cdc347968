"""Parts of a graph: stages of operator instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

# Separates the two ends in the name of a channel, so no stage's name has it.
ARROW = "->"

Route: TypeAlias = "Callable[[pa.RecordBatch, int], Sequence[pa.RecordBatch | None]]"
"""Splits a batch over ``n`` instances: ``n`` parts in the order of the instances.

A part that is None or has no rows sends nothing. A route must be deterministic, because replayed
rows have to reach the instance with their state.
"""


class StageOperator(Protocol):
    """One instance of an operator, for the graph.

    Calls never overlap. Batches that a call yields have been sent when the call ends.
    """

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Consume one batch and yield the resulting ones."""

    def snapshot(self, checkpoint: int) -> object:
        """Return the state at this moment; the call is the stall of the instance."""

    def end_of_data(self) -> Iterable[pa.RecordBatch]:
        """Flush: all inputs have ended, no batch follows. Called once in the life of a state."""


@dataclass(frozen=True)
class StageSpec:
    """One stage: parallel instances of one operator.

    Parameters
    ----------
    name
        Unique in the graph; part of channel names.
    route
        Splits a batch over the instances. With a route every instance of the stage before (or the
        source) is joined with every instance of this one. Without a route the stage has either one
        instance, or as many as the stage before, joined one to one.

    Raises
    ------
    ValueError
        If the name is empty or contains ``->``, or if there is no instance.
    """

    name: str
    instances: Sequence[StageOperator]
    route: Route | None = None

    def __post_init__(self) -> None:
        if not self.name or ARROW in self.name:
            raise ValueError(
                f"expected a stage name, not empty and without {ARROW!r}, found {self.name!r}"
            )
        if not self.instances:
            raise ValueError(f"stage {self.name}: expected at least one instance, found none")
