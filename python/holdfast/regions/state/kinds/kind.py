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
"""Content of a state at one moment: all of it, an unwritten large array, or a table."""

Commit: TypeAlias = Callable[[], FrozenState]
"""Ends what `Kind.take` began. It is called once in an attempt."""

#: A map or list with a text of more bytes becomes a table.
DOCUMENT_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class StateOptions:
    """Settings of states that users do not give.

    `layout` cuts large arrays. A map or list whose text has more than `document_bytes` becomes a
    table. With `only_declared` there is no checkpoint, so array changes are not followed, and large
    arrays not filled.
    """

    layout: Layout = field(default_factory=Layout)
    document_bytes: int = DOCUMENT_BYTES
    only_declared: bool = False


@dataclass(eq=False, repr=False)
class Scope:
    """The instance of an operator that has the states, and the current attempt.

    - `xp` (module): NumPy or CuPy.
    - `owner`: operator and region, for messages.
    - `instance`, `parallelism`: number of the instance, and count of instances, in its region.
    - `route_by`: columns that route rows to an instance.
    - `open_table`: opens tables. Without it they can only be declared.
    - `times`: times that the operator has received.
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
    - `noun`, `advice`: its kind in messages, and how to change the state ``{place}`` in place.
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
        """Take the current content; StateError if it has something that cannot be kept."""
        raise NotImplementedError

    def encoded(self, content: Any) -> SavedState:
        """Return content that `evolve` made as a checkpoint would have it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin another attempt."""

    def close(self) -> None:
        """Drop changes since the last commit."""


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
    """Say that a state is declared in another form than the checkpoint has."""
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
