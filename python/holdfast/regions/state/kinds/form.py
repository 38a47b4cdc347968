"""The form in which a state is declared, compared with the form in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.kinds.encoding import MAP
from holdfast.regions.state.tables.stored_table import saved_columns, saved_of

if TYPE_CHECKING:
    from holdfast._core import StateEntry


@dataclass(frozen=True)
class StateForm:
    """Kind of a state, and type and shape of an array.

    Parameters
    ----------
    kind : {"array", "value", "list", "map", "union", "broadcast", "table"}
        The method of `StateRegistry` that declares it.
    dtype : str, default ""
        NumPy's array-interface string of an array's items, such as ``"<f8"``, or the columns of a
        table.
    shape : tuple of int, default ()
        Shape of an array.
    """

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, state: SavedState | StateEntry) -> StateForm:
        """Return the form of a state that a checkpoint has."""
        if state.kind == "array":
            return cls("array", state.dtype, tuple(state.shape))
        if state.kind == "table":
            data = state.data if isinstance(state, SavedState) else memoryview(state.inline or b"")
            of = saved_of(data)
            return cls(of) if of != "table" else cls("table", saved_columns(data))
        return cls("map" if state.dtype == MAP else state.kind)

    def __str__(self) -> str:
        """Return words for messages."""
        if self.kind == "array":
            return f"an array of {self.dtype} of shape {self.shape}"
        return f"a {self.kind}" + (f" of {self.dtype}" if self.dtype else "")


def changed(where: str, *, saved: StateForm, declared: StateForm) -> str:
    """Say that a state is declared in another form than the checkpoint has it in."""
    return f"{where}: the checkpoint has {saved} there, the operator declares {declared}"


def undeclared(where: str, saved: StateForm) -> str:
    """Say that the checkpoint has a state that is not declared."""
    return (
        f"{where}: the checkpoint has {saved} there, the operator declares no such state in open()"
    )


#: Ways out of either.
ADVICE = (
    "Declare it as before; or convert it, with evolve=function in its declaration; or, if it is "
    "not declared any more, start with drop_undeclared_state=True, which drops it; or start with a "
    "new checkpoint"
)
