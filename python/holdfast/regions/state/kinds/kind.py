"""The protocol of kinds of state, and their forms in declarations and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from holdfast.regions.base.saved import Lease, SavedState, StateKind
from holdfast.regions.state.arrays.chunks import Layout
from holdfast.regions.state.arrays.host import FrozenArray
from holdfast.regions.state.kinds.encoding import MAP
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_columns, saved_of
from holdfast.regions.state.tables.table import OpenTable
from holdfast.regions.state.tables.times import AttemptTimes

if TYPE_CHECKING:
    from holdfast._core import StateEntry

FrozenState: TypeAlias = SavedState | FrozenArray | FrozenTable
"""Content of a state at one moment: all of it, a large array yet to be written, or a table."""

Commit: TypeAlias = Callable[[], FrozenState]
"""Ends what `Kind.take` began. It is called once in an attempt."""

#: Bytes of the text of a map or list, beyond which it becomes a table.
DOCUMENT_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class StateOptions:
    """Settings of states that users do not give.

    - `layout`: how large arrays are cut.
    - `document_bytes`: a map or list whose text has more bytes becomes a table.
    - `only_declared`: no checkpoint is taken. Changes of arrays are not followed, and large ones
      not filled.
    """

    layout: Layout = field(default_factory=Layout)
    document_bytes: int = DOCUMENT_BYTES
    only_declared: bool = False


@dataclass(eq=False, repr=False)
class Scope:
    """The instance of an operator that has the states, and the attempt at hand.

    - `xp` (module): NumPy or CuPy.
    - `owner`: operator and region, for messages.
    - `instance`, `parallelism`: number of the instance in its region, and how many instances the
      operator has there.
    - `route_by`: columns by which rows come to an instance.
    - `open_table`: opens tables. Without it they can be declared and not used.
    - `times`: times as the operator has been told them.
    """

    xp: Any
    _: KW_ONLY
    owner: str = ""
    instance: int = 0
    parallelism: int = 1
    route_by: Sequence[str] = ()
    open_table: OpenTable | None = None
    times: AttemptTimes = AttemptTimes.at(0)  # noqa: RUF009  # immutable
    options: StateOptions = StateOptions()

    def now(self) -> AttemptTimes:
        """Return the times; they change within an attempt, too."""
        return self.times

    def at(self, name: str) -> str:
        """Return how messages name a state."""
        return f"state {name!r} of {self.owner}" if self.owner else f"state {name!r}"


class Kind:
    """A declared state of one kind.

    - `kind`: its kind in checkpoints.
    - `noun`, `advice`: its kind in messages, and the way to change it in place; ``{place}`` stands
      for the state.
    - `form`: the form in which it is declared, see `form_of`.
    - `handle`: the object that the operator has.
    - `follows_watermark`: its content expires, or is due, by the watermark.
    """

    kind: ClassVar[StateKind]
    noun: ClassVar[str]
    advice: ClassVar[str]
    form: str
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
        """Take the content as it is now; StateError if it holds something that cannot be kept."""
        raise NotImplementedError

    def encoded(self, content: Any) -> SavedState:
        """Return content that `evolve` made as a checkpoint would have it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin another attempt."""

    def close(self) -> None:
        """Leave what changed since the last commit."""


def form_of(state: SavedState | StateEntry) -> str:
    """Return the form of a state in a checkpoint, in words that are equal for equal forms."""
    if state.kind == "array":
        return f"an array of {state.dtype} of shape {tuple(state.shape)}"
    if state.kind == "table":
        data = state.data if isinstance(state, SavedState) else memoryview(state.inline or b"")
        of = saved_of(data)
        return f"a {of}" if of != "table" else f"a table of {saved_columns(data)}"
    return "a map" if state.dtype == MAP else f"a {state.kind}"


def changed(where: str, *, saved: str, declared: str) -> str:
    """Say that a state is declared in another form than the checkpoint has it in."""
    return f"{where}: the checkpoint has {saved} there, the operator declares {declared}"


def undeclared(where: str, saved: str) -> str:
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
