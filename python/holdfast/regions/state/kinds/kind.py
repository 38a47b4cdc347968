"""The protocol of all kinds of state, and the facts that the states of an instance share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from holdfast.regions.base.saved import Lease, SavedState, StateKind
from holdfast.regions.state.arrays.chunks import Layout
from holdfast.regions.state.arrays.host import FrozenArray
from holdfast.regions.state.kinds.form import StateForm
from holdfast.regions.state.tables.stored_table import FrozenTable
from holdfast.regions.state.tables.table import OpenTable
from holdfast.regions.state.tables.times import AttemptTimes

FrozenState: TypeAlias = SavedState | FrozenArray | FrozenTable
"""Content of a state at one moment: all of it, a large array yet to be written, or a table."""

Commit: TypeAlias = Callable[[], FrozenState]
"""Ends what `Kind.take` began. It is called once in an attempt."""


@dataclass(frozen=True)
class StateOptions:
    """Settings of states that users do not give.

    Parameters
    ----------
    layout : Layout
        How large arrays are cut.
    document_bytes : int, default 64 KiB
        A map or list whose text has more bytes becomes a table.
    only_declared : bool, default False
        No checkpoint is taken. Changes of arrays are not followed, and large ones not filled.
    """

    layout: Layout = field(default_factory=Layout)
    document_bytes: int = 64 << 10
    only_declared: bool = False


@dataclass
class Scope:
    """The instance of an operator that has the states, and the attempt at hand.

    Parameters
    ----------
    xp : module
        Array module, NumPy or CuPy.
    owner : str
        Operator and region, for messages.
    instance, parallelism : int
        Number of the instance in its region, and how many instances the operator has there.
    route_by : sequence of str
        Columns by which rows come to an instance.
    open_table : callable, optional
        Opens tables. Without it they can be declared and not used.
    times : AttemptTimes
        Times as the operator has been told them.
    """

    xp: Any
    owner: str
    instance: int
    parallelism: int
    route_by: Sequence[str]
    options: StateOptions
    open_table: OpenTable | None
    times: AttemptTimes

    def now(self) -> AttemptTimes:
        """Return the times; they change within an attempt, too."""
        return self.times

    def at(self, name: str) -> str:
        """Return how messages name a state."""
        return f"state {name!r} of {self.owner}" if self.owner else f"state {name!r}"


class Kind:
    """A declared state of one kind.

    Attributes
    ----------
    kind : str
        Its kind in checkpoints.
    noun, advice : str
        Its kind in messages, and the way to change it in place; ``{place}`` stands for the state.
    form : StateForm
        The form in which it is declared.
    handle
        The object that the operator has.
    follows_watermark : bool
        Its content expires, or is due, by the watermark.
    """

    kind: ClassVar[StateKind]
    noun: ClassVar[str]
    advice: ClassVar[str]
    form: StateForm
    handle: Any
    follows_watermark = False

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope = scope
        self.name = name
        self.where = scope.at(name)

    def restore(self, saved: SavedState | None) -> None:
        """Make the handle, from the content in the checkpoint if it has the state."""
        raise NotImplementedError

    def take(self, lease: Lease) -> Commit:
        """Take the content as it is now; independent of later changes.

        Raises
        ------
        StateError
            If it holds something that cannot be kept.
        """
        raise NotImplementedError

    def encoded(self, content: Any) -> SavedState:
        """Return content that `evolve` made as a checkpoint would have it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin another attempt."""

    def close(self) -> None:
        """Leave what changed since the last commit."""
